"""Cases of the kinds that decide: gates, certificates, comparisons, rows of a matrix."""

from kassay.kinds.composition import CompositionRecord
from kassay.kinds.direct import DirectRecord
from kassay.kinds.matrix import CaseGateRecord, MatrixRow
from kassay.kinds.serving import ServingCheck, ServingContrast, ServingGate
from kassay.kinds.verdict import (
    CertificateRecord,
    ContrastRecord,
    GateRecord,
    GuardRecord,
    QualificationRecord,
)
from kassay.record import Record
from tests.kinds.case import Case, Values

NAN = float("nan")
NUMBERS = ("ratios", "median", "lower", "upper", "wins", "p")
NONE: Values = dict.fromkeys(NUMBERS)
MEASURED: Values = {
    "ratios": [1.1, 1.2], "median": 1.15, "lower": 1.1, "upper": 1.2, "wins": 2, "p": 0.01, "holm_p": 0.04,
    "alpha": 0.05, "screen_ratio": 1.01,
}  # fmt: skip
RATIOS: list[tuple[Values, str]] = [
    ({"median": None}, "`median`, `lower`, `upper`, `wins` and `p` are there together or not at all"),
    ({"lower": 1.3}, "`lower` <= `upper`; got `lower` 1.3, `upper` 1.2"),
    ({"p": 0.05}, "`p` <= `holm_p`"),
    ({"wins": 3}, "`wins` are at most as many as `ratios`"),
    ({"holm_p": 0.06}, "only where `holm_p` is at most `alpha`"),
    ({"screen_ratio": 1.2}, "`median` reaches `screen_ratio`"),
]
GATE: Values = {
    "statistic": "gross loss rate", "decides": "upper", "lower": 0.0, "upper": 0.02, "margin": 0.02, "verdict": "pass",
    "losses": 0, "gains": 0, "native_score": 0.9, "control_outcomes": {"correct": 9},
    "candidate_outcomes": {"wrong": 1},
}  # fmt: skip
OF_LOSS: Values = {
    "statistic": "relative mean nll", "draws": 100, "seed": 1, "losses": None, "gains": None, "native_score": None,
    "control_outcomes": None, "candidate_outcomes": None,
}  # fmt: skip
COMPOSED: Values = {
    "interval_class": "undecided", "point_class": "multiplicative", "quantized_speedups": [1.0, 1.1],
    "speculative_speedups": [1.0, 1.1], "combined_speedups": [1.0, 1.1], "rhos": [0.9, 1.1], "median": 1.0,
    "lower": 0.9, "upper": 1.1, "below": 1, "above": 1, "reason": "", "blocks": 3, "valid_blocks": [0, 2],
    "needed_blocks": 2,
}  # fmt: skip
VOID: Values = {
    "interval_class": "invalidated", "point_class": None, "quantized_speedups": [], "speculative_speedups": [],
    "combined_speedups": [], "rhos": [], "median": None, "lower": None, "upper": None, "below": None, "above": None,
    "reason": "1 of 3 blocks counts", "valid_blocks": [0],
}  # fmt: skip

JUDGED: dict[type[Record], Case] = {
    GateRecord: Case(
        base=GATE,
        legal=[
            {"lower": 0.03, "upper": 0.04, "verdict": "fails"},
            {"lower": 0.01, "upper": 0.04, "verdict": "unestablished"},
            {"native_floor": 0.95, "verdict": "ineligible"},
            {"power": 0.9, "true_rate": 0.0},
            {"statistic": "net change", "decides": "lower", "margin": -0.1},
            {"statistic": "net change", "decides": "lower", "margin": 0.0, "lower": -0.2, "upper": -0.1,
             "verdict": "fails"},
            OF_LOSS,
        ],
        broken=[
            ({"statistic": "mean"}, "`statistic` is `gross loss rate`, `net change`, `relative mean nll` or"),
            ({"decides": "both"}, "`decides` is `upper` or `lower`; got `decides` 'both'"),
            ({"verdict": "passed"}, "`verdict` is `pass`, `fails`, `unestablished` or `ineligible`; got"),
            ({"losses": None}, "there exactly where `statistic` is `gross loss rate` or `net change`"),
            ({"draws": 10, "seed": 1}, "`draws` and `seed` are there exactly where `statistic` is"),
            (OF_LOSS | {"power": 0.9, "true_rate": 0.1}, "`power`, `true_rate` and `native_floor` are not there where"),
            ({"power": 0.9}, "`power` and `true_rate` are there together or not at all"),
            ({"verdict": "ineligible"}, "`native_floor` is there where `verdict` is `ineligible`"),
            ({"lower": 0.03}, "`lower` <= `upper`"),
            ({"upper": 0.03}, "`verdict` is `pass` where the bound that `decides` holds `margin`"),
            ({"verdict": "fails"}, "`verdict` is `pass` where the bound that `decides` holds `margin`"),
            ({"native_floor": 0.95}, "`verdict` is `ineligible` exactly where `native_score` is below `native_floor`"),
            ({"unchanged": True, "losses": 1}, "`unchanged` has no `losses` and no `gains`"),
        ],
    ),
    CertificateRecord: Case(
        base={"verdict": "pass", "gates": ["a", "b"]},
        legal=[
            {"verdict": "fails", "failed_gates": ["a"], "open_gates": ["b"]},
            {"verdict": "unestablished", "open_gates": ["b"], "expected": "pass", "as_expected": False},
        ],
        broken=[
            ({"verdict": "not run"}, "`verdict` is `pass`, `fails`, `unestablished` or `ineligible`; got"),
            ({"open_gates": ["b"]}, "`failed_gates` and `open_gates` are not there where `verdict` is `pass`"),
            ({"verdict": "fails"}, "`failed_gates` is there exactly where `verdict` is `fails`"),
            ({"verdict": "ineligible"}, "`open_gates` is there where `verdict` is `unestablished` or `ineligible`"),
            ({"verdict": "unestablished", "open_gates": ["c"]}, "are different ones of `gates`"),
            ({"expected": "fails", "as_expected": True}, "`as_expected` is whether `verdict` is `expected`"),
            ({"as_expected": True}, "and null where that is"),
        ],
    ),
    QualificationRecord: Case(
        base={"verdict": "ineligible", "controls": ["a", "b"], "verdicts": ["pass", "ineligible"]},
        broken=[
            ({"verdict": "ok"}, "`verdict` is `pass`, `fails`, `unestablished` or `ineligible`; got"),
            ({"controls": ["a"]}, "`controls` and `verdicts` are as long as each other"),
            ({"verdict": "pass"}, "`verdict` is the worst of `verdicts`"),
        ],
    ),
    ContrastRecord: Case(
        base=MEASURED
        | {"verdict": "gain confirmed", "certificate": "pass", "certificates_sha256": "1a", "blocks": 3,
           "valid_blocks": [0, 2], "needed_blocks": 2},
        legal=[
            {"verdict": "no confirmed gain", "holm_p": 0.2},
            {"verdict": "descriptive", "certificate": "unestablished", "certificates_sha256": ""},
            NONE | {"verdict": "not run", "valid_blocks": [0], "needed_blocks": 1},
            {"verdict": "invalidated", "needed_blocks": 3},
            {"verdict": "no confirmed gain", "p": NAN, "holm_p": 1.0},
        ],
        broken=[
            *RATIOS,
            ({"verdict": "gated off"}, "or `invalidated`; got `verdict` 'gated off'"),
            (NONE | {"verdict": "no confirmed gain"}, "`ratios` is there where `verdict` is"),
            ({"verdict": "not run"}, "`ratios` is not there where `verdict` is `not run`"),
            ({"valid_blocks": [0, 1, 2]}, "`valid_blocks` and `ratios` are as long as each other"),
            ({"certificate": "none"}, "`certificate` is `pass`, `fails`"),
            ({"certificates_sha256": ""}, "`certificates_sha256` is there where `verdict` is `gain confirmed`"),
            ({"certificate": "fails"}, "only where `certificate` is `pass`"),
            ({"needed_blocks": 3}, "`verdict` is `invalidated` exactly where fewer of `valid_blocks`"),
            ({"blocks": 1}, "`valid_blocks` are at most `blocks`"),
        ],
    ),
    GuardRecord: Case(
        base={"ratios": [1.1], "valid_blocks": [0], "median": 1.1, "at_least": 1.0, "seen": True,
              "verdict": "descriptive"},
        legal=[{"ratios": [], "valid_blocks": [], "median": None, "seen": None}],
        broken=[
            ({"verdict": "pass"}, "`verdict` is `descriptive`"),
            ({"seen": None}, "`ratios`, `median` and `seen` are there together or not at all"),
            ({"ratios": [1.1, 1.0]}, "`valid_blocks` and `ratios` are as long as each other"),
            ({"blocks": 0}, "`valid_blocks` are at most `blocks`"),
            ({"seen": False}, "`seen` is whether `median` reaches `at_least`"),
        ],
    ),
    CompositionRecord: Case(
        base=COMPOSED,
        legal=[VOID],
        broken=[
            ({"interval_class": "maybe"}, "`interval_class` is `sub-multiplicative`, `super-multiplicative`"),
            ({"point_class": "undecided"}, "`multiplicative` or null"),
            ({"median": None}, "are there exactly where `interval_class` is"),
            (VOID | {"median": 1.0}, "are there exactly where `interval_class` is"),
            ({"reason": "why not"}, "`reason` is there exactly where `interval_class` is `invalidated`"),
            ({"needed_blocks": 3}, "`interval_class` is `invalidated` exactly where"),
            ({"quantized_speedups": [1.0]}, "`combined_speedups` and `rhos` are as long as each other"),
            ({"valid_blocks": [0, 1, 2]}, "`rhos` are as many as `valid_blocks`, or none"),
            ({"lower": 1.2}, "`lower` <= `upper`"),
            ({"below": 2}, "`below` and `above` add up to no more than `rhos`"),
            ({"blocks": 1}, "`valid_blocks` are at most `blocks`"),
        ],
    ),
    DirectRecord: Case(
        base={"sidedness": "two-sided", "gains": 5, "losses": 0, "p": 0.01, "holm_p": 0.04, "alpha": 0.05,
              "different": True},
        legal=[{"gains": None, "losses": None, "draws": 10, "seed": 1}, {"different": False, "holm_p": 0.2}],
        broken=[
            ({"sidedness": "one-sided"}, "`sidedness` is `two-sided`"),
            ({"gains": None, "draws": 1, "seed": 1}, "`gains` and `losses` are there together"),
            ({"seed": 1}, "`draws` and `seed` are there together"),
            ({"gains": None, "losses": None}, "`gains` are there exactly where `draws` are not"),
            ({"p": 0.045}, "`p` <= `holm_p`"),
            ({"different": False}, "`different` is whether `holm_p` is at most `alpha`"),
            ({"unchanged": True}, "`unchanged` has no `gains`, no `losses`"),
        ],
    ),
    CaseGateRecord: Case(
        base={"verdict": "pass", "cases": 2, "passed": 2},
        legal=[{"verdict": "fails", "passed": 1}, {"verdict": "fails", "passed": 0, "cases": 0}],
        broken=[
            ({"verdict": "ok"}, "`verdict` is `pass` or `fails`"),
            ({"passed": 3}, "`passed` <= `cases`"),
            ({"passed": 1}, "`verdict` is `pass` exactly where all `cases` are `passed`"),
        ],
    ),
    MatrixRow: Case(
        base=MEASURED
        | {"verdict": "gain confirmed", "stages": ["a", "b"], "verdicts": ["pass", "pass"], "reasons": ["", ""]},
        legal=[
            NONE | {"verdict": "gated off", "verdicts": ["fails", "gated off"], "reasons": ["x", "y"]},
            NONE | {"verdict": "invalidated", "expected": "not run", "as_expected": False},
        ],
        broken=[
            *RATIOS,
            ({"verdict": "not run"}, "`ratios` is there exactly where `verdict` is `gain confirmed` or"),
            ({"stages": ["a"]}, "`stages`, `verdicts` and `reasons` are as long as each other"),
            ({"reasons": ["", "x"]}, "`reasons` are empty exactly where `verdicts` are `pass`"),
            ({"verdicts": ["pass", "fails"], "reasons": ["", "x"]}, "only where all `verdicts` are `pass`"),
            ({"expected": "gain confirmed", "as_expected": False}, "`as_expected` is whether `verdict` is `expected`"),
        ],
    ),
    ServingGate: Case(
        base={"verdict": "pass", "failed": 0, "empty": 0},
        legal=[{"verdict": "fails", "failed": 1, "errors": {"stalled": 1}}],
        broken=[
            ({"verdict": "ok"}, "`verdict` is `pass` or `fails`"),
            ({"empty": 1}, "`verdict` is `pass` exactly where `failed` and `empty` are 0"),
            ({"verdict": "fails", "empty": 2}, "`failed` and `empty` are at most `requests`"),
            ({"errors": {"stalled": 1}}, "`errors` add up to `failed`"),
        ],
    ),
    ServingCheck: Case(
        base={"tool": "vllm", "complete": True, "output_tokens": 5},
        legal=[{"complete": False, "faults": ["x"]}],
        broken=[
            ({"tool": "wrk"}, "`tool` is `aiperf` or `vllm`"),
            ({"complete": False}, "`faults` is there where `complete` is false"),
            ({"output_tokens": None}, "`faults` is there where `output_tokens` is null"),
        ],
    ),
    ServingContrast: Case(
        base=MEASURED | {"verdict": "gain confirmed", "certificate": "pass", "failed": {"a": 0}},
        legal=[
            NONE | {"verdict": "invalidated"},
            NONE | {"verdict": "no confirmed gain", "failed": {"a": 1}},
            {"verdict": "descriptive", "certificate": "none"},
        ],
        broken=[
            *RATIOS,
            ({"verdict": "gain"}, "or `not run`; got `verdict` 'gain'"),
            (NONE | {"verdict": "descriptive"}, "`ratios` is there where `verdict` is `gain confirmed` or"),
            ({"verdict": "invalidated"}, "`ratios` is not there where `verdict` is `invalidated` or `not run`"),
            ({"certificate": "ok"}, "`certificate` is"),
            ({"failed": {"a": 1}}, "`certificate` is `pass` and no request of `failed`"),
            (NONE | {"verdict": "no confirmed gain"}, "`ratios` are there where `verdict` is `no confirmed gain`"),
        ],
    ),
}  # fmt: skip
