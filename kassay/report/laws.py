"""The part of the saturation section on what explains it: laws over all contexts, and what a larger batch gives."""

from kassay.kinds.law import LawRecord
from kassay.kinds.verdict import SaturationRecord
from kassay.report import law_figures
from kassay.report.drawing import styles
from kassay.report.evidence import Report
from kassay.report.law_figures import AFFINE_NAMES
from kassay.report.markup import Markup, cell, numbers, table, tag
from kassay.report.sections import control_of, drawn, recipes_of
from kassay.report.words import ABSENT, number, percent, title
from kassay.stats.laws import AFFINE


def law_part(report: Report) -> list[Markup]:
    """Figures and table of the laws; nothing where recipes were swept at one context only."""
    laws = report.of(LawRecord)
    if not laws:
        return []
    panels = []
    for recipe in dict.fromkeys(law.recipe for law in laws):
        own = [law for law in laws if law.recipe == recipe]
        affine = [law for law in own if law.law == AFFINE and set(AFFINE_NAMES) <= set(law.parameters)]
        panels += [law_figures.step_panel(law) for law in affine]
        panels.append(law_figures.residual_panel(own))
    caption = (
        "Step time: if the affine law a + c B + d B T holds, points of all contexts lie on one line. Residuals: of "
        "each law on the same points in the same space. AICc compares them in sample and proves none; RSS alone "
        "favours the law with more parameters."
    )
    return [
        tag("h3", "What explains it: batch, cached tokens, or the affine step time"),
        tag("div", [drawn(panel, None, None) for panel in panels], class_="panels"),
        tag("p", caption, class_="note"),
        law_table(laws),
        tag("details", tag("summary", "data table: step time and residuals of every point"), point_table(laws)),
    ]


def point_table(laws: tuple[LawRecord, ...]) -> Markup:
    """Every point of every recipe: measured step time, and what each law leaves of it."""
    names = list(dict.fromkeys(law.law for law in laws))
    rows = []
    for recipe in dict.fromkeys(law.recipe for law in laws):
        own = {law.law: law for law in laws if law.recipe == recipe}
        first = next(iter(own.values()))
        for place, step_s in enumerate(first.steps_s):
            left = (number(own[name].residuals[place]) if name in own else ABSENT for name in names)
            rows.append(
                [
                    tag("th", title(recipe), scope="row"),
                    *numbers(f"{first.contexts_tokens[place]:,}", str(first.batches[place]), number(1e3 * step_s, 4)),
                    *numbers(*left),
                ]
            )
    header = ["recipe", "context", "batch", "step (ms)", *names]
    caption = "Measured step time of each point, and its residual under each law."
    return table(caption, header, rows, right=range(1, len(header)))


def law_table(laws: tuple[LawRecord, ...]) -> Markup:
    """Every law with its criteria."""
    rows = [
        [
            tag("th", title(law.recipe), scope="row"),
            cell([law.law, tag("span", ", ".join(law.flags).replace("_", " "), class_="sub")], kind="free"),
            *numbers(str(len(law.residuals)), str(len(law.parameters)), number(law.rss, 4)),
            *numbers(percent(law.rms_log_residual, 1), f"{law.aic:.1f}", law_figures.criterion(law)),
            cell("least" if law.best else ABSENT),
        ]
        for law in laws
    ]
    spaces = ", ".join(sorted({law.residual_space for law in laws}))
    caption = f"Laws on tokens per second, {spaces} residuals: points, fitted parameters, residuals and criteria."
    header = ["recipe", "law", "n", "parameters", "RSS", "rms ln", "AIC", "AICc", "of these"]
    return table(caption, header, rows, right=range(2, 8))


def return_part(report: Report) -> list[Markup]:
    """Elasticity drawn, and what each measured batch gives and costs."""
    order = recipes_of(report)
    fits = sorted(report.of(SaturationRecord), key=lambda fit: (fit.context_tokens, order.index(fit.recipe)))
    style_of = styles(order, control_of(report))
    panels = []
    for tokens in sorted({fit.context_tokens for fit in fits}):
        own = [fit for fit in fits if fit.context_tokens == tokens]
        panels.append(drawn(law_figures.return_panel(tokens, own, style_of), None, None))
    return [
        tag("h3", "What a larger batch gives, and what it costs each request"),
        tag("div", panels, class_="panels"),
        tag("details", tag("summary", "data table: elasticity, marginal rate, time per token"), return_table(report)),
    ]


def return_table(report: Report) -> Markup:
    """Every measured batch of every sweep."""
    shares = {
        (law.recipe, batch, tokens): share
        for law in report.of(LawRecord)
        for batch, tokens, share in zip(law.batches, law.contexts_tokens, law.cached_shares or (), strict=False)
    }
    rows = []
    for fit in report.of(SaturationRecord):
        columns = zip(fit.batches, fit.elasticities, fit.marginal_per_s, fit.token_time_s, strict=True)
        for batch, elastic, marginal, token_s in columns:
            share = shares.get((fit.recipe, batch, fit.context_tokens))
            rows.append(
                [
                    cell(f"{fit.context_tokens:,}"),
                    tag("th", title(fit.recipe), scope="row"),
                    *numbers(str(batch), number(elastic), number(marginal, 4), number(1e3 * token_s, 4)),
                    *numbers(ABSENT if share is None else percent(share, 1)),
                ]
            )
    caption = (
        "At each measured batch: elasticity g (1 - S / S_max) and marginal rate of the fitted curve, measured time per "
        "output token of each request, and f_KV, the cached tokens' share of the affine step time."
    )
    header = ["context", "recipe", "batch", "elasticity", "tok/s per sequence more", "ms per token", "f_KV"]
    return table(caption, header, rows, right=range(2, 7))
