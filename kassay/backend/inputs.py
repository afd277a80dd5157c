"""What every model stage is given beside its model: calibrated scales, and proof of what they were folded over."""

from collections.abc import Iterable

from kassay.kv import calibrate
from kassay.kv.cache import Scales
from kassay.stage import Stage


def scales_of(stage: Stage) -> Scales:
    """The scales of the input `scales`. Raises KassayError if another model, weight or 16-bit format made them."""
    return calibrate.own_scales(
        stage.json_input("scales"), model_sha256=stage.input_sha256("model"), sixteen=stage.params["sixteen"]
    )


def check_unseen(stage: Stage, split: str, contents: Iterable[str]) -> dict[str, int]:
    """Texts per split. Raises KassayError if a text of `split` was among those that scales were folded or tried on."""
    known: dict[str, list[str]] = stage.json_input("scales")["contents"]
    return calibrate.check_disjoint({name: texts for name, texts in known.items() if name != split} | {split: contents})
