"""What the stages of the decode workflow can carry out of a study, said before hours of measuring.

They serve one reference backend: retrieval, arithmetic and prediction loss at one length each, arms that are recipes of
kassay.kv.recipe, gates on answers and on prediction loss, one timed load named `timed`, and a sweep.
"""

from kassay.errors import KassayError
from kassay.kv.recipe import BITS, SIXTEEN, recipe_named
from kassay.study.reading import OPEN
from kassay.study.rules import entries
from kassay.study.shape import Arm, Study

WORKFLOW = "decode"
ENDPOINTS = ("retrieval", "arithmetic", "nll")
STATISTICS = ("gross-loss", "net-change", "relative-nll", "nll-difference")
SECTIONS = ("split", "seed", "batch", "answer_cap_tokens", "calibration", "certificates", "timing", "sweep")
GENERATOR = "pcg64"
TIMED = "timed"


def faults(study: Study) -> dict[str, str]:
    """Key -> why the decode workflow cannot do it."""
    needed = f"is not there, and workflow `{WORKFLOW}` needs it"
    found = {name: needed for name in SECTIONS if getattr(study, name) is None}
    measures = {name: getattr(made, "measure", name) for name, made in entries(study.endpoints)}
    if measures != {name: name for name in ENDPOINTS}:
        found["endpoints"] = f"workflow `{WORKFLOW}` measures {', '.join(ENDPOINTS)}, each under its own name"
    for name, gate in entries(study.gates):
        if gate.statistic not in STATISTICS:
            found[f"gates.{name}.statistic"] = f"workflow `{WORKFLOW}` computes {', '.join(STATISTICS)}"
        elif getattr(gate, "generator", GENERATOR) not in (GENERATOR, OPEN):
            found[f"gates.{name}.generator"] = f"workflow `{WORKFLOW}` draws with `{GENERATOR}`"
    made = study.certificates
    if made not in (None, OPEN) and made.route is None and made.objectives is not OPEN and len(made.objectives) > 1:
        found["certificates.route"] = f"workflow `{WORKFLOW}` times what one of the objectives certifies; name it"
    if study.timing not in (None, OPEN) and study.timing.workloads not in ([TIMED], OPEN):
        found["timing.workloads"] = f"workflow `{WORKFLOW}` times one load, `{TIMED}`"
    for name, arm in entries(study.arms):
        if fault := arm_fault(name, arm):
            found[f"arms.{name}"] = fault
    return found


def arm_fault(name: str, arm: Arm) -> str:
    """Why an arm is not the recipe of its name; empty if it is."""
    try:
        recipe = recipe_named(name)
    except KassayError as error:
        return str(error)
    scales = "prebias" if recipe.prebias else recipe.policy
    for word, given, stored in (("keys", arm.keys, recipe.key_format), ("values", arm.values, recipe.value_format)):
        allowed = SIXTEEN if BITS[stored] == 16 else (stored,)
        if given is not OPEN and given not in allowed:
            return f"its {word} are `{given}`, and recipe `{name}` stores {' or '.join(allowed)}"
    if arm.scales not in (scales, OPEN):
        return f"its scales are `{arm.scales}`, and those of recipe `{name}` are `{scales}`"
    return ""
