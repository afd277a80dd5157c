"""What probes of precision measured, arm by arm and text by text, and what follows; descriptive, no verdict."""

from dataclasses import dataclass
from typing import ClassVar

from kassay.combination import given_only, rule, together
from kassay.record import Record, doc


@dataclass(frozen=True, kw_only=True)
class ProbeArm(Record):
    """One planned arm of a probe on one model, whether the model can have it or not."""

    schema: ClassVar[str] = "kassay.probe_arm/1"

    model: str = doc("Name of the model.")
    probe: str = doc("Name of the probe: `screen`, `asymmetry`, `layers` or `prebias`.")
    arm: str = doc("Name of the arm, unique in its probe.")
    recipe: str = doc("Recipe of all attention layers but `layer`.")
    layer: int | None = doc("Attention layer from 0 that has another recipe, null if none has.")
    layer_recipe: str | None = doc("Recipe of that layer, null if none has another.")
    eligible: bool = doc("Whether the model can have it.")
    reason: str = doc("Why not, empty if it can.")

    combinations = (together("layer", "layer_recipe"), given_only("eligible", (False,), "reason"))


@dataclass(frozen=True, kw_only=True)
class ProbeText(Record):
    """One arm on one document: loss and logits of its continuation beside those of the native cache."""

    schema: ClassVar[str] = "kassay.probe_text/1"

    model: str = doc("Name of the model.")
    probe: str = doc("Name of the probe.")
    arm: str = doc("Name of the arm.")
    item_id: str = doc("Id of the document in its split.")
    item_digest: str = doc("SHA-256 of the document.")
    loss_nats: list[float] = doc("Negative log-likelihood of each target token in nats, in order, 0 or more.")
    logit_error: float = doc("Mean absolute difference to the native logits over targets and vocabulary.")
    largest_logit_error: float = doc("Largest absolute difference to a native logit.")
    agreed: int = doc("Targets at which the most probable token is the native one.")

    combinations = (
        rule("`agreed` is at most the number of `loss_nats`", lambda text: text.agreed <= len(text.loss_nats)),
    )


@dataclass(frozen=True, kw_only=True)
class ProbeFinding(Record):
    """One number that follows from the records of a probe."""

    schema: ClassVar[str] = "kassay.probe_finding/1"

    model: str = doc("Name of the model.")
    probe: str = doc("Name of the probe.")
    arm: str = doc("Name of the arm, or of the pair of arms that the number compares.")
    quantity: str = doc("What the number is, such as `relative_loss_change`; docs/probes.md has the formulas.")
    value: float | None = doc("The number, null where it cannot be computed.")
    reason: str = doc("Why it cannot be computed, empty if it can.")
    label: str = doc("The class that a stated threshold gives it, empty where there is none.")

    combinations = (given_only("reason", ("",), "value"),)
