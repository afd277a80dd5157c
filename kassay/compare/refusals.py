"""What must not be compared, and why: one sentence for each reason, with the part of a comparison that it forbids.

    everything   the runs ask different things, or are the same run
    judgements   the same question, on other items, weights or data: gates, certificates and answers
    host-bound   times, rates, memory and what is judged of them, measured on another host

What is not refused is shown: other settings, pins or commits are what a comparison is for. A baseline is stricter, for
there only the code may have changed (`baseline_refusals`).
"""

from dataclasses import dataclass
from typing import Literal

from kassay.compare.subject import Subject

Part = Literal["everything", "judgements", "host-bound"]
MOST = 4  # names that a sentence tells; more are counted
SHOWN = 8  # characters of a hash
UNSET = "unset"  # what is said of a symbol that is empty, off or not there


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """One reason."""

    part: Part
    reason: str

    def line(self) -> str:
        """All of it in one line."""
        return f"refused: {self.part}: {self.reason}"


def refusals(a: Subject, b: Subject) -> list[Refusal]:
    """Why parts of two runs must not be compared; empty if all may be."""
    if a.run == b.run:
        return [Refusal(part="everything", reason=f"`{a.run}` is compared with itself")]
    found = of_the_question(a, b)
    found += of_the_data(a, b)
    if a.host_stages and b.host_stages and (reason := of_the_host(a, b)):
        found.append(Refusal(part="host-bound", reason=reason))
    return found


def baseline_refusals(baseline: Subject, now: Subject) -> list[Refusal]:
    """Why a run must not be judged by a baseline: what `refusals` says, another plan, other pins, no end."""
    found = refusals(baseline, now)
    whole = []
    for one, role in ((baseline, "the baseline"), (now, "the run")):
        if one.exit_code is None:
            whole.append(f"{role} `{one.run}` has not ended: it goes on, was interrupted, or its driver died")
    if baseline.profile != now.profile:
        whole.append(f"profile `{baseline.profile}` is not `{now.profile}`")
    if baseline.plan_hash != now.plan_hash:
        changed = differing(baseline.settings, now.settings)
        said = f": {listed(changed)}" if changed else ", by the workflow, not by settings"
        whole.append(f"plan {baseline.plan_hash[:SHOWN]} is not {now.plan_hash[:SHOWN]}{said}")
    if changed := pins(baseline, now):
        whole.append(f"other pins: {listed(changed)}")
    if baseline.devices != now.devices:
        whole.append(f"other GPUs: {listed(baseline.devices) or 'none'} and {listed(now.devices) or 'none'}")
    return found + [Refusal(part="everything", reason=reason) for reason in whole]


def of_the_question(a: Subject, b: Subject) -> list[Refusal]:
    """Another workflow, protocol or split."""
    if a.workflow != b.workflow:
        return [Refusal(part="everything", reason=f"workflow `{a.workflow}` is not `{b.workflow}`")]
    if a.split != b.split:
        reason = f"split `{a.split}` is not `{b.split}`: a pilot and a confirmation are never one result"
        return [Refusal(part="everything", reason=reason)]
    if a.protocol != b.protocol:
        said = [f"{one.study} {str(one.protocol)[:SHOWN]}{' (frozen)' if one.frozen else ''}" for one in (a, b)]
        return [Refusal(part="everything", reason=f"another protocol: {said[0]} and {said[1]}")]
    return []


def of_the_data(a: Subject, b: Subject) -> list[Refusal]:
    """Other items, weights or data sets, where both runs name one."""
    found = []
    for what, was, now in (("items", a.items, b.items), ("weights or data", a.data, b.data)):
        if changed := [name for name in was if name in now and was[name] != now[name]]:
            found.append(Refusal(part="judgements", reason=f"other {what}: {listed(changed)}"))
    return found


def of_the_host(a: Subject, b: Subject) -> str:
    """Why what is bound to a host must not be compared; empty if it may be."""
    if a.host is None or b.host is None:
        return f"`{(a if a.host is None else b).run}` does not say on which host it measured"
    if a.host != b.host:
        keys = [key for key in sorted({*a.host, *b.host}) if a.host.get(key) != b.host.get(key)]
        return "another host: " + ", ".join(f"{key} {a.host.get(key)} and {b.host.get(key)}" for key in keys)
    if a.devices != b.devices:
        return f"other GPUs: {listed(a.devices) or 'none'} and {listed(b.devices) or 'none'}"
    return ""


def pins(a: Subject, b: Subject) -> list[str]:
    """Sources, packages and Python versions that differ, as `name was -> now`; kassay's own commit is no pin."""
    was = {"python": a.python, **a.sources, **a.packages}
    now = {"python": b.python, **b.sources, **b.packages}
    names = [name for name in sorted({*was, *now}) if was.get(name) != now.get(name)]
    return [f"{name} {was.get(name) or 'absent'} -> {now.get(name) or 'absent'}" for name in names]


def differing(was: dict[str, object], now: dict[str, object]) -> list[str]:
    """Keys whose values differ, as `key was -> now`."""
    names = [name for name in sorted({*was, *now}) if was.get(name, UNSET) != now.get(name, UNSET)]
    return [f"{name} {was.get(name, UNSET)} -> {now.get(name, UNSET)}" for name in names]


def listed(names: list[str]) -> str:
    """Names with commas, the rest of many counted."""
    more = f" and {len(names) - MOST} more" if len(names) > MOST else ""
    return ", ".join(names[:MOST]) + more
