"""The section on drafts: how many are accepted by batch, context and draft length, and what timed cells did."""

from collections.abc import Sequence

from kassay.kinds.speculation import AcceptanceRecord, SpeculationCell
from kassay.kinds.timing import TimingCell
from kassay.report.acceptance_words import acceptance_line
from kassay.report.drawing import FILLED, HOLLOW, PAPER, SERIES, SETTINGS, Drawing, context, drawn, figure
from kassay.report.evidence import Report
from kassay.report.markup import Markup, cell, numbers, section, table, tag
from kassay.report.sections import absent
from kassay.report.sections import drawn as placed
from kassay.report.words import ABSENT, fixed, number, one_line, tick, title

PANEL_PX = (330, 300)
ACCEPTED = [
    "recipe",
    "context",
    "batch",
    "draft",
    "accepted of drafted",
    "acceptance",
    "tokens a pass",
    "other outputs",
    "rounding",
    "margin",
]
DRAFTED = ["load", "arm", "accepted of drafted", "acceptance", "tokens a pass", "passes", "padding"]

CAPTION = (
    "Accepted over drafted tokens, the same requests at every batch. Filled marks: 16-bit cache; hollow: quantized. A "
    "request goes on at its own pace, so that a batch by itself changes nothing but rounding."
)


def acceptance_section(report: Report) -> Markup:
    """Every point of the grid, drawn and as a table, and the drafts of timed cells."""
    made = report.of(AcceptanceRecord)
    anchor, heading = "acceptance", "Acceptance of drafts"
    if not made:
        return section(anchor, heading, absent(report, "acceptance", "acceptance"), timed_table(report))
    picture = placed(acceptance_figure(made), CAPTION, acceptance_table(made))
    return section(anchor, heading, tag("p", acceptance_line(report)), picture, timed_table(report))


def acceptance_figure(made: Sequence[AcceptanceRecord]) -> Drawing:
    """Acceptance over draft length, a panel a batch, a line a recipe and context."""
    batches = sorted({one.batch for one in made})
    contexts = sorted({one.context_tokens for one in made})
    recipes = list(dict.fromkeys(one.recipe for one in made))
    with context(SETTINGS):
        shown = figure(PANEL_PX[0] * len(batches), PANEL_PX[1])
        panels = shown.subplots(1, len(batches), sharey=True, squeeze=False)[0]
        for axes, batch in zip(panels, batches, strict=True):
            for rank, tokens in enumerate(contexts):
                for recipe in recipes:
                    own = [
                        (one.draft_tokens, one.acceptance)
                        for one in made
                        if (one.batch, one.context_tokens, one.recipe) == (batch, tokens, recipe)
                        if one.acceptance is not None
                    ]
                    if own:
                        axes.plot(*zip(*sorted(own), strict=True), **style(rank, recipe != recipes[0]))
            axes.set_xticks(sorted({one.draft_tokens for one in made}))
            axes.set_ylim(0, 1)
            axes.grid(True, axis="y")
            axes.set_xlabel("draft, tokens")
            axes.set_title(f"batch {batch}")
        panels[0].set_ylabel("accepted over drafted")
        for rank, tokens in enumerate(contexts):
            panels[0].plot([], [], label=f"{tokens:,} tokens", **style(rank, False))
        panels[0].legend(fontsize=10.5, title="context", loc="lower left")
        told = "; ".join(
            f"{tick(title(one.recipe))}, {one.context_tokens:,} tokens, batch {one.batch}, draft {one.draft_tokens}: "
            f"{number(one.acceptance)}"
            for one in made
        )
        return drawn("acceptance", f"Acceptance: {told}", shown)


def style(rank: int, hollow: bool) -> dict[str, object]:
    """A line of one context: colour and marker tell contexts apart, the filling recipes."""
    colour = SERIES[1 + rank % (len(SERIES) - 1)]
    return {
        "marker": (HOLLOW if hollow else FILLED)[rank % len(FILLED)],
        "markerfacecolor": PAPER if hollow else colour,
        "markeredgecolor": colour,
        "color": colour,
        "linewidth": 1.2,
        "markersize": 5,
    }


def acceptance_table(made: Sequence[AcceptanceRecord]) -> Markup:
    """One row a point."""
    rows = [[tag("th", row[0], scope="row"), *numbers(*row[1:])] for row in map(acceptance_row, made)]
    caption = (
        "Acceptance, point by point. `Other outputs`: requests whose tokens differ from plain decoding of the same "
        "recipe. Rounding and margin, over the largest logit: the largest difference of a verify pass, and what "
        "separates the two best tokens at the closest."
    )
    return table(caption, ACCEPTED, rows, right=range(1, len(ACCEPTED)))


def acceptance_row(one: AcceptanceRecord) -> list[str]:
    """One point as texts, in the order of ACCEPTED."""
    return [
        title(one.recipe),
        f"{one.context_tokens:,}",
        str(one.batch),
        str(one.draft_tokens),
        f"{sum(one.accepted):,} of {sum(one.drafted):,}",
        ABSENT if one.acceptance is None else fixed(one.acceptance, 3),
        fixed(one.tokens_per_pass, 2),
        f"{one.other_requests} of {one.requests}",
        number(one.largest_rounding, 2),
        number(one.smallest_margin, 2),
    ]


def timed_table(report: Report) -> Markup | None:
    """What the arms with drafts did in their timed cells, over all measured repetitions."""
    rows = [[tag("th", row[0], scope="row"), cell(title(row[1])), *numbers(*row[2:])] for row in timed_rows(report)]
    caption = (
        "Drafts of timed cells, all measured repetitions. Passes: the fewest and the most of a request. Padding: share "
        "of computed positions that belong to no token of the pass, because drafts of a batch differ in length."
    )
    return table(caption, DRAFTED, rows, right=range(2, len(DRAFTED))) if rows else None


def timed_rows(report: Report) -> list[list[str]]:
    """One row a load and arm, in the order of DRAFTED."""
    warmups = {(one.load, one.block, one.position): one.warmups for one in report.of(TimingCell) if not one.pilot}
    arms: dict[tuple[str, str], list[SpeculationCell]] = {}
    for one in report.of(SpeculationCell):
        if not one.pilot and (one.load, one.block, one.position) in warmups:
            arms.setdefault((one.load, one.recipe), []).append(one)
    return [
        timed_row(load, arm, [(one, warmups[one.load, one.block, one.position]) for one in own])
        for (load, arm), own in arms.items()
    ]


def timed_row(load: str, arm: str, cells: Sequence[tuple[SpeculationCell, int]]) -> list[str]:
    """One load and arm as texts."""
    passes, drafted, accepted, computed = [], 0, 0, 0
    for one, warmups in cells:
        measured = slice(warmups, None)
        passes += [count for row in one.passes[measured] for count in row]
        drafted += sum(map(sum, one.drafted[measured]))
        accepted += sum(map(sum, one.accepted[measured]))
        for there, widths in zip(one.pass_requests[measured], one.pass_tokens[measured], strict=False):
            computed += sum(requests * width for requests, width in zip(there, widths, strict=False))
    tokens, used = sum(passes) + accepted, sum(passes) + drafted
    return [
        one_line(load, 60),
        arm,
        f"{accepted:,} of {drafted:,}",
        fixed(accepted / drafted, 3) if drafted else ABSENT,
        fixed(tokens / sum(passes), 2) if sum(passes) else ABSENT,
        f"{min(passes)} to {max(passes)}" if passes else ABSENT,
        f"{fixed(100 * (1 - used / computed), 1)} %" if computed else ABSENT,
    ]
