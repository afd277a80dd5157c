"""What probes of precision say about a model: changes, classes, ratios, recoveries. Descriptive, without a test.

With mean loss L (nats a target, all texts alike, native L0), and e the mean absolute logit error of a text:

    relative_loss_change = L / L0 - 1                    perplexity_ratio = exp(L - L0)
    agreement            = share of targets whose most probable token is the native one
    error_ratio          = mean over texts of e(INT6 keys) / e(INT8 keys);  flagged above TAU
    recovery             = (change of the broken arm - change of the repaired one) / change of the broken arm
    concentration        = largest share of one layer in the sum of all layers' losses that rise by its demotion

Classes of an arm: catastrophic if the loss changes by more than 5 %, perplexity by more than a factor of 2, or
agreement is below 0.80; else material from 0.5 % or below 0.98; else tolerant. Recoveries are substantial from 0.70
and negligible up to 0.30. Source: the thresholds of the field's atlas of formats and its screen, tau = 3.0.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kassay.stats import InvalidData

TAU = 3.0
CATASTROPHIC = {"loss": 0.05, "perplexity": 2.0, "agreement": 0.80}
MATERIAL = {"loss": 0.005, "agreement": 0.98}
SUBSTANTIAL, NEGLIGIBLE = 0.70, 0.30


@dataclass(frozen=True, kw_only=True)
class Change:
    """An arm beside the native one, over the same texts."""

    texts: int
    targets: int
    relative_loss_change: float
    perplexity_ratio: float
    agreement: float
    logit_error: float  # mean over texts
    label: str  # `tolerant`, `material` or `catastrophic`


def change(
    native: Sequence[Sequence[float]], arm: Sequence[Sequence[float]], agreed: Sequence[int], errors: Sequence[float]
) -> Change:
    """Compare losses (nats, a list a text) of an arm with the native ones.

    Raises InvalidData for texts that do not pair, and for losses that are not finite or native ones of 0 in all.
    """
    if not native or [len(one) for one in native] != [len(one) for one in arm] or len(agreed) != len(native):
        raise InvalidData("the arms do not hold the same texts")
    base, other = (np.concatenate([np.asarray(text, np.float64) for text in texts]) for texts in (native, arm))
    if not (np.isfinite(base).all() and np.isfinite(other).all()) or not base.sum() > 0:
        raise InvalidData("losses are finite, and the native ones not all 0")
    relative = float(other.sum() / base.sum() - 1)
    ratio, share = math.exp(float(other.mean() - base.mean())), sum(agreed) / len(base)
    return Change(
        texts=len(native),
        targets=len(base),
        relative_loss_change=relative,
        perplexity_ratio=ratio,
        agreement=share,
        logit_error=float(np.mean(np.asarray(errors, np.float64))),
        label=label_of(relative, ratio, share),
    )


def label_of(relative_loss_change: float, perplexity_ratio: float, agreement: float) -> str:
    """The class of an arm."""
    if (
        relative_loss_change > CATASTROPHIC["loss"]
        or perplexity_ratio > CATASTROPHIC["perplexity"]
        or agreement < CATASTROPHIC["agreement"]
    ):
        return "catastrophic"
    return "material" if relative_loss_change >= MATERIAL["loss"] or agreement < MATERIAL["agreement"] else "tolerant"


def error_ratio(coarse: Sequence[float], fine: Sequence[float]) -> tuple[float, str]:
    """Mean ratio of logit errors, text by text, and whether it is `flagged` or `not flagged`.

    Raises InvalidData where an error is not finite or a fine one is 0: then the statistic cannot be computed.
    """
    if not coarse or len(coarse) != len(fine):
        raise InvalidData("the two arms do not hold the same texts")
    over, under = np.asarray(coarse, np.float64), np.asarray(fine, np.float64)
    if not (np.isfinite(over).all() and np.isfinite(under).all() and (under > 0).all()):
        raise InvalidData("logit errors are finite, and those of the finer keys above 0")
    ratio = float((over / under).mean())
    return ratio, "flagged" if ratio > TAU else "not flagged"


def recovery(broken: float, repaired: float) -> tuple[float, str]:
    """Which part of a change (of loss, or of a share of answers) a repair takes back, and its class.

    Raises InvalidData where the broken arm loses less than a material change: a part of noise says nothing.
    """
    if not broken >= MATERIAL["loss"]:
        raise InvalidData(f"the broken arm loses {broken:.2g}, less than {MATERIAL['loss']:g}: nothing to recover")
    part = (broken - repaired) / broken
    return part, "substantial" if part >= SUBSTANTIAL else "negligible" if part <= NEGLIGIBLE else "partial"


def concentration(changes: Sequence[float]) -> tuple[float, int]:
    """Largest share of one layer in the sum of the changes above 0, and which layer it is.

    Raises InvalidData where all of them together are less than a material change.
    """
    risen = np.maximum(np.asarray(changes, np.float64), 0.0)
    if not risen.sum() >= MATERIAL["loss"]:
        raise InvalidData(f"all layers together cost {risen.sum():.2g}, less than {MATERIAL['loss']:g}")
    worst = int(risen.argmax())
    return float(risen[worst] / risen.sum()), worst
