"""Cases of the kinds that follow from measurements and decide nothing: fits, claims, probes, printed figures."""

from kassay.kinds.fusion import FusionClaim, FusionFit, FusionVerdict
from kassay.kinds.law import LawRecord
from kassay.kinds.probe import ProbeArm, ProbeFinding, ProbeText
from kassay.kinds.published import FigureAnswer, PublishedFigure
from kassay.kinds.speculation import AcceptanceRecord
from kassay.kinds.verdict import SaturationRecord
from kassay.kinds.vllm import VllmRatio
from kassay.record import Record
from tests.kinds.case import Case

DERIVED: dict[type[Record], Case] = {
    SaturationRecord: Case(
        base={"residual_space": "log", "state": "usable", "status": "converged", "ceiling_upper_per_s": 2.0,
              "ceiling_lower_per_s": 1.0},
        legal=[
            {"state": "not_identifiable", "ceiling_upper_per_s": None, "status": "at a bound", "flags": ["few_points"]},
            {"state": "shape_misfit", "flags": ["shape_misfit"], "ceiling_lower_per_s": None},
        ],
        broken=[
            ({"residual_space": "cubic"}, "`residual_space` is `log` or `linear`"),
            ({"state": "good"}, "`state` is `usable`, `ceiling_extrapolated`, `shape_misfit` or `not_identifiable`"),
            ({"batches": [1]}, "`marginal_per_s` and `token_time_s` are as long as each other"),
            ({"ceiling_lower_per_s": 3.0}, "`ceiling_lower_per_s` <= `ceiling_upper_per_s`"),
            ({"ceiling_upper_per_s": None}, "`ceiling_upper_per_s` is there where `state` is `usable`"),
            ({"status": "at a bound"}, "`status` is `converged` where `state` is not `not_identifiable`"),
            ({"state": "shape_misfit"}, "`flags` is there where `state` is"),
            ({"starts_agreed": 2}, "`starts_agreed` is at most `starts`"),
        ],
    ),
    AcceptanceRecord: Case(
        base={"requests": 2, "output_tokens": 8, "passes": [5, 6], "drafted": [7, 4], "accepted": [3, 2],
              "acceptance": 5 / 11},
        legal=[
            {"passes": [8, 8], "drafted": [0, 0], "accepted": [0, 0], "acceptance": None},
            {"other_requests": 2},
        ],
        broken=[
            ({"drafted": [7]}, "`passes`, `drafted` and `accepted` are as long as each other"),
            ({"requests": 3}, "`passes` are as many as `requests`"),
            ({"drafted": [2, 4]}, "`accepted` are at most `drafted`, request by request"),
            ({"passes": [5, 7]}, "`passes` and `accepted` add up to `output_tokens`, request by request"),
            ({"acceptance": None}, "`acceptance` is there exactly where something was `drafted`"),
            ({"other_requests": 3}, "`other_requests` <= `requests`"),
        ],
    ),
    FusionFit: Case(
        base={"ceiling_rule": "one ceiling", "residual_space": "log"},
        legal=[{"ceiling_ends": [1.0, float("inf")], "half_ends": [1.0, 2.0], "gamma_ends": [1.0, 1.0], "draws": 9,
                "failed_draws": 0}],
        broken=[
            ({"ceiling_rule": "none"}, "`ceiling_rule` is"),
            ({"residual_space": "linear"}, "`residual_space` is `log`"),
            ({"draws": 9}, "`draws` and `failed_draws` are there together"),
            ({"ceiling_ends": [2.0, 1.0], "half_ends": [1.0, 2.0], "gamma_ends": [1.0, 1.0], "draws": 9,
              "failed_draws": 0}, "`gamma_ends` are a lower end and an upper one"),
            ({"draws": 1, "failed_draws": 2}, "`failed_draws` <= `draws`"),
            ({"clusters": 2}, "`clusters` <= `n`"),
        ],
    ),
    FusionVerdict: Case(
        base={"verdict": "follows", "layouts": ["a", "b"], "half_batches": [1.0, 2.0], "half_spread": 2.0,
              "half_spread_query_heads": 2.0, "half_spread_kv_heads": 2.0},
        legal=[{"half_batches": [None, 1.0], "half_spread": None, "half_spread_query_heads": None,
                "half_spread_kv_heads": None}],
        broken=[
            ({"verdict": "leads"}, "`verdict` is `follows`, `closest`, `unsettled` or `flat`"),
            ({"lowest": 2.0}, "`lowest` <= `median` <= `highest`"),
            ({"above_limit": 2}, "`above_limit` <= `n`"),
            ({"layouts": ["a"]}, "`layouts` and `half_batches` are as long"),
            ({"half_spread_kv_heads": None}, "`half_spread_kv_heads` are there together"),
            ({"half_batches": [None, 1.0]}, "`half_spread` is there exactly where two of `half_batches` are"),
        ],
    ),
    FusionClaim: Case(
        base={"pairs": ["a", "b"], "agreeing": 2, "against": 0, "verdict": "holds"},
        legal=[{"agreeing": 0, "against": 2, "verdict": "fails"}, {"agreeing": 1, "verdict": "unsettled"}],
        broken=[
            ({"verdict": "true"}, "`verdict` is `holds`, `fails` or `unsettled`"),
            ({"against": 1}, "`agreeing` and `against` add up to no more than `pairs`"),
            ({"agreeing": 1}, "`verdict` is `holds` where all `pairs` are `agreeing`"),
        ],
    ),
    LawRecord: Case(
        base={"residual_space": "log", "batches": [1], "contexts_tokens": [1], "steps_s": [1.0], "residuals": [0.0]},
        legal=[{"cached_shares": [0.5]}],
        broken=[
            ({"residual_space": "x"}, "`residual_space` is `log` or `linear`"),
            ({"cached_shares": [0.5, 0.6]}, "`cached_shares` are as long as each other"),
        ],
    ),
    ProbeArm: Case(
        base={"eligible": True, "reason": ""},
        legal=[{"eligible": False, "reason": "x"}, {"layer": 0, "layer_recipe": "k8v8"}],
        broken=[
            ({"layer": 0}, "`layer` and `layer_recipe` are there together"),
            ({"reason": "x"}, "`reason` is there exactly where `eligible` is false"),
        ],
    ),
    ProbeText: Case(
        base={"agreed": 1, "loss_nats": [0.1]},
        broken=[({"agreed": 2}, "`agreed` is at most the number of `loss_nats`")],
    ),
    ProbeFinding: Case(
        base={"value": 1.0, "reason": ""},
        legal=[{"value": None, "reason": "x"}, {"value": float("nan")}],
        broken=[({"value": None}, "`value` is there exactly where `reason` is empty")],
    ),
    PublishedFigure: Case(
        base={"derivation": "f", "exact": {"n": 1}},
        legal=[{"derivation": None, "exact": {}}],
        broken=[
            ({"derivation": None, "exact": {}, "remark": ""}, "`remark` is there where `derivation` is null"),
            ({"derivation": None}, "`exact` and `rounded` are not there where `derivation` is null"),
        ],
    ),
    FigureAnswer: Case(
        base={"answer": "equal", "derivation": "f", "derived": "1", "lowest": "0", "highest": "2"},
        legal=[{"answer": "not derivable", "derivation": None, "derived": None, "lowest": None, "highest": None}],
        broken=[
            ({"answer": "true"}, "`answer` is `equal`"),
            ({"derived": None}, "`derivation` and `derived` are there exactly where `answer` is"),
            ({"answer": "not derivable", "derivation": None, "derived": None, "lowest": None, "highest": None,
              "remark": ""}, "`remark` is there where `answer` is `not derivable`"),
            ({"lowest": None}, "`lowest` and `highest` are there together"),
            ({"answer": "not derivable", "derivation": None, "derived": None},
             "`lowest` is not there where `answer` is `not derivable`"),
        ],
    ),
    VllmRatio: Case(
        base={"verdict": "descriptive", "ratios": [1.0]},
        broken=[
            ({"verdict": "gain confirmed"}, "`verdict` is `descriptive`"),
            ({"wins": 2}, "`wins` are at most as many as `ratios`"),
        ],
    ),
}  # fmt: skip
