"""What the stages of the native workflow can carry out of a study, said before a GPU is asked.

They run drawn weights at one geometry on the fused backend: the oracle on kernels and routes, memory, one timed load, a
sweep. Nothing is answered, so there are no gates, and no objective can be certified.
"""

from collections.abc import Iterable

from kassay.errors import KassayError
from kassay.kv.recipe import BITS, SIXTEEN, Recipe, recipe_named
from kassay.kv.support import whole_pages
from kassay.study.fused import Fused, SharedPrefix
from kassay.study.reading import OPEN
from kassay.study.rules import entries, known
from kassay.study.shape import Arm, Study

WORKFLOW = "native"
SECTIONS = ("seed", "comparisons", "workloads", "timing", "sweep", "memory", "engine", "fused")
TIMED = "timed"
HEADS = 4  # numbers that say what drawn operands have


def faults(study: Study) -> dict[str, str]:
    """Key -> why the native workflow cannot do it."""
    needed = f"is not there, and workflow `{WORKFLOW}` needs it"
    found = {name: needed for name in SECTIONS if getattr(study, name) is None}
    if study.gates or study.certificates:
        found["gates"] = f"workflow `{WORKFLOW}` draws its weights, and drawn weights answer nothing"
    if study.timing not in (None, OPEN) and study.timing.workloads not in ([TIMED], OPEN):
        found["timing.workloads"] = f"workflow `{WORKFLOW}` times one load, `{TIMED}`"
    fused = study.fused
    if fused is None or fused is OPEN:
        return found
    found |= {f"fused.{key}": text for key, text in of_section(study, fused).items()}
    shared = fused.prefix.arms if fused.prefix not in (None, OPEN) else None
    for name, arm in entries(study.arms):
        if shared is None:
            own, once = name, None
        elif name in shared:
            own, once = shared[name].own, shared[name].prefix
        else:
            found[f"arms.{name}"] = f"is no arm of `fused.prefix`, which has {', '.join(shared)}"
            continue
        if fault := arm_fault(arm, own, once):
            found[f"arms.{name}"] = fault
    return found


def of_section(study: Study, fused: Fused) -> dict[str, str]:
    """The same below `fused`."""
    found: dict[str, str] = {}
    if known(fused.held, study.arms) and known(fused.held.arms):
        if unknown := [name for name in fused.held.arms if name not in study.arms]:
            found["held.arms"] = f"`{unknown[0]}` is no arm, allowed are {', '.join(study.arms)}"
        if fused.held.output_tokens >= fused.held.context_tokens:
            found["held.output_tokens"] = "is all of a sequence or more"
    largest = study.sweep.largest_batch if study.sweep not in (None, OPEN) else OPEN
    if known(largest, fused.sweep) and known(*fused.sweep.batches) and max(fused.sweep.batches, default=0) != largest:
        found["sweep.batches"] = f"do not end at `sweep.largest_batch`, which is {largest}"
    if known(fused.oracle) and any(known(one) and len(one) != HEADS for one in fused.oracle.heads):
        found["oracle.heads"] = "has an entry that is not query heads, KV heads, head dim and page"
    found |= recipes_fault({"oracle.recipes": fused.oracle.recipes, "compiled.recipes": fused.compiled.recipes})
    if fused.prefix not in (None, OPEN):
        found |= {f"prefix.{key}": text for key, text in of_prefix(study, fused.prefix).items()}
    return found


def of_prefix(study: Study, prefix: SharedPrefix) -> dict[str, str]:
    """The same below `fused.prefix`."""
    found = recipes_fault(
        {
            f"arms.{name}.{part}": [getattr(arm, part)]
            for name, arm in entries(prefix.arms)
            for part in ("own", "prefix")
        }
    )
    if study.engine not in (None, OPEN) and prefix.page_tokens != study.engine.page_tokens:
        found["page_tokens"] = f"is {prefix.page_tokens}, and `engine.page_tokens` is {study.engine.page_tokens}"
    asked = [(None, prefix.positions), *((one[0], one[-1]) for one in prefix.positions_at if len(one) == 2)]
    try:
        for _, positions in asked:
            whole_pages(positions, prefix.page_tokens)
    except KassayError as error:
        found["positions"] = str(error)
    contexts = study.sweep.contexts_tokens if study.sweep not in (None, OPEN) else []
    if sorted(str(context) for context, _ in asked[1:]) != sorted(map(str, contexts)):
        found["positions_at"] = "does not name each of `sweep.contexts_tokens` once"
    elif any(positions >= (context or 0) for context, positions in asked[1:]):
        found["positions_at"] = "has a prefix that is all of its context"
    if study.memory not in (None, OPEN) and study.memory.equal_slots_blocks is not None:
        found["arms"] = "`memory.equal_slots_blocks` is asked for, and a shared prefix lies in blocks of its own: null"
    timed = study.timing.arms if study.timing not in (None, OPEN) and known(study.timing.arms) else []
    if copied := [name for name in timed if name in prefix.arms and prefix.arms[name].copied]:
        found[f"arms.{copied[0]}.copied"] = "is timed, and a prompt behind a copy is chunked prefill, not supported"
    return found


def recipes_fault(asked: dict[str, list[str]]) -> dict[str, str]:
    """Key -> the first of its recipes that there is none of."""
    found: dict[str, str] = {}
    for key, names in asked.items():
        if not known(names):
            continue
        for name in names:
            try:
                recipe_named(name)
            except KassayError as error:
                found.setdefault(key, str(error))
    return found


def arm_fault(arm: Arm, own: str, prefix: str | None) -> str:
    """Why an arm is not what its recipes store; empty if it is."""
    try:
        recipes: Iterable[Recipe] = [recipe_named(name) for name in (own, prefix) if name is not None]
    except KassayError as error:
        return str(error)
    for word, given in (("keys", arm.keys), ("values", arm.values)):
        stored = [one.key_format if word == "keys" else one.value_format for one in recipes]
        least = min(stored, key=BITS.__getitem__)  # of two recipes an arm is told by the narrower one
        allowed = SIXTEEN if BITS[least] == 16 else (least,)
        if given is not OPEN and given not in allowed:
            return f"its {word} are `{given}`, and what it stores is {' or '.join(allowed)}"
    policy = next((one.policy for one in recipes if one.policy != "none"), "none")
    if arm.scales not in (policy, OPEN):
        return f"its scales are `{arm.scales}`, and those of its recipe are `{policy}`"
    return ""
