"""What the float64 oracle found, case by case: clean ones that must be within, faults that must be caught."""

from dataclasses import dataclass
from typing import ClassVar

from kassay.combination import rule, together
from kassay.record import Record, doc


@dataclass(frozen=True, kw_only=True)
class OracleCase(Record):
    """One comparison of one layer of one recipe."""

    schema: ClassVar[str] = "kassay.oracle_case/1"

    model: str = doc("Name of the model.")
    recipe: str = doc("Name of the recipe.")
    layer: int = doc("Layer from 0.")
    case: str = doc(
        "`chunk`: the model's own pass over several tokens; `rotation`: the key bias as it is taken off; `replay`: "
        "sdpa on the stored operands; `paged-fresh`, `paged-decode`, `paged-mixed`: the same in pages, all tokens or "
        "the last one asking; `paged-moved`: other pages, another order of writing and of requests. Of our kernels, "
        "`kernel` and the heads and page of drawn operands, then `-stored` for what the writer left, `-1` and `-4` for "
        "attention in so many splits, `-page` and `-fault` for faults. Of a shared prefix beside own pages `cartridge` "
        "with the same, `-prompt` for fresh prompts behind it, `-frozen` for what it is afterwards, `-sharing` and "
        "`-refused` for faults."
    )
    mutation: str | None = doc("Name of the injected fault, null for a clean case.")
    quantity: str = doc(
        "`output`, `log_normalizer`, `codes`, `scales`, `key_offset`, `storage` (planes that share one), or `read`: "
        "what a model of 16 bits read of what is stored; of a fault the first that caught it, else `output`; "
        "`refusal` of what must be refused by name."
    )
    max_abs_error: float = doc("Largest absolute error; of codes and scales the number of differing elements.")
    relative_error: float = doc("Norm of the error over the reference's; of codes and scales the differing share.")
    tolerance: float = doc("Largest relative error that is within; 0 of codes and scales.")
    peak_error: float = doc("Largest absolute error over the reference's largest element; of bits the same share.")
    peak_tolerance: float = doc("Largest peak error that is within, derived from the operands; 0 of codes and scales.")
    within: bool = doc("Whether both errors are at most the tolerance; false for NaN and for another shape.")
    caught: bool | None = doc("Whether the fault was noticed, null for a clean case.")

    combinations = (
        together("mutation", "caught"),
        rule(
            "`within` is whether `relative_error` is at most `tolerance` and `peak_error` at most `peak_tolerance`",
            lambda case: (
                not case.within or (case.relative_error <= case.tolerance and case.peak_error <= case.peak_tolerance)
            ),
        ),
        rule(
            "`caught` is whether a fault is not `within`",
            lambda case: case.caught is None or case.caught != case.within,
        ),
    )
