"""The protocol of a run: the hash of its study, and what `make freeze-protocol` froze before there were results.

protocol.json beside .config holds one frozen protocol for each `<workflow>/<study>`: hash, date, the study as it was
composed, and what it replaced. A run says whether its study is the frozen one. Results are never pooled between
protocols: a stage that judges refuses records that were made under another one, as soon as either was frozen. A stage
that only measures is reused by identity all the same, for its records hold no judgement.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kassay import digest, paths
from kassay.dotted import flat
from kassay.errors import ProtocolError
from kassay.plan import Plan, protocol_hash
from kassay.stage import utc_now

SCHEMA = "kassay.protocol/1"
OF_RUN = "kassay.run-protocol/1"
SHOWN = 8  # characters of a hash in a message
MOST = 6  # changed keys that are told


@dataclass(frozen=True, kw_only=True)
class State:
    """The study of a plan beside what was frozen of that name."""

    name: str  # `<workflow>/<study>`
    sha256: str  # of the plan's own study
    frozen: str | None  # hash of the frozen one; None: nothing was frozen
    frozen_at: str | None  # UTC, ISO 8601
    changed: tuple[str, ...]  # keys in which the two differ

    @property
    def words(self) -> str:
        """What a run says of it; empty where nothing was frozen."""
        if self.frozen is None:
            return ""
        if self.frozen == self.sha256:
            return f"{self.name} {self.sha256[:SHOWN]}, frozen {self.frozen_at}"
        more = f" and {len(self.changed) - MOST} more" if len(self.changed) > MOST else ""
        return (
            f"{self.name} {self.sha256[:SHOWN]} is another protocol than {self.frozen[:SHOWN]}, "
            f"frozen {self.frozen_at}: {', '.join(self.changed[:MOST])}{more}; their results are never judged together"
        )

    def of_request(self) -> dict[str, Any]:
        """What a stage is told."""
        return {"sha256": self.sha256, "frozen": self.frozen}


def name_of(workflow: str, study: Any) -> str:
    """The name under which a study is frozen."""
    own = study.get("name") if isinstance(study, dict) else None
    return f"{workflow}/{own}" if own else workflow


def state_of(plan: Plan) -> State | None:
    """The protocol of a plan; None for a workflow without a study."""
    if (sha256 := plan.protocol()) is None:
        return None
    study = plan.config["study"]
    name = name_of(plan.workflow, study)
    entry = read_book().get(name)
    if entry is None:
        return State(name=name, sha256=sha256, frozen=None, frozen_at=None, changed=())
    changed = () if entry["sha256"] == sha256 else differences(entry["study"], study)
    return State(name=name, sha256=sha256, frozen=entry["sha256"], frozen_at=entry["frozen_at"], changed=tuple(changed))


def differences(before: Any, after: Any) -> list[str]:
    """Dotted keys in which two studies differ."""
    old, new = flat(before), flat(after)
    absent = object()
    return sorted(
        key
        for key in {*old, *new}
        if old.get(key, absent) is absent
        or new.get(key, absent) is absent
        or digest.of_value(old[key]) != digest.of_value(new[key])
    )


def read_book() -> dict[str, dict[str, Any]]:
    """Every frozen protocol by name. Raises ProtocolError for a file that is not ours: nothing is guessed of it."""
    place = paths.protocol()
    try:
        body = json.loads(place.read_bytes())
        if body["schema"] != SCHEMA:
            raise ProtocolError(f"{paths.shown(place)}: schema `{body['schema']}`, this kassay reads `{SCHEMA}`")
        found = dict(body["protocols"])
        for name, entry in found.items():
            if protocol_hash(name.partition("/")[0], entry["study"]) != entry["sha256"]:
                raise ProtocolError(f"{paths.shown(place)}: the study of `{name}` is not what its hash says")
            str(entry["frozen_at"]), list(entry["earlier"])
        return found
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ProtocolError(f"{paths.shown(place)}: it cannot be read: {error}") from None


def freeze(workflow: str, study: dict[str, Any], results: Path, again: str) -> str:
    """Freeze a study, and say so in one line.

    Raises ProtocolError where another one of its name has results already and `again` gives no reason.
    """
    name, sha256, book = name_of(workflow, study), protocol_hash(workflow, study), read_book()
    before = book.get(name)
    if before is not None and before["sha256"] == sha256:
        return f"{name} {sha256[:SHOWN]} unchanged, frozen {before['frozen_at']}"
    earlier = []
    if before is not None:
        runs = runs_of(results, before["sha256"])
        if runs and not again.strip():
            was = f"was frozen {before['frozen_at']} as {before['sha256'][:SHOWN]}"
            raise ProtocolError(
                f"`{name}` {was}, and has results: {', '.join(runs)}",
                f"changed since: {', '.join(differences(before['study'], study)[:MOST])}",
                hint='make freeze-protocol AGAIN="<why>" freezes another protocol, and keeps this one on record',
            )
        kept = {key: before[key] for key in ("sha256", "frozen_at", "study", "runs_before")}
        earlier = [*before["earlier"], {**kept, "replaced_at": utc_now(), "why": again.strip(), "runs": runs}]
    entry = {
        "sha256": sha256,
        "frozen_at": utc_now(),
        "runs_before": runs_of(results, sha256),  # results that were there before this was frozen
        "study": study,
        "earlier": earlier,
    }
    digest.write_json(paths.protocol(), {"schema": SCHEMA, "protocols": {**book, name: entry}})
    late = f"; it had results before: {', '.join(entry['runs_before'])}" if entry["runs_before"] else ""
    again = f" in the place of {earlier[-1]['sha256'][:SHOWN]}" if earlier else ""
    return f"{name} {sha256[:SHOWN]} frozen{again}{late}"


def runs_of(results: Path, sha256: str) -> list[str]:
    """Runs of a protocol that have a result: a stage that passed or was rejected."""
    found = []
    for plan_file in sorted(results.glob(f"*/{paths.PLAN}")):
        run_dir = plan_file.parent
        try:
            plan = json.loads(plan_file.read_bytes())
            if run_dir.is_symlink() or protocol_hash(plan["workflow"], plan["config"]["study"]) != sha256:
                continue
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue  # whatever it is, it is no run of ours
        if any(word_of(path) in ("passed", "rejected") for path in run_dir.glob(f"stages/*/{paths.OUTCOME}")):
            found.append(run_dir.name)
    return found


def word_of(outcome: Path) -> str:
    """The word of an outcome's file; empty where it cannot be read."""
    try:
        return str(json.loads(outcome.read_bytes())["word"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def note(run_dir: Path, state: State) -> bool:
    """Write into a run what its protocol is and what was frozen as it began, and say whether that is new."""
    entry = {"frozen": state.frozen, "frozen_at": state.frozen_at, "changed": list(state.changed)}
    notes = noted(run_dir).get("notes", [])
    if notes and {key: notes[-1][key] for key in entry} == entry:
        return False
    body = {"schema": OF_RUN, "name": state.name, "sha256": state.sha256, "notes": [*notes, {"at": utc_now(), **entry}]}
    digest.write_soon(run_dir / paths.PROTOCOL, body)
    return True


def noted(run_dir: Path) -> dict[str, Any]:
    """What `note` wrote into a run; empty if it did not."""
    try:
        body = json.loads((run_dir / paths.PROTOCOL).read_bytes())
        return body if isinstance(body, dict) and body["schema"] == OF_RUN and body["notes"] else {}
    except (OSError, ValueError, KeyError, TypeError):
        return {}
