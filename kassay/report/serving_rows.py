"""Serving as plain rows: loads with their failures, comparisons, checks by another tool. For every page alike."""

import statistics
from collections.abc import Sequence
from typing import Any

from kassay.kinds.serving import ServedLoad, ServingCheck, ServingContrast
from kassay.report.evidence import Report
from kassay.report.serving_words import bad_words, kept_words, load_words, quantity_words
from kassay.report.words import ABSENT, fixed, number, probability, title

LOADS = (
    "load", "arm", "requests", "failed", "empty", "tokens/s", "TTFT p50", "TTFT p95", "per token p50", "latency p50",
    "latency p95",
)  # fmt: skip
CONTRASTS = (
    "comparison", "quantity", "load", "median ratio", "95 % interval", "wins / n", "Holm p", "failures", "certificate",
    "verdict",
)  # fmt: skip
CHECKS = (
    "tool", "load", "completed", "failed", "tokens: tool / server", "requests/s", "TTFT p50: tool / ours",
    "latency p50: tool / ours", "agrees",
)  # fmt: skip
INVALID = ("load", "arm", "block", "why it is invalid")


def counting(report: Report) -> list[ServedLoad]:
    """The loads of blocks that count."""
    return [made for made in report.of(ServedLoad) if not made.pilot]


def load_rows(loads: Sequence[ServedLoad]) -> list[list[str]]:
    """Every load of every arm over its blocks; times in milliseconds."""
    rows = []
    for (load, arm), own in grouped(loads).items():
        kept = kept_words(own)
        rows.append(
            [
                f"{load}: {load_words(own[0])}",
                title(arm) + (f" ({kept})" if kept else ""),
                *(f"{sum(getattr(one, name) for one in own):,}" for name in ("requests", "failed", "empty")),
                number(middle([one.tokens_per_s for one in own])),
                *(milliseconds(own, "ttft_s", share) for share in ("p50", "p95")),
                milliseconds(own, "tpot_s", "p50"),
                *(milliseconds(own, "latency_s", share) for share in ("p50", "p95")),
            ]
        )
    return rows


def grouped(loads: Sequence[ServedLoad]) -> dict[tuple[str, str], list[ServedLoad]]:
    """(load, arm) -> its records, control first as the records have it."""
    found: dict[tuple[str, str], list[ServedLoad]] = {}
    for name in dict.fromkeys(one.load for one in loads):
        for one in loads:
            if one.load == name:
                found.setdefault((name, one.arm), []).append(one)
    return found


def middle(values: Sequence[float | None]) -> float | None:
    """The median of what is there."""
    there = [value for value in values if value is not None]
    return statistics.median(there) if there else None


def milliseconds(own: Sequence[ServedLoad], quantity: str, share: str) -> str:
    """The median over the blocks of a time's percentile."""
    times: list[dict[str, Any]] = [getattr(one, quantity) for one in own]
    found = middle([time[share] for time in times])
    return ABSENT if found is None else number(1000 * found)


def contrast_rows(made: Sequence[ServingContrast]) -> list[list[str]]:
    """Every planned comparison."""
    return [
        [
            f"{title(one.candidate)} / {title(one.control)}",
            quantity_words(one.quantity),
            one.load,
            fixed(one.median, 4),
            ABSENT if one.lower is None else f"{fixed(one.lower, 4)} to {fixed(one.upper, 4)}",
            ABSENT if one.wins is None or one.ratios is None else f"{one.wins} / {len(one.ratios)}",
            probability(one.holm_p),
            bad_words(one.failed),
            one.certificate,
            f"{one.verdict}: {one.reason}",
        ]
        for one in made
    ]


def check_rows(made: Sequence[ServingCheck]) -> list[list[str]]:
    """What another tool said of the same load."""
    rows = []
    for one in made:
        pairs = ((one.ttft_p50_s, one.own_ttft_p50_s), (one.latency_p50_s, one.own_latency_p50_s))
        times = [" / ".join(ABSENT if value is None else number(1000 * value) for value in pair) for pair in pairs]
        tokens = (ABSENT if count is None else f"{count}" for count in (one.output_tokens, one.server_output_tokens))
        paced = one.achieved_per_s is not None
        rows.append(
            [
                f"{one.tool} {one.version}",
                one.load,
                f"{one.completed} of {one.requests}",
                f"{one.failed}",
                " / ".join(tokens),
                f"{number(one.achieved_per_s)}, CV {fixed(one.achieved_gap_cv, 2)}" if paced else ABSENT,
                *times,
                f"no: {'; '.join(one.faults)}" if one.faults else "yes",
            ]
        )
    return rows


def invalid_rows(loads: Sequence[ServedLoad]) -> list[list[str]]:
    """Loads that are invalid, and why."""
    return [[one.load, title(one.arm), f"{one.block}", fault] for one in loads for fault in one.faults]
