"""What was concluded: gates, certificates, timing contrasts and saturation fits, each with the numbers behind it."""

from dataclasses import dataclass
from typing import ClassVar

from kassay.combination import absent, as_long, given, given_only, one_of, ordered, rule, together
from kassay.kinds.words import (
    AS_EXPECTED,
    OF_ANSWERS,
    OF_LOSSES,
    OF_RATIOS,
    TESTED,
    VERDICTS,
    below_floor,
    bounds_say,
    is_part,
    worst,
)
from kassay.record import Record, doc


@dataclass(frozen=True, kw_only=True)
class GateRecord(Record):
    """One gate of one candidate against its control on one model."""

    schema: ClassVar[str] = "kassay.gate/2"

    model: str = doc("Name of the model.")
    gate: str = doc("Name of the gate in the study.")
    endpoint: str = doc("Name of the endpoint in the study.")
    statistic: str = doc("`gross loss rate`, `net change`, `relative mean nll` or `mean nll difference` (nats).")
    method: str = doc("How the bounds were computed.")
    decides: str = doc("`upper` or `lower`: the bound that is compared with the margin for a pass.")
    control: str = doc("Recipe compared against.")
    candidate: str = doc("Recipe that was judged.")
    n: int = doc("Paired items, all planned ones.")
    items_sha256: str = doc("Digest over the ids and digests of the paired items.")
    estimate: float = doc("Point estimate, a fraction, or nats.")
    lower: float = doc("One-sided lower bound at alpha, likewise.")
    upper: float = doc("One-sided upper bound at alpha, likewise.")
    alpha: float = doc("Error probability of each bound.")
    margin: float = doc("Largest upper bound that passes, or least lower bound (`decides`), frozen in the study.")
    losses: int | None = doc("Items that the control got right and the candidate wrong; null for nll.")
    gains: int | None = doc("Items that the control got wrong and the candidate right; null for nll.")
    power: float | None = doc(
        "Probability that the gate passes at the study's stated true rate; null for nll, or where none is stated."
    )
    true_rate: float | None = doc(
        "The true rate that the power was computed at: of losses, and for a net change of as many gains."
    )
    native_floor: float | None = doc("Least share of items that the control must answer; null for nll.")
    native_score: float | None = doc("Share of items that the control answered; null for nll.")
    draws: int | None = doc("Bootstrap resamples; null for a bound without resampling.")
    seed: int | None = doc("Seed of PCG64 that they were drawn with; null likewise.")
    control_outcomes: dict[str, int] | None = doc(
        "Answers of the control: correct, wrong, unreadable, truncated, error; null for nll."
    )
    candidate_outcomes: dict[str, int] | None = doc("Answers of the candidate, likewise.")
    remark: str = doc("That the arms were cut off unequally often, with the counts; empty if they were not.")
    unchanged: bool = doc("Whether candidate and control agree everywhere.")
    verdict: str = doc("`pass`, `fails`, `unestablished` or `ineligible`.")
    reason: str = doc("The verdict in words with its numbers.")

    combinations = (
        one_of("statistic", (*OF_ANSWERS, *OF_LOSSES)),
        one_of("decides", ("upper", "lower")),
        one_of("verdict", VERDICTS),
        given_only(
            "statistic", OF_ANSWERS, "losses", "gains", "native_score", "control_outcomes", "candidate_outcomes"
        ),
        given_only("statistic", OF_LOSSES, "draws", "seed"),
        absent("statistic", OF_LOSSES, "power", "true_rate", "native_floor"),
        together("power", "true_rate"),
        given("verdict", ("ineligible",), "native_floor"),
        ordered("lower", "upper"),
        rule(
            "`verdict` is `pass` where the bound that `decides` holds `margin`, `fails` where the other bound breaks "
            "it, `unestablished` where neither: of `lower` and `upper`",
            lambda gate: gate.verdict in ("ineligible", bounds_say(gate)),
        ),
        rule(
            "`verdict` is `ineligible` exactly where `native_score` is below `native_floor`",
            lambda gate: (gate.verdict == "ineligible") == below_floor(gate),
        ),
        rule(
            "`unchanged` has no `losses` and no `gains`",
            lambda gate: not gate.unchanged or not (gate.losses or gate.gains),
        ),
    )


@dataclass(frozen=True, kw_only=True)
class CertificateRecord(Record):
    """All gates of one objective for one candidate against one control on one model, and what the study expected."""

    schema: ClassVar[str] = "kassay.certificate/2"

    study: str = doc("Name of the study.")
    model: str = doc("Name of the model.")
    comparison: str = doc("Name of the comparison in the study.")
    objective: str = doc("Name of the objective in the study.")
    control: str = doc("Recipe compared against.")
    candidate: str = doc("Recipe that was judged.")
    gates: list[str] = doc("Gates that it asks for, all of which must hold.")
    alpha: float = doc("One-sided level of every bound in it.")
    family_alpha: float | None = doc("Level that the objective's certificates share; null: it stands for itself.")
    slots: int = doc("Certificates that share that level; none is ever dropped.")
    quality_sha256: str = doc("Digest of the file of raw records that it was judged on.")
    verdict: str = doc("`pass`, `fails`, `unestablished` or `ineligible`; computed without the expectation.")
    failed_gates: list[str] = doc("Gates whose violation is established.")
    open_gates: list[str] = doc("Gates whose bound misses the margin without an established violation, or floor.")
    expected: str | None = doc("Verdict that the study expects of a reproduction, null where it states none.")
    as_expected: bool | None = doc("Whether the verdict is the expected one, null where none is stated.")

    combinations = (
        one_of("verdict", VERDICTS),
        absent("verdict", ("pass",), "failed_gates", "open_gates"),
        given_only("verdict", ("fails",), "failed_gates"),
        given("verdict", ("unestablished", "ineligible"), "open_gates"),
        rule(
            "`failed_gates` and `open_gates` are different ones of `gates`",
            lambda made: is_part([*made.failed_gates, *made.open_gates], made.gates),
        ),
        AS_EXPECTED,
    )


@dataclass(frozen=True, kw_only=True)
class QualificationRecord(Record):
    """What a candidate is certified for on one model, against all its planned controls together."""

    schema: ClassVar[str] = "kassay.qualification/1"

    study: str = doc("Name of the study.")
    model: str = doc("Name of the model.")
    objective: str = doc("Name of the objective in the study.")
    candidate: str = doc("Recipe that was judged.")
    controls: list[str] = doc("Planned controls.")
    verdicts: list[str] = doc("Verdict of the certificate against each.")
    verdict: str = doc("`pass` only if every certificate passes; else the worst of their verdicts.")
    route: bool = doc("Whether later stages ask for this objective; frozen in the study.")

    combinations = (
        one_of("verdict", VERDICTS),
        as_long("controls", "verdicts"),
        rule("`verdict` is the worst of `verdicts`", lambda made: made.verdict == worst(made.verdicts)),
    )


@dataclass(frozen=True, kw_only=True)
class ContrastRecord(Record):
    """One timing comparison of the predeclared family."""

    schema: ClassVar[str] = "kassay.contrast/3"

    model: str = doc("Name of the model.")
    contrast: str = doc("Name of the comparison.")
    candidate: str = doc("Recipe in the ratio's numerator (its rate).")
    control: str = doc("Recipe in the ratio's denominator (its rate).")
    blocks: int = doc("Planned blocks.")
    valid_blocks: list[int] = doc("Blocks that count: no rule invalidates them (`kassay.block`).")
    needed_blocks: int = doc("Least number of valid blocks for a verdict, frozen in the study.")
    ratios: list[float] | None = doc(
        "Within-block rate ratios of the valid blocks in block order, null with fewer than two of them."
    )
    median: float | None = doc("Median of the ratios.")
    lower: float | None = doc("Lower end of the exact bootstrap interval of the median, two-sided 95 %, descriptive.")
    upper: float | None = doc("Upper end of the same interval.")
    wins: int | None = doc("Blocks whose ratio is above 1; ties are no wins and stay in n.")
    p: float | None = doc("One-sided exact sign test.")
    holm_p: float = doc("Holm-adjusted p over the whole family; what is not measured, qualified or valid keeps 1.")
    family_size: int = doc("Planned comparisons.")
    alpha: float = doc("Level of the family.")
    screen_ratio: float = doc("Least median ratio of a gain.")
    objective: str = doc("Objective that the candidate had to qualify for: the study's route; `none` without one.")
    certificate: str = doc(
        "Verdict of its certificates for it on this model, against every planned control; `unestablished` "
        "where no stage makes any."
    )
    certificates_sha256: str = doc("Digest of the file of certificates that was read, empty where there is none.")
    verdict: str = doc(
        "`gain confirmed`, `no confirmed gain`, `descriptive`, `ineligible`, `not run` or `invalidated`: too few "
        "blocks count."
    )
    reason: str = doc("The verdict in words.")

    combinations = (
        one_of("verdict", (*TESTED, "descriptive", "ineligible", "not run", "invalidated")),
        *OF_RATIOS,
        given("verdict", (*TESTED, "descriptive"), "ratios"),
        absent("verdict", ("not run",), "ratios"),
        as_long("valid_blocks", "ratios"),
        one_of("certificate", VERDICTS),
        given("verdict", ("gain confirmed",), "certificates_sha256"),
        rule(
            "`verdict` is one of a gain only where `certificate` is `pass`",
            lambda made: made.verdict not in TESTED or made.certificate == "pass",
        ),
        rule(
            "`verdict` is `invalidated` exactly where fewer of `valid_blocks` are there than `needed_blocks`",
            lambda made: (made.verdict == "invalidated") == (len(made.valid_blocks) < made.needed_blocks),
        ),
        rule("`valid_blocks` are at most `blocks`", lambda made: len(made.valid_blocks) <= made.blocks),
    )


@dataclass(frozen=True, kw_only=True)
class GuardRecord(Record):
    """A guard: a descriptive look at another load in a few blocks. It decides nothing, whatever it shows."""

    schema: ClassVar[str] = "kassay.guard/1"

    model: str = doc("Name of the model.")
    guard: str = doc("Name of the guard in the study.")
    workload: str = doc("Name of its load.")
    candidate: str = doc("Recipe in the ratio's numerator (its rate).")
    control: str = doc("Recipe in the ratio's denominator (its rate).")
    blocks: int = doc("Planned blocks.")
    valid_blocks: list[int] = doc("Blocks that count; the ratios are theirs.")
    ratios: list[float] = doc("Within-block rate ratios of the valid blocks in block order.")
    median: float | None = doc("Median of the ratios, null without one.")
    at_least: float = doc("Median that the study looks for.")
    seen: bool | None = doc("Whether the median reaches it, null without one. No gate reads this.")
    verdict: str = doc("Always `descriptive`.")

    combinations = (
        one_of("verdict", ("descriptive",)),
        together("ratios", "median", "seen"),
        as_long("valid_blocks", "ratios"),
        rule("`valid_blocks` are at most `blocks`", lambda made: len(made.valid_blocks) <= made.blocks),
        rule(
            "`seen` is whether `median` reaches `at_least`",
            lambda made: made.seen is None or made.seen == ((made.median or 0) >= made.at_least),
        ),
    )


@dataclass(frozen=True, kw_only=True)
class SaturationRecord(Record):
    """The Hill fit of one sweep and whether its ceiling may be believed."""

    schema: ClassVar[str] = "kassay.saturation/2"

    model: str = doc("Name of the model.")
    recipe: str = doc("Name of the recipe.")
    context_tokens: int = doc("Context of the sweep in tokens.")
    batches: list[int] = doc("Measured batches.")
    rates_per_s: list[float] = doc("Median decode rate at each batch in tokens per second over all sequences.")
    residual_space: str = doc("`log` or `linear`: the residuals that decide, as declared.")
    status: str = doc("`converged`, or why the fit failed.")
    starts: int = doc("From how many starts it was polished.")
    starts_agreed: int = doc("How many of them ended at this optimum.")
    degrees_of_freedom: int = doc("Points minus fitted parameters.")
    r2: float | None = doc("As `r2_definition` says, null for constant rates; it decides nothing.")
    r2_definition: str = doc("Formula of `r2`.")
    ceiling_per_s: float = doc("Fitted ceiling S_max in tokens per second.")
    ceiling_lower_per_s: float | None = doc("Lower end of its 95 % profile interval, null if open.")
    ceiling_upper_per_s: float | None = doc("Upper end of its 95 % profile interval, null if open.")
    other_ceiling_per_s: float = doc("Ceiling by the residuals that do not decide, shown beside it.")
    half_batch: float = doc("Fitted batch at half the ceiling.")
    gamma: float = doc("Fitted Hill exponent.")
    gamma_fixed: bool = doc("Whether gamma was held at 1 because there are fewer than six points.")
    reached: float = doc("Fitted rate at the largest batch over the ceiling.")
    rms_log_residual: float = doc("Root mean square of ln(measured/fitted).")
    fitted_per_s: list[float] = doc("Fitted rate at each batch in tokens per second.")
    elasticities: list[float] = doc(
        "Relative gain of rate per relative gain of batch, at each batch: g (1 - S / S_max)."
    )
    marginal_per_s: list[float] = doc("Gain of rate for one sequence more, at each batch, in tokens per second.")
    token_time_s: list[float] = doc("Measured seconds per output token of each request, at each batch.")
    flags: list[str] = doc("What a reader must know before believing the fit.")
    state: str = doc("`usable`, `ceiling_extrapolated`, `shape_misfit` or `not_identifiable`.")
    statement: str = doc("What may be said of the ceiling, in words.")

    combinations = (
        one_of("residual_space", ("log", "linear")),
        one_of("state", ("usable", "ceiling_extrapolated", "shape_misfit", "not_identifiable")),
        as_long("batches", "rates_per_s", "fitted_per_s", "elasticities", "marginal_per_s", "token_time_s"),
        ordered("ceiling_lower_per_s", "ceiling_upper_per_s"),
        given("state", ("usable", "ceiling_extrapolated", "shape_misfit"), "ceiling_upper_per_s"),
        rule(
            "`status` is `converged` where `state` is not `not_identifiable`",
            lambda made: made.status == "converged" or made.state == "not_identifiable",
        ),
        given("state", ("ceiling_extrapolated", "shape_misfit", "not_identifiable"), "flags"),
        rule("`starts_agreed` is at most `starts`", lambda made: made.starts_agreed <= made.starts),
    )
