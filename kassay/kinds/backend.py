"""What a model stage ran on: the device and the types that it found, not those that it was asked for."""

from dataclasses import dataclass
from typing import ClassVar

from kassay.record import Record, doc


@dataclass(frozen=True, kw_only=True)
class BackendRecord(Record):
    """The loaded model of one stage."""

    schema: ClassVar[str] = "kassay.backend/1"

    model: str = doc("Name of the model in the study.")
    architecture: str = doc("transformers' class of the model.")
    model_sha256: str = doc("Digest of the checkpoint's folder, which is its identity.")
    device: str = doc("Name of the GPU as torch tells it, or `cpu`.")
    compute_dtype: str = doc("dtype of the loaded weights, in which the model computes.")
    torch: str = doc("Version of torch.")
    text: str = doc("`characters`, or the class of the checkpoint's own tokenizer.")
    parameters: int = doc("Number of parameters, tied ones once.")
