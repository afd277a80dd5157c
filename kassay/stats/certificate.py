"""Does a candidate preserve what its controls do? From the gates of one objective to a certificate, and on.

A certificate is every planned gate of one objective for one candidate against one control. A candidate qualifies for an
objective only if it is certified against *every* planned control. Both take the worst of their parts:
    pass            all pass
    fails           one violation at least is established
    ineligible      none is, and a control is below its floor
    unestablished   else: a bound misses its margin, which is no proof of harm
Which gates, controls and levels those are is the plan's. Gates or certificates that are not exactly the planned ones
raise InvalidData: a part that is missing is no pass.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kassay.stats import InvalidData
from kassay.stats.gates import GateResult

VERDICTS = ("pass", "fails", "unestablished", "ineligible")  # of gates, certificates and qualifications alike


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """The gates of one objective for one candidate against one control, all that were planned."""

    objective: str  # name of the objective
    control: str  # arm compared with
    candidate: str  # arm under test
    gates: tuple[GateResult, ...]  # in the plan's order
    verdict: str  # `pass`, `fails`, `unestablished` or `ineligible`
    failed_gates: tuple[str, ...]  # gates whose violation is established
    open_gates: tuple[str, ...]  # gates that are unestablished or ineligible

    def __post_init__(self) -> None:
        if not self.gates:
            raise InvalidData(f"the certificate of `{self.candidate}` has no gate: this is a bug")
        decided = _certificate_verdict(self.gates)
        if (self.verdict, self.failed_gates, self.open_gates) != decided:
            raise InvalidData(f"the certificate of `{self.candidate}` differs from its gates: this is a bug")


@dataclass(frozen=True, kw_only=True)
class Qualification:
    """What a candidate is certified for against all its planned controls."""

    objective: str  # name of the objective
    candidate: str  # arm under test
    controls: tuple[str, ...]  # planned controls, in the plan's order
    verdicts: tuple[str, ...]  # verdict of the certificate against each
    verdict: str  # `pass` only if every one is

    def __post_init__(self) -> None:
        if len(self.controls) != len(self.verdicts) or self.verdict != worst(self.verdicts):
            raise InvalidData(f"the qualification of `{self.candidate}` differs from its certificates: this is a bug")


def certificate(
    gates: Sequence[GateResult], *, objective: str, control: str, candidate: str, planned_gates: Sequence[str]
) -> Certificate:
    """The certificate over every planned gate of one candidate against one control.

    Raises InvalidData unless the gates are exactly the planned ones, once each, of these two arms and at one level.
    """
    if not planned_gates or [gate.gate for gate in gates] != list(planned_gates):
        raise InvalidData(
            f"the gates of `{candidate}` are {[gate.gate for gate in gates]}, "
            f"allowed are the planned {list(planned_gates)} in their order, at least one"
        )
    if len(set(planned_gates)) != len(planned_gates):
        raise InvalidData(f"the planned gates {list(planned_gates)} name one twice")
    for gate in gates:
        if (gate.control, gate.candidate) != (control, candidate):
            raise InvalidData(
                f"gate `{gate.gate}` compares `{gate.candidate}` with `{gate.control}`, "
                f"allowed: `{candidate}` with `{control}`"
            )
    if len(levels := {gate.alpha for gate in gates}) > 1:
        raise InvalidData(f"the gates of `{candidate}` stand at the levels {sorted(levels)}, allowed is one")
    verdict, failed, unsettled = _certificate_verdict(gates)
    return Certificate(
        objective=objective,
        control=control,
        candidate=candidate,
        gates=tuple(gates),
        verdict=verdict,
        failed_gates=failed,
        open_gates=unsettled,
    )


def qualification(
    verdicts: Mapping[str, str], *, objective: str, candidate: str, planned_controls: Sequence[str]
) -> Qualification:
    """What certificates against each control (control -> verdict) make of a candidate.

    Raises InvalidData unless there is one for every planned control, and for no other.
    """
    if not planned_controls or sorted(verdicts) != sorted(planned_controls):
        raise InvalidData(
            f"`{candidate}` has certificates for `{objective}` against {sorted(verdicts)}, "
            f"allowed is one against each of {sorted(planned_controls)}, at least one"
        )
    ordered = tuple(verdicts[control] for control in planned_controls)
    return Qualification(
        objective=objective,
        candidate=candidate,
        controls=tuple(planned_controls),
        verdicts=ordered,
        verdict=worst(ordered),
    )


def worst(verdicts: Iterable[str]) -> str:
    """The verdict over parts; raises InvalidData for a word that is no verdict of a gate, or for no parts."""
    found = set(verdicts)
    if not found or not found <= set(VERDICTS):
        raise InvalidData(f"the parts say {sorted(found)}, allowed are {', '.join(VERDICTS)}, at least one part")
    for word in ("fails", "ineligible", "unestablished"):
        if word in found:
            return word
    return "pass"


def _certificate_verdict(gates: Sequence[GateResult]) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """The verdict over gates, those that fail, and those that are open."""
    failed = tuple(gate.gate for gate in gates if gate.verdict == "fails")
    unsettled = tuple(gate.gate for gate in gates if gate.verdict in ("unestablished", "ineligible"))
    return worst(gate.verdict for gate in gates), failed, unsettled
