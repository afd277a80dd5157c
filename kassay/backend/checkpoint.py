"""The checkpoint that a stage was given: its model in the study's compute type on its device, and its text.

    backend: {checkpoint: shipped | given, compute: fp32 | fp16 | bf16, gpus: 0 | 1}     of a stage's params

`shipped` is one of data/models: its files are compared with digests.json beside it, and a token is a character. `given`
is any folder that transformers reads: its identity is the digest of the input, which the driver took and takes again
when the stage has ended (kassay.ending); nothing of its own code is run. A stage without `backend` has the shipped
models in FP32 on the processor.

On a GPU matrix products of FP32 are FP32's, no TF32 and no three of them in its place; sums of 16-bit products are kept
in FP32; torch's deterministic algorithms are asked for where there are any.
"""

import os
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from kassay.backend import reference, structure, text
from kassay.backend.structure import ModelError
from kassay.backend.text import Characters, Text
from kassay.kinds.backend import BackendRecord
from kassay.stage import Stage, Unmet

COMPUTE = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
SHIPPED, GIVEN = "shipped", "given"
WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"  # cuBLAS adds up in one order only with workspaces of a fixed size
FIXED_WORKSPACES = ":4096:8"


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A loaded model and how texts become its tokens."""

    model: Any
    text: Text
    device: torch.device
    compute: str  # fp32, fp16 or bf16

    def rows(self, rows: Iterable[tuple[int, ...]]) -> torch.Tensor:
        """ids_BT of equally long rows, on the model's device."""
        return torch.tensor(list(rows), device=self.device)

    def check_length(self, tokens: int) -> None:
        """Raise ModelError if the model has no positions for so many tokens."""
        most = getattr(structure.text_config(self.model), "max_position_embeddings", None)
        if most is not None and tokens > most:
            raise ModelError(f"the model has {most} positions, and {tokens} tokens are asked for")


def of_stage(stage: Stage) -> Checkpoint:
    """The stage's input `model`, loaded as its params say.

    Raises ModelError for a checkpoint that is not what it should be or that recipes do not cover, Unmet for a GPU that
    the stack's torch does not see and for a tokenizer that is not there.
    """
    directory, asked = stage.inputs["model"], stage.params.get("backend")
    if asked is None:
        model = reference.load(directory, stage.cpus)
        return Checkpoint(model=model, text=Characters(), device=torch.device("cpu"), compute="fp32")
    if "engine" in asked:
        weights = "drawn weights answer nothing" if asked.get("weights") == "drawn" else "it serves stages of speed"
        raise ModelError(f"backend `{asked['engine']}` is not for this stage: {weights}, and this stage asks a model")
    device, compute = device_of(asked["gpus"], asked["compute"]), asked["compute"]
    if asked["checkpoint"] == SHIPPED:
        model, words = reference.load(directory, stage.cpus, COMPUTE[compute]), Characters()
        made = Checkpoint(model=model.to(device), text=words, device=device, compute=compute)
    else:
        made = given(directory, stage.cpus, device, compute)
    stage.append(record_of(stage, made))
    return made


def given(directory: Path, threads: int, device: torch.device, compute: str) -> Checkpoint:
    """A checkpoint that is not ours. What its configuration alone can refuse is refused before weights are read."""
    config = config_of(directory)
    structure.geometry_of(SimpleNamespace(config=config))
    words = text.of_folder(directory, ends_of(directory, config))
    model = reference.read(directory, threads, COMPUTE[compute]).to(device)
    return Checkpoint(model=model, text=words, device=device, compute=compute)


def config_of(directory: Path) -> Any:
    """The configuration of a checkpoint. Raises ModelError if transformers itself has no model for it."""
    from transformers import AutoConfig

    if not (directory / "config.json").is_file():
        raise ModelError(f"{directory} has no config.json: it is no folder of a transformers checkpoint")
    try:
        return AutoConfig.from_pretrained(directory, local_files_only=True, trust_remote_code=False)
    except (OSError, ValueError, KeyError) as error:
        raise ModelError(f"{directory.name}: transformers cannot read its config.json: {error}") from error


def ends_of(directory: Path, config: Any) -> set[int]:
    """Tokens that end a text, as the checkpoint's own generation settings say, else its configuration."""
    from transformers import GenerationConfig

    own = (directory / "generation_config.json").is_file()
    source = GenerationConfig.from_pretrained(directory, local_files_only=True) if own else config
    found = getattr(source, "eos_token_id", None)
    return set(found or ()) if isinstance(found, list | None) else {int(found)}


def device_of(gpus: int, compute: str) -> torch.device:
    """The processor, or the first of the granted GPUs. Raises Unmet if the stack's torch sees none."""
    if not gpus:
        return torch.device("cpu")
    os.environ.setdefault(WORKSPACE, FIXED_WORKSPACES)
    if not torch.cuda.is_available():
        raise Unmet(f"a GPU is asked for, and torch {torch.__version__} of this stack sees none")
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    torch.backends.cuda.enable_cudnn_sdp(False)
    if compute == "fp32":  # the fused kernel multiplies FP32 as three products of TF32
        torch.backends.cuda.enable_mem_efficient_sdp(False)
    torch.use_deterministic_algorithms(True, warn_only=True)
    warnings.filterwarnings("once", message=".*does not have a deterministic implementation.*")
    return torch.device("cuda", 0)


def device_name(device: torch.device) -> str:
    """The device as torch names it."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"


def record_of(stage: Stage, made: Checkpoint) -> BackendRecord:
    """What runs: requested is not effective, so the model is asked."""
    held = next(iter(made.model.parameters()))
    return BackendRecord(
        model=stage.params["model"],
        architecture=type(made.model).__name__,
        model_sha256=stage.input_sha256("model"),
        device=device_name(held.device),
        compute_dtype=str(held.dtype),
        torch=torch.__version__,
        text=made.text.name,
        parameters=sum(one.numel() for one in made.model.parameters()),
    )
