"""The section of the page on probes of precision: four figures, the data behind each, and what is said of it."""

from collections.abc import Sequence

from kassay.kinds.probe import ProbeArm, ProbeFinding, ProbeText
from kassay.report import probe_figures as figures
from kassay.report.drawing import SERIES, Style
from kassay.report.evidence import Report
from kassay.report.markup import Content, Markup, cell, numbers, section, table, tag
from kassay.report.probe_figures import Values, signed, values_of
from kassay.report.probe_words import probe_line
from kassay.report.sections import absent, drawn
from kassay.report.words import ABSENT, number, percent, title

MARKERS = ("o", "D", "^", "v", "P", "X")
NOTE = (
    "Probes are descriptive: they have no test and no gate, and what they say holds for these texts. docs/probes.md "
    "has the formulas and the thresholds of the classes."
)


def probe_section(report: Report) -> Markup:
    """Every probe that left records."""
    found = report.of(ProbeFinding)
    if not found:
        return section("probes", "Probes of precision", absent(report, "probes", "probes"))
    styles = {
        model: Style(colour=SERIES[index % len(SERIES)], marker=MARKERS[index % len(MARKERS)], hollow=bool(index % 2))
        for index, model in enumerate(dict.fromkeys(one.model for one in found))
    }
    return section(
        "probes",
        "Probes of precision",
        tag("p", probe_line(report)),
        screen_part(report, found, styles),
        change_part(report, found, styles),
        layer_part(found, styles),
        repair_part(report, found, styles),
        tag("p", NOTE, class_="note"),
    )


def screen_part(report: Report, found: Sequence[ProbeFinding], styles: dict[str, Style]) -> Content:
    """The ratio of every prompt."""
    means = {one.model: one.value for one in found if one.quantity == "error_ratio" and one.value is not None}
    if not means:
        return None
    pair = next(one.arm for one in found if one.quantity == "error_ratio").split(" / ")
    texts = [text for text in report.of(ProbeText) if text.probe == "screen"]
    errors = {(text.model, text.arm, text.item_id): text.logit_error for text in texts}
    ratios: dict[str, list[float]] = {model: [] for model in means}
    rows = []
    for (model, arm, item), coarse in errors.items():
        if arm == pair[0] and model in means and (fine := errors.get((model, pair[1], item))):
            ratios[model].append(coarse / fine)
            shown = numbers(number(coarse), number(fine), number(coarse / fine))
            rows.append([tag("th", model, scope="row"), cell(item), *shown])
    caption = "A dot is one prompt, a bar the mean of the ratios. A model above the line is flagged: a heuristic."
    header = ["model", "prompt", f"error, {title(pair[0])}", f"error, {title(pair[1])}", "ratio"]
    return part(
        "Sensitivity screen",
        drawn(
            figures.screen_figure(ratios, means, styles),
            caption,
            table("Mean absolute logit errors.", header, rows, right=(2, 3, 4)),
        ),
    )


def change_part(report: Report, found: Sequence[ProbeFinding], styles: dict[str, Style]) -> Content:
    """Loss changes of keys and values in each format."""
    every = values_of(found, "asymmetry", "relative_loss_change")
    changes = {(model, arm): value for (model, arm), value in every.items() if arm != "native"}
    if not changes:
        return None
    arms = list(dict.fromkeys(arm for _, arm in changes))
    caption = "Keys alone, values alone, and both in fewer bits. Left of the first line an arm is tolerant."
    made = figures.change_figure("asymmetry", arms, changes, styles)
    return part("Keys against values", drawn(made, caption, change_table(found, "asymmetry", arms, list(styles))))


def change_table(found: Sequence[ProbeFinding], probe: str, arms: Sequence[str], models: Sequence[str]) -> Markup:
    """Every arm with its numbers on every model."""
    quantities = ("relative_loss_change", "agreement", "logit_error", "retrieval_accuracy")
    held = {quantity: values_of(found, probe, quantity) for quantity in quantities}
    labels = {(one.model, one.arm): one.label for one in found if one.probe == probe and one.label}
    rows = []
    for arm in arms:
        for model in models:
            shown = [held[quantity].get((model, arm)) for quantity in quantities]
            texts = (signed(shown[0]), percent(shown[1]), number(shown[2]), percent(shown[3]))
            label = cell(labels.get((model, arm), ABSENT))
            rows.append([tag("th", title(arm), scope="row"), cell(model), *numbers(*texts), label])
    header = ["arm", "model", "loss change", "same token", "logit error", "retrieval", "class"]
    return table("Each arm beside the native cache.", header, rows, right=(2, 3, 4, 5))


def layer_part(found: Sequence[ProbeFinding], styles: dict[str, Style]) -> Content:
    """Demotion and repair, layer by layer."""
    costs, recoveries = by_layer(found, "cost_of_demotion"), by_layer(found, "recovery")
    if not costs:
        return None
    rows = [
        [
            tag("th", model, scope="row"),
            *numbers(str(layer), signed(cost), percent(of_layer(recoveries.get(model, []), layer))),
        ]
        for model, found_costs in costs.items()
        for layer, cost in enumerate(found_costs)
    ]
    header = ["model", "layer", "loss change by demotion", "recovery by repair"]
    caption = "Demoted: the keys of one layer in 8 bits, all others in 16. Repaired: the other way round."
    return part(
        "Single layers",
        drawn(
            figures.layer_figure(costs, recoveries, styles),
            caption,
            table("Each layer alone.", header, rows, right=(1, 2, 3)),
        ),
    )


def by_layer(found: Sequence[ProbeFinding], quantity: str) -> dict[str, list[float]]:
    """model -> number of each layer, in the order of the layers."""
    held: dict[str, list[float]] = {}
    for one in found:
        if one.probe == "layers" and one.quantity == quantity:
            held.setdefault(one.model, []).append(float("nan") if one.value is None else one.value)
    return held


def of_layer(values: Sequence[float], layer: int) -> float | None:
    """The number of one layer, None where it was not planned."""
    return values[layer] if layer < len(values) else None


def repair_part(report: Report, found: Sequence[ProbeFinding], styles: dict[str, Style]) -> Content:
    """Right answers with and without pre-bias; models that cannot have it, with the reason."""
    accuracy: Values = values_of(found, "prebias", "retrieval_accuracy")
    if not accuracy:
        return None
    arms = [arm.arm for arm in report.of(ProbeArm) if arm.probe == "prebias"]
    names = list(dict.fromkeys(arms))
    refused = {arm.model: arm.reason for arm in report.of(ProbeArm) if arm.probe == "prebias" and not arm.eligible}
    caption = "Keys quantized with their rotated bias, and without it (pre-bias). "
    caption += "; ".join(f"{model} is ineligible: {reason}" for model, reason in refused.items())
    made = figures.repair_figure(names, accuracy, styles)
    return part("Pre-bias", drawn(made, caption, change_table(found, "prebias", names, list(styles))))


def part(heading: str, content: Content) -> Markup:
    """One probe under its heading."""
    return Markup(tag("h3", heading) + (content if isinstance(content, Markup) else Markup("")))
