"""What a stage is given for the fused backend: weights by its params, their scales, prompts, and a record of what runs.

Axes: B requests, T tokens.

    backend: {engine: fused, weights: drawn | shipped | given, geometry: qwen3-8b, layers: null, compute: fp16, gpus: 1}

Drawn weights take a geometry by name, or its first layers; `shipped` and `given` read the stage's input `model`, the
first after its digests were compared. Drawn weights fold their own fixed scales (kassay.backend.fused.folded_scales); a
model's come from its calibration.
"""

from importlib.metadata import version

import torch

from kassay.backend import fused, fused_weights
from kassay.backend.fused_weights import Weights
from kassay.backend.prompts import check_prompts
from kassay.kinds.backend import FusedBackend
from kassay.stage import Stage, Unmet

COMPUTE = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
DRAWN, SHIPPED = "drawn", "shipped"


def weights_of(stage: Stage) -> Weights:
    """The weights that a stage asks for, and a record of them. Raises Unmet where there is no GPU."""
    asked = stage.params["backend"]
    device = device_of(asked["gpus"])
    torch.set_grad_enabled(False)
    torch.set_num_threads(stage.cpus)
    compute = COMPUTE[asked["compute"]]
    if asked["weights"] == DRAWN:
        weights = fused_weights.drawn(asked["geometry"], compute, device, layers=asked["layers"])
    else:
        if asked["weights"] == SHIPPED:
            from kassay.backend import reference

            reference.check_files(stage.inputs["model"])
        weights = fused_weights.read(stage.inputs["model"], compute, device)
    stage.append(record_of(stage, weights))
    return weights


def device_of(gpus: int) -> torch.device:
    """The first granted GPU, or the processor where Triton interprets. Raises Unmet for neither."""
    if not gpus:
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise Unmet(f"a GPU is asked for, and torch {torch.__version__} of this stack sees none")
    return torch.device("cuda", 0)


def record_of(stage: Stage, weights: Weights) -> FusedBackend:
    """What runs."""
    geometry, device = weights.geometry, weights.embedding.device
    own = ("family", "layers", "hidden", "intermediate", "query_heads", "kv_heads", "head_dim", "vocabulary")
    return FusedBackend(
        model=stage.params["model"],
        model_sha256=None if weights.drawn else stage.input_sha256("model"),
        drawn=weights.drawn,
        **{name: getattr(geometry, name) for name in own},
        device=torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu, interpreted",
        compute_dtype=str(weights.embedding.dtype),
        torch=torch.__version__,
        triton=version("triton"),
        parameters=sum(one.numel() for one in weights.tensors()),
    )


def scales_of(stage: Stage, weights: Weights) -> dict[str, list[float]] | None:
    """Fixed scales: a model's from its calibration, drawn weights' from one drawn prompt."""
    if weights.drawn:
        return fused.folded_scales(weights)
    from kassay.backend import inputs

    return inputs.scales_of(stage)


def prompts_of(weights: Weights, batch: int, tokens: int, seed: int) -> torch.Tensor:
    """ids_BT of different prompts: documents of the development split; drawn token ids for drawn weights."""
    if weights.drawn:
        return drawn_prompts(weights.geometry.vocabulary, batch, tokens, seed)
    from kassay.backend import workload

    return workload.speed_prompts(batch, tokens, seed)


def drawn_prompts(vocabulary: int, batch: int, tokens: int, seed: int) -> torch.Tensor:
    """ids_BT that differ and share no page. Raises KassayError where they do not."""
    generator = torch.Generator().manual_seed(seed)
    ids_BT = torch.randint(vocabulary, (batch, tokens), generator=generator)
    check_prompts(ids_BT.tolist(), tokens)
    return ids_BT
