"""What the report says of serving in words; put together from records alone."""

from collections.abc import Mapping, Sequence

from kassay.kinds.serving import ServedLoad, ServingContrast, ServingGate
from kassay.report.evidence import Report
from kassay.report.words import counted, fixed, listed, number, one_line, sentence, title

QUANTITIES = {
    "tokens_per_s": "output tokens per second",
    "completed_per_s": "requests per second",
    "latency_s": "latency",
    "ttft_s": "time to first token",
    "tpot_s": "time per token",
}


def serving_line(report: Report) -> str:
    """Every planned comparison, then the failures; empty where the run serves nothing."""
    if not report.run.program("serving"):
        return ""
    gates, made = report.of(ServingGate), report.of(ServingContrast)
    if not gates:
        return f"Not judged: {one_line(report.run.why_absent('serving_verdict'))}"
    requests, bad = sum(gate.requests for gate in gates), sum(gate.failed + gate.empty for gate in gates)
    failing = [f"{title(gate.arm)} under load {gate.load}" for gate in gates if gate.verdict != "pass"]
    failures = f"{bad:,} of {counted(requests, 'request')} failed or were empty"
    failures += f" ({listed(failing)})" if failing else ""
    pairs: dict[str, list[str]] = {}
    for record in made:
        pair = f"{title(record.candidate)} against {title(record.control)}"
        pairs.setdefault(pair, []).append(contrast_words(record))
    return sentence("; ".join([*(f"{pair}: {', '.join(said)}" for pair, said in pairs.items()), failures]))


def contrast_words(record: ServingContrast) -> str:
    """`descriptive by latency p95 under load open (median ratio 0.911)`."""
    ratio = "" if record.median is None else f" (median ratio {fixed(record.median, 3)})"
    return f"{one_line(record.verdict, 60)} by {quantity_words(record.quantity)} under load {record.load}{ratio}"


def quantity_words(quantity: str) -> str:
    """A quantity as people say it."""
    name, _, statistic = quantity.partition(".")
    return " ".join(filter(None, (QUANTITIES.get(name, name), statistic)))


def load_words(load: ServedLoad) -> str:
    """What a load is."""
    if load.concurrency is not None:
        return f"{load.concurrency} in flight"
    return f"{number(load.offered_per_s)}/s, {load.arrivals}"


def kept_words(own: Sequence[ServedLoad]) -> str:
    """How an open loop was kept; empty of a closed one."""
    rates = [one.achieved_per_s for one in own if one.achieved_per_s is not None]
    lags = [one.largest_lag_s for one in own if one.largest_lag_s is not None]
    if not rates or not lags:
        return ""
    return f"kept {number(min(rates))} to {number(max(rates))}/s, at most {1000 * max(lags):.1f} ms late"


def bad_words(failed: Mapping[str, int]) -> str:
    """Failures of both arms."""
    return ", ".join(f"{title(arm)} {count}" for arm, count in failed.items())


def controls(report: Report) -> list[str]:
    """The arms that others are compared with."""
    return list(dict.fromkeys(record.control for record in report.of(ServingContrast)))
