"""What the attention benchmark says: a row an arm, whether a ratio can be, and the figure. No GPU is needed for it."""

import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

SIXTEEN = ("native", "torch flash", "torch cudnn", "flashinfer fp16", "flashinfer fp16 fa3")
NAMES = {"native": "K16/V16", "k16v8-d": "K16/V8 d", "k16v8-f": "K16/V8 f", "k8v8-d": "K8/V8 d", "k8v8-f": "K8/V8 f",
         "k4v4-d": "K4/V4 d"}  # fmt: skip
HEAD = ("arm", "us", "TB/s", "x copy", "over K16/V16", "10-90 %", "limit", "over fastest 16-bit")
SLACK = 1.01  # as kassay.kernels.tuned has it
DRAWN = ("k16v8-d", "k16v8-f", "k8v8-d", "k8v8-f", "k4v4-d", "k4v4-d unfused", "torch cudnn", "flashinfer fp16")


def label(arm: str) -> str:
    """Its name for people: `K4/V4 d unfused`."""
    recipe, _, rest = arm.partition(" ")
    return f"{NAMES.get(recipe, recipe)} {rest}".rstrip()


def title(row: dict[str, Any]) -> str:
    """Geometry and shape."""
    heads = row["heads"]
    tuned = "tuned" if row["tuned"] else "the rule's cuts"
    return (
        f"{heads['query_heads']}/{heads['kv_heads']} heads of {heads['head_dim']}, pages of {heads['page_tokens']}, "
        f"{heads['sixteen']}, batch {row['batch']}, context {row['context_tokens']} ({row['tokens']} tokens), {tuned}"
    )


def ratios(row: dict[str, Any], arm: str, baseline: str = "native") -> list[float]:
    """Time of the baseline over time of the arm, within rounds."""
    times = row["rounds_us"]
    return [slow / fast for slow, fast in zip(times[baseline], times[arm], strict=True)]


def fastest_16_bit(row: dict[str, Any]) -> str:
    """The 16-bit arm of the least median."""
    there = [arm for arm in SIXTEEN if arm in row["rounds_us"]]
    return min(there, key=lambda arm: statistics.median(row["rounds_us"][arm]))


def limit(row: dict[str, Any], arm: str) -> float | None:
    """Bytes of K16/V16 over bytes of the arm; None where an arm's bytes are not ours to say."""
    held = row["call_bytes"].get(arm)
    return None if held is None else float(row["call_bytes"]["native"] / held)


def impossible(row: dict[str, Any]) -> list[str]:
    """Arms whose ratio is above their byte limit: the baseline is mistuned. NaN is impossible too."""
    found = []
    for arm in row["rounds_us"]:
        most = limit(row, arm)
        if most is not None and not statistics.median(ratios(row, arm)) <= SLACK * most:
            found.append(arm)
    return found


def lines(row: dict[str, Any], copy_tb_s: float) -> Iterator[tuple[str, ...]]:
    """A line an arm."""
    best = fastest_16_bit(row)
    for arm, times in row["rounds_us"].items():
        own = sorted(ratios(row, arm))
        tenth = [own[round(share * (len(own) - 1))] for share in (0.1, 0.9)]
        us, most = statistics.median(times), limit(row, arm)
        moved = row["call_bytes"].get(arm)
        yield (
            label(arm),
            f"{us:.1f}",
            "" if moved is None else f"{moved / us / 1e6:.2f}",
            "" if moved is None else f"{moved / us / 1e6 / copy_tb_s:.2f}",
            f"{statistics.median(own):.3f}",
            f"{tenth[0]:.3f}-{tenth[1]:.3f}",
            "" if most is None else f"{most:.3f}",
            f"{statistics.median(ratios(row, arm, best)):.3f}",
        )


def text(row: dict[str, Any], copy_tb_s: float) -> str:
    """The table of one shape."""
    rows = [HEAD, *lines(row, copy_tb_s)]
    wide = [max(len(each[at]) for each in rows) for at in range(len(HEAD))]
    body = ["  ".join(word.ljust(wide[at]) for at, word in enumerate(each)).rstrip() for each in rows]
    read = "" if row["gather_TB_s"] is None else f"; pages read at {row['gather_TB_s']:.2f} TB/s"
    said = [f"{title(row)}{read}; fastest 16-bit arm {fastest_16_bit(row)}"]
    said += body
    said += [f"error: {label(arm)} is above its byte limit: the baseline is mistuned" for arm in impossible(row)]
    said += [f"absent: {arm}: {why}" for arm, why in row["absent"].items()]
    return "\n".join(said)


def draw(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Ratios over own K16/V16 by cached tokens of a call, with each recipe's byte limit."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    main = sorted((row for row in rows if row["tuned"]), key=lambda row: row["tokens"]) or list(rows)
    shown, axes = pyplot.subplots(figsize=(8.2, 4.6), layout="constrained")
    for number, arm in enumerate(DRAWN):
        there = [row for row in main if arm in row["rounds_us"]]
        if not there:
            continue
        middle = [statistics.median(ratios(row, arm)) for row in there]
        color, places = f"C{number}", [row["tokens"] for row in there]
        axes.plot(places, middle, "o-", color=color, markersize=5, linewidth=1.2, label=label(arm))
        if (most := limit(there[0], arm)) is not None and not arm.endswith("unfused"):
            axes.axhline(most, color=color, linewidth=0.8, linestyle=":")
    axes.axhline(1.0, color="black", linewidth=0.8)
    axes.set_xscale("log", base=2)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("cached tokens of a call (batch x context)")
    axes.set_ylabel("time of own K16/V16 over time of the arm")
    axes.set_title("Median of ratios within rounds; dotted: byte limit", fontsize=10)
    axes.legend(fontsize=8, ncols=2)
    shown.savefig(path, dpi=150)
    pyplot.close(shown)
