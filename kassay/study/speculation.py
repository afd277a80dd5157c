"""What the stages of the speculation workflow can carry out of a study, said before anything is measured.

They serve the reference backend on one model: acceptance of n-gram drafts on a grid, timing blocks of four arms under
each load of the study, and rho of each load. Nothing is certified.
"""

from kassay.errors import KassayError
from kassay.kv.recipe import recipe_named
from kassay.study.decode import arm_fault
from kassay.study.drafts import Speculation
from kassay.study.reading import OPEN
from kassay.study.rules import entries, known
from kassay.study.shape import Study

WORKFLOW = "speculation"
SECTIONS = ("models", "seed", "calibration", "workloads", "timing", "speculation")


def faults(study: Study) -> dict[str, str]:
    """Key -> why the speculation workflow cannot do it."""
    needed = f"is not there, and workflow `{WORKFLOW}` needs it"
    found = {name: needed for name in SECTIONS if getattr(study, name) is None}
    if study.gates or study.certificates:
        found["gates"] = f"workflow `{WORKFLOW}` asks for speed and acceptance, and no item is answered"
    made = study.speculation
    if made is None or made is OPEN or not known(made.arms, made.composition, made.acceptance):
        return found
    for name, arm in entries(study.arms):
        if fault := arm_fault(made.arms.get(name, name), arm):
            found[f"arms.{name}"] = fault
    if study.timing not in (None, OPEN) and known(study.timing.arms):
        roles = list(vars(made.composition).values())
        if sorted(map(str, study.timing.arms)) != sorted(map(str, roles)):
            found["timing.arms"] = (
                f"are others than the roles of `speculation.composition`: {', '.join(map(str, roles))}"
            )
    for name, load in entries(study.workloads):
        if known(load.load) and (load.load != "batch" or load.requests is None or load.output_tokens is None):
            found[f"workloads.{name}"] = f"workflow `{WORKFLOW}` times batches of forced length"
    return found | {f"speculation.{key}": text for key, text in of_section(study, made).items()}


def of_section(study: Study, made: Speculation) -> dict[str, str]:
    """The same below `speculation`."""
    found: dict[str, str] = {}
    if known(made.shortest_ngram, made.longest_ngram) and made.shortest_ngram > made.longest_ngram:
        found["shortest_ngram"] = f"is {made.shortest_ngram}, and `longest_ngram` is {made.longest_ngram}"
    for arm, base in made.arms.items():
        if arm not in study.arms or base not in study.arms or base in made.arms:
            found[f"arms.{arm}"] = f"names `{base}`: allowed is an arm without drafts for one with drafts"
        elif fault := giving_back_fault(base):
            found[f"arms.{arm}"] = fault
    roles = made.composition
    wanted = {roles.speculative: roles.plain, roles.combined: roles.quantized}
    if made.arms != wanted:
        found["composition"] = "has roles that `arms` does not pair: speculative with plain, combined with quantized"
    asked = made.acceptance
    for recipe in asked.recipes if known(asked.recipes) else ():
        if fault := giving_back_fault(recipe):
            found.setdefault("acceptance.recipes", fault)
    batches = asked.batches if known(asked.batches, asked.requests) else []
    if uneven := [batch for batch in batches if batch is not OPEN and asked.requests % batch]:
        found["acceptance.batches"] = f"{uneven[0]} does not divide {asked.requests} requests"
    return found


def giving_back_fault(name: str) -> str:
    """Why a recipe cannot give rejected tokens back; empty if it can."""
    try:
        return recipe_named(name).giving_back_fault()
    except KassayError as error:
        return str(error)
