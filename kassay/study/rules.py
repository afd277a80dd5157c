"""What the sections of a study must say together: names that exist, levels that add up, blocks that fit their orders.

A rule speaks only of what is there: a value that must still be given (OPEN) breaks none.
"""

import math
from collections.abc import Iterable, Iterator
from typing import Any

from kassay.config.tree import nearest
from kassay.study.deciding import AnswerEndpoint, CheckEndpoint, Gate, LossEndpoint, MeasuredEndpoint, PointGate
from kassay.study.reading import OPEN, Faults
from kassay.study.shape import Certificates, Study, Timing
from kassay.study.vocabulary import KINDS

LEVELS = 1e-9  # relative: levels are decimals of a quotient
ANSWER_GATES, LOSS_GATES = ("gross-loss", "net-change"), ("relative-nll", "nll-difference")
OF_MEASURED = {"ratio": MeasuredEndpoint, "value": (MeasuredEndpoint, AnswerEndpoint, LossEndpoint)}
OF_MEASURES = {"data": ("gsm8k", "nll"), "keys": ("retrieval",)}
FORM: dict[str, Any] = {
    **dict.fromkeys(ANSWER_GATES, AnswerEndpoint),
    **dict.fromkeys(LOSS_GATES, LossEndpoint),
    **OF_MEASURED,
    "all-pass": CheckEndpoint,
}


def check(study: Study, faults: Faults) -> None:
    """Every rule; faults go where they stand."""
    needed_sections(study, faults)
    names(study, faults)
    endpoint_rules(study, faults)
    for name, gate in entries(study.gates):
        gate_rules(study, f"gates.{name}", gate, faults)
    certificate_rules(study, faults)
    contrast_rules(study, faults)
    if study.timing is not None and study.timing is not OPEN:
        timing_rules(study, study.timing, faults)
    stage_rules(study, faults)
    expectation_rules(study, faults)


def entries(section: Any) -> Iterator[tuple[str, Any]]:
    """The named members of a section that are there."""
    if isinstance(section, dict):
        yield from ((str(name), item) for name, item in section.items() if item is not OPEN)


def known(*values: Any) -> bool:
    """Whether none of the values must still be given."""
    return all(value is not OPEN and value is not None for value in values)


def among(key: str, given: Any, allowed: Any, what: str, faults: Faults) -> None:
    """A fault for each given name that is not one of a section."""
    if not known(given) or allowed is OPEN:
        return
    options = [str(name) for name in allowed or ()]
    for place, name in enumerate(given if isinstance(given, list) else [given]):
        if name is not OPEN and name not in options:
            where = f"{key}[{place}]" if isinstance(given, list) else key
            faults.add(
                where, f"`{name}` is no {what}, allowed are {', '.join(options) or 'none'}{nearest(name, options)}"
            )


def needed_sections(study: Study, faults: Faults) -> None:
    """The sections that the kind cannot do without."""
    if study.kind in KINDS:
        for section in KINDS[study.kind][1]:
            if getattr(study, section) in (None, {}):
                faults.add(section, f"is not there, and a study of kind `{study.kind}` cannot do without")
    if known(study.arms) and not study.arms:
        faults.add("arms", "names none")
    if known(study.arm_order, study.arms) and sorted(map(str, study.arm_order or ())) != sorted(study.arms):
        faults.add("arm_order", f"allowed is each of {', '.join(study.arms)} once")


def names(study: Study, faults: Faults) -> None:
    """Names that one section takes from another."""
    for name, pair in entries(study.comparisons):
        among(f"comparisons.{name}.candidate", pair.candidate, study.arms, "arm", faults)
        among(f"comparisons.{name}.control", pair.control, study.arms, "arm", faults)
        if pair.candidate == pair.control and known(pair.candidate):
            faults.add(f"comparisons.{name}", f"compares `{pair.candidate}` with itself")
    for name, load in entries(study.workloads):
        among(f"workloads.{name}.model", load.model, study.models, "model", faults)
        if (load.load == "open-loop") != (load.rate_per_s is not None) and known(load.load):
            faults.add(f"workloads.{name}.rate_per_s", "goes with an open loop, and an open loop with it")
    for name, guard in entries(study.guards):
        among(f"guards.{name}.workload", guard.workload, study.workloads, "workload", faults)
        among(f"guards.{name}.comparison", guard.comparison, study.comparisons, "comparison", faults)
    if study.sweep is not None and study.sweep is not OPEN:
        among("sweep.arms", study.sweep.arms, study.arms, "arm", faults)


def endpoint_rules(study: Study, faults: Faults) -> None:
    """Keys that only some measures have."""
    for name, endpoint in entries(study.endpoints):
        for key, measures in OF_MEASURES.items():
            if known(getattr(endpoint, key, None), endpoint.measure) and endpoint.measure not in measures:
                faults.add(f"endpoints.{name}.{key}", f"goes with {' and '.join(measures)}, not `{endpoint.measure}`")


def gate_rules(study: Study, key: str, gate: Gate, faults: Faults) -> None:
    """A gate reads an endpoint that has data of its form."""
    among(f"{key}.endpoint", gate.endpoint, study.endpoints, "endpoint", faults)
    endpoint = study.endpoints.get(gate.endpoint) if isinstance(study.endpoints, dict) else OPEN
    form = FORM.get(gate.statistic)
    if endpoint not in (None, OPEN) and form is not None and not isinstance(endpoint, form):
        faults.add(f"{key}.endpoint", f"`{gate.endpoint}` has no data that `{gate.statistic}` can be computed from")
    floor = getattr(gate, "native_floor", None)
    if isinstance(floor, dict):
        among(f"{key}.native_floor", list(floor), study.models, "model", faults)
    if isinstance(gate, PointGate) and gate.at_least is None and gate.at_most is None:
        faults.add(key, "has neither `at_least` nor `at_most`")
    if gate.statistic in (*ANSWER_GATES, *LOSS_GATES) and study.alpha is None:
        faults.add("alpha", f"is not there, and gate `{key.partition('.')[2]}` bounds at it")


def certificate_rules(study: Study, faults: Faults) -> None:
    """Gates of each objective, and levels that are shared among exactly the planned certificates."""
    made = study.certificates
    if made is None or made is OPEN:
        return
    among("certificates.comparisons", made.comparisons, study.comparisons, "comparison", faults)
    for name, gates in entries(made.objectives):
        among(f"certificates.objectives.{name}", gates, study.gates, "gate", faults)
        if not gates:
            faults.add(f"certificates.objectives.{name}", "names no gate")
    if isinstance(made.objectives, dict) and not made.objectives:
        faults.add("certificates.objectives", "names none")
    among("certificates.route", made.route, made.objectives, "objective", faults)
    level_rules(study, made, faults)


def level_rules(study: Study, made: Certificates, faults: Faults) -> None:
    """A level that is shared is alpha times the certificates that share it."""
    if OPEN in (made.slots, made.family_alpha, study.alpha):
        return
    if (made.slots == 1) != (made.family_alpha is None):
        faults.add("certificates.family_alpha", "goes with more than one slot, and more than one slot with it")
        return
    if made.family_alpha is None or study.alpha is None:
        return
    total = study.alpha * made.slots
    if not math.isclose(total, made.family_alpha, rel_tol=LEVELS):
        says = f"`alpha` {study.alpha:g} in {made.slots} slots is {total:g}"
        faults.add("certificates.family_alpha", f"is {made.family_alpha:g}, and {says}")
    if known(study.models, made.comparisons):
        planned = len(study.models or {}) * len(made.comparisons)
        if made.slots != planned:
            faults.add("certificates.slots", f"is {made.slots}, and {planned} certificates share the level")


def contrast_rules(study: Study, faults: Faults) -> None:
    """Direct comparisons on every model."""
    for name, contrast in entries(study.contrasts):
        key = f"contrasts.{name}"
        among(f"{key}.endpoint", contrast.endpoint, study.endpoints, "endpoint", faults)
        among(f"{key}.comparisons", contrast.comparisons, study.comparisons, "comparison", faults)
        if known(contrast.family_size, contrast.comparisons, study.models):
            planned = len(contrast.comparisons) * len(study.models or {})
            if contrast.family_size != planned:
                faults.add(f"{key}.family_size", f"is {contrast.family_size}, and {planned} comparisons are planned")
        if known(contrast.test) and (contrast.test == "centered-bootstrap") != (contrast.p_formula is not None):
            faults.add(f"{key}.p_formula", "goes with a resampling test, and a resampling test with it")


def timing_rules(study: Study, timing: Timing, faults: Faults) -> None:
    """Arms, loads, family and orders of the blocks."""
    among("timing.workloads", timing.workloads, study.workloads, "workload", faults)
    among("timing.arms", timing.arms, study.arms, "arm", faults)
    among("timing.family", timing.family, study.comparisons, "comparison", faults)
    if known(timing.family, timing.family_size) and len(timing.family) != timing.family_size:
        faults.add("timing.family_size", f"is {timing.family_size}, and the family has {len(timing.family)} members")
    if known(timing.family, timing.arms):
        for place, name in enumerate(timing.family):
            pair = dict(entries(study.comparisons)).get(name)
            if pair is not None:
                where = f"timing.family[{place}]"
                among(where, pair.candidate, timing.arms, "timed arm", faults)
                among(where, pair.control, timing.arms, "timed arm", faults)
    decides = timing.family is OPEN or bool(timing.family)
    for name in ("alpha", "screen_ratio"):
        if decides and getattr(timing, name) is None:
            faults.add(f"timing.{name}", "is null, and the family is judged by it")
    order_rules(timing, faults)
    made = timing.conditions
    if made not in (None, OPEN) and known(made.valid_blocks, timing.blocks) and made.valid_blocks > timing.blocks:
        faults.add("timing.conditions.valid_blocks", f"is {made.valid_blocks}, and {timing.blocks} blocks are planned")


def order_rules(timing: Timing, faults: Faults) -> None:
    """Every block runs each arm once."""
    if isinstance(timing.orders, str):
        if timing.orders != "williams":
            faults.add("timing.orders", f"is `{timing.orders}`, allowed is `williams` or the order of every block")
        return
    if not known(timing.orders, timing.arms):
        return
    if known(timing.blocks) and len(timing.orders) != timing.blocks:
        faults.add("timing.orders", f"has {len(timing.orders)} orders for {timing.blocks} blocks")
    for block, order in enumerate(timing.orders):
        if order is OPEN:
            continue
        if sorted(map(str, order)) != sorted(map(str, timing.arms)):
            allowed = f"allowed is each of {', '.join(timing.arms)} once"
            faults.add(f"timing.orders[{block}]", f"runs {', '.join(map(str, order))}; {allowed}")


def stage_rules(study: Study, faults: Faults) -> None:
    """Stop rules name stages, and only later ones."""
    if not isinstance(study.stops, list) or not isinstance(study.stages, list):
        return
    for place, stop in enumerate(study.stops):
        if stop is OPEN:
            continue
        among(f"stops[{place}].after", stop.after, study.stages, "stage", faults)
        among(f"stops[{place}].gates_off", stop.gates_off, study.stages, "stage", faults)
        if not known(stop.after, stop.gates_off):
            continue
        order = {name: index for index, name in enumerate(study.stages)}
        early = [name for name in stop.gates_off if order.get(name, len(order)) <= order.get(stop.after, -1)]
        if early:
            faults.add(f"stops[{place}].gates_off", f"`{early[0]}` does not come after `{stop.after}`")
    if study.memory not in (None, OPEN):
        among("memory.exempt", study.memory.exempt, study.stages, "stage", faults)


def expectation_rules(study: Study, faults: Faults) -> None:
    """Expectations speak of what is planned."""
    units = words(study.models, study.workloads, study.endpoints, study.contrasts)
    units += words(study.certificates.objectives) if study.certificates not in (None, OPEN) else []
    for unit, verdicts in entries(study.expected):
        for part in unit.split(":"):
            among(f"expected.{unit}", part, units, "model, workload, endpoint, objective or contrast", faults)
        allowed = words(study.comparisons, study.gates)
        for name, _ in entries(verdicts):
            among(f"expected.{unit}.{name}", name, allowed, "comparison or gate", faults)


def words(*sections: Any) -> list[str]:
    """Names of the members of sections."""
    return [str(name) for section in sections if isinstance(section, dict) for name in section]


def unprinted_rules(body: Any, missing: Iterable[str], faults: Faults) -> None:
    """`unprinted` names keys of the study, and every key without a value is in it."""
    reasons = body.get("unprinted") if isinstance(body, dict) else None
    if not isinstance(reasons, dict):
        return
    for key in reasons:
        if not stands(body, str(key)):
            faults.add("unprinted", f"`{key}` is no key of this study")
    for key in missing:
        if key not in reasons:
            faults.add(key, "is `???`, and `unprinted` does not say why it has no default")


def stands(body: Any, key: str) -> bool:
    """Whether a dotted key is there."""
    for word in key.split("."):
        if not isinstance(body, dict) or word not in body:
            return False
        body = body[word]
    return True
