"""Cases of the kinds that hold what was measured, checked or frozen."""

from kassay.events import Event
from kassay.kinds.backend import FusedBackend, FusedCache
from kassay.kinds.calibration import ScaleRecord
from kassay.kinds.fusion import FusionCell
from kassay.kinds.harness import HarnessScore
from kassay.kinds.kernel import CompiledKernel
from kassay.kinds.memory import AllocatorRecord, MemoryArm, MemoryGate, MemoryLimits, MemorySample, MemoryWindow
from kassay.kinds.mirror import MirrorRecord
from kassay.kinds.oracle import OracleCase
from kassay.kinds.quality import Answer, AnswerCounts
from kassay.kinds.serving import ServedLoad, ServedRequest, ServerRequest, ServerRun
from kassay.kinds.source import SourceRecord
from kassay.kinds.timing import BlockRecord, GpuState, HostState
from kassay.kinds.vllm import VllmCheck, VllmEngine, VllmFinding, VllmRequest, VllmSpan
from kassay.kinds.vllm_serving import VllmServer
from kassay.record import Record
from tests.kinds.case import Case, Values

NAN = float("nan")
FAILED_REQUEST: Values = {
    "status": "failed", "error": "stalled", "detail": "no byte", "token_ns": [], "empty": True, "http_status": None,
    "prompt_tokens": None, "output_tokens": None,
}  # fmt: skip
TIMES: Values = {"n": 1, "mean": 1.0}
OPEN: Values = {"concurrency": None, "offered_per_s": 2.0, "arrivals": "poisson", "largest_lag_s": 0.1}
ENGINE: Values = {"blocks": 100, "events": []}
BYTES = tuple(name for name in AllocatorRecord.__dataclass_fields__ if name.endswith("_bytes"))

MEASURED: dict[type[Record], Case] = {
    Event: Case(
        base={"event": "stage_started", "stage": "timing"},
        legal=[{"event": "run_ended", "stage": None}],
        broken=[
            ({"event": "stage_stopped"}, "`event` is `run_started`"),
            ({"event": "run_ended"}, "`stage` is there exactly where `event` is `stage_started`"),
            ({"stage": None}, "`stage` is there exactly where `event` is `stage_started`"),
        ],
    ),
    FusedBackend: Case(
        base={"drawn": True},
        legal=[{"drawn": False, "model_sha256": "1a"}],
        broken=[({"drawn": False}, "`model_sha256` is there exactly where `drawn` is false")],
    ),
    FusedCache: Case(
        base={"context": "drawn"},
        broken=[
            ({"context": "made"}, "`context` is `prefilled` or `drawn`"),
            ({"pools": 2}, "`pools` are at most `layers`"),
        ],
    ),
    ScaleRecord: Case(
        base={"sixteen": "fp16", "component": "k", "zeros": 0},
        legal=[{"zeros": 1, "amax": 0.0, "all_zero": True}],
        broken=[
            ({"sixteen": "fp8"}, "`sixteen` is `fp16` or `bf16`"),
            ({"component": "q"}, "`component` is"),
            ({"zeros": 2}, "`zeros` <= `elements`"),
            ({"all_zero": True}, "`all_zero` is whether `amax` is 0"),
            ({"zeros": 1}, "and `zeros` are all `elements`"),
        ],
    ),
    FusionCell: Case(
        base={"failed": "", "rounds_us": [1.0], "splits": None, "programs": None, "tile": ""},
        legal=[{"failed": "out of memory", "rounds_us": None}, {"splits": 1, "programs": 1, "tile": "64x4x3"}],
        broken=[
            ({"failed": "x"}, "`rounds_us` is there exactly where `failed` is empty"),
            ({"failed": "x", "rounds_us": None, "error": 0.1}, "`error` is not there where `rounds_us` is null"),
            ({"splits": 1}, "`splits`, `programs` and `tile` are there together"),
        ],
    ),
    HarnessScore: Case(
        base={"standing": "descriptive"},
        broken=[
            ({"standing": "pass"}, "`standing` is `descriptive`"),
            ({"items": 0}, "`items` are 1 or more where they are there"),
        ],
    ),
    CompiledKernel: Case(
        base={"error": "", "registers": 64, "spills_bytes": 0, "shared_bytes": 0, "cubin_sha256": "1a"},
        legal=[{"error": "x", "registers": None, "spills_bytes": None, "shared_bytes": None, "cubin_sha256": ""}],
        broken=[
            ({"error": "x"}, "`cubin_sha256` are there exactly where `error` is empty"),
            ({"registers": None}, "`cubin_sha256` are there exactly where `error` is empty"),
        ],
    ),
    MemoryLimits: Case(base={"origin": "study"}, broken=[({"origin": "user"}, "`origin` is `study` or `Kconfig`")]),
    MemorySample: Case(
        base={"source": "device", "error": "", "used_bytes": 0},
        legal=[{"error": "x", "used_bytes": None}],
        broken=[
            ({"source": "cpu"}, "`source` is `resident` or `device`"),
            ({"error": "x"}, "`used_bytes` is there exactly where `error` is empty"),
            ({"started_ns": 2}, "`started_ns` <= `ended_ns`"),
        ],
    ),
    MemoryWindow: Case(
        base={"source": "device", "queries": 2, "answered": 2, "gap_ns": 5, "largest_bytes": 1, "valid": True,
              "fault": ""},
        legal=[
            {"answered": 0, "gap_ns": None, "largest_bytes": None, "valid": False, "fault": "none was answered"},
            {"longest_gap_ns": 4, "valid": False, "fault": "the gap"},
        ],
        broken=[
            ({"source": "cpu"}, "`source` is `resident` or `device`"),
            ({"valid": False}, "`fault` is there exactly where `valid` is false"),
            ({"opened_ns": 2}, "`opened_ns` <= `closed_ns`"),
            ({"answered": 3}, "`answered` <= `queries`"),
            ({"largest_bytes": None}, "`largest_bytes` are there exactly where `answered` is above 0"),
            ({"gap_ns": None}, "`gap_ns` is there exactly where `answered` is 2 or more"),
            ({"longest_gap_ns": 4}, "`valid` is whether `gap_ns` is there and within `longest_gap_ns`"),
        ],
    ),
    AllocatorRecord: Case(
        base={"absent": "the processor has none"},
        legal=[{"absent": "", **dict.fromkeys(BYTES, 0)}],
        broken=[
            ({"absent": ""}, "are there exactly where `absent` is empty"),
            ({"reserved_bytes": 1}, "are there exactly where `absent` is empty"),
        ],
    ),
    MemoryArm: Case(base={"gate": "equal slots"}, broken=[({"gate": "equal"}, "`gate` is `equal slots`")]),
    MemoryGate: Case(
        base={"verdict": "pass", "observed": 0},
        legal=[{"verdict": "unmeasured"}, {"verdict": "unmeasured", "observed": None}],
        broken=[
            ({"verdict": "ok"}, "`verdict` is `pass`, `fails` or `unmeasured`"),
            ({"observed": None}, "`observed` is there where `verdict` is `pass` or `fails`"),
        ],
    ),
    MirrorRecord: Case(
        base={"state": "sent", "reason": ""},
        legal=[{"state": "hung", "reason": "x", "events": 0}],
        broken=[
            ({"state": "lost"}, "`state` is `started`, `sent`"),
            ({"state": "failed"}, "`reason` is there exactly where `state` is `absent`, `failed` or `hung`"),
            ({"events": -1}, "`events` are 0 or more"),
        ],
    ),
    OracleCase: Case(
        base={"within": True, "relative_error": 0.0, "peak_error": 0.0},
        legal=[{"mutation": "swap", "caught": True, "within": False}, {"relative_error": NAN, "within": False}],
        broken=[
            ({"mutation": "swap"}, "`mutation` and `caught` are there together"),
            ({"relative_error": 2.0}, "`within` is whether `relative_error` is at most `tolerance`"),
            ({"peak_error": NAN}, "and `peak_error` at most `peak_tolerance`"),
            ({"mutation": "swap", "caught": True}, "`caught` is whether a fault is not `within`"),
        ],
    ),
    Answer: Case(
        base={"outcome": "correct", "parsed": "5"},
        legal=[{"outcome": "unreadable", "parsed": None}, {"outcome": "truncated", "parsed": None}],
        broken=[
            ({"outcome": "right"}, "`outcome` is `correct`, `wrong`, `unreadable` or `truncated`"),
            ({"parsed": None}, "`parsed` is there where `outcome` is `correct` or `wrong`"),
            ({"outcome": "unreadable"}, "`parsed` is not there where `outcome` is `unreadable`"),
        ],
    ),
    AnswerCounts: Case(
        base={"items": 4, "correct": 1},
        broken=[
            ({"items": 5}, "`correct`, `wrong`, `unreadable` and `truncated` add up to `items`"),
            ({"no_marker": 5}, "`no_marker` <= `items`"),
        ],
    ),
    ServedRequest: Case(
        base={"status": "ok", "token_ns": [1], "error": "", "detail": "", "http_status": 200, "prompt_tokens": 1,
              "output_tokens": 1},
        legal=[
            FAILED_REQUEST,
            FAILED_REQUEST | {"http_status": 500, "token_ns": [1], "empty": False},
            {"status": "empty", "token_ns": [], "empty": True},
        ],
        broken=[
            ({"status": "done"}, "`status` is `ok`, `empty` or `failed`"),
            (FAILED_REQUEST | {"detail": ""}, "`error` and `detail` are there exactly where `status` is `failed`"),
            ({"error": "stalled"}, "`error` and `detail` are there exactly where `status` is `failed`"),
            ({"token_ns": [], "empty": True}, "`token_ns` is there where `status` is `ok`"),
            ({"status": "empty"}, "`token_ns` is not there where `status` is `empty`"),
            ({"output_tokens": None}, "`output_tokens` are there where `status` is `ok` or `empty`"),
            ({"empty": True}, "`empty` is whether `token_ns` are none"),
            ({"started_ns": 2}, "`started_ns` <= `ended_ns`"),
        ],
    ),
    ServerRequest: Case(
        base={"ended": "length", "admitted_ns": 1},
        legal=[{"ended": "left", "admitted_ns": None, "output_tokens": 0}],
        broken=[
            ({"ended": "done"}, "`ended` is `length`, `stop`, `left` or `error`"),
            ({"admitted_ns": None, "output_tokens": 0}, "`admitted_ns` is there where `ended` is `length` or `stop`"),
            ({"admitted_ns": 2}, "`received_ns` <= `admitted_ns` <= `finished_ns`"),
            ({"ended": "left", "admitted_ns": None}, "no `output_tokens` where `admitted_ns` is null"),
        ],
    ),
    ServerRun: Case(
        base={"stopped_by": "TERM"},
        legal=[{"stopped_by": "itself", "died": True}],
        broken=[
            ({"stopped_by": "INT"}, "`stopped_by` is `TERM`, `KILL` or `itself`"),
            ({"died": True}, "`died` is whether `stopped_by` is `itself`"),
        ],
    ),
    ServedLoad: Case(
        base={"concurrency": 4, "failed": 0, "empty": 0, "ttft_s": TIMES, "tpot_s": TIMES, "latency_s": TIMES},
        legal=[OPEN, OPEN | {"schedule_per_s": 2.0, "achieved_per_s": 2.0, "schedule_gap_cv": 1.0}],
        broken=[
            ({"arrivals": "poisson"}, "`offered_per_s`, `arrivals` and `largest_lag_s` are there together"),
            (OPEN | {"concurrency": 4}, "`concurrency` is there exactly where `offered_per_s` is not"),
            ({"schedule_per_s": 2.0}, "`achieved_gap_cv` are not there where `arrivals` is null"),
            (OPEN | {"arrivals": "bursts"}, "`arrivals` is `poisson`, `constant` or null"),
            ({"requests": 2}, "`completed`, `failed` and `empty` add up to `requests`"),
            ({"errors": {"stalled": 1}}, "`errors` add up to `failed`"),
            ({"ttft_s": {"n": 2}}, "`ttft_s` and `latency_s` are of all that are `completed`"),
            ({"completed": 0, "empty": 1}, "no `output_tokens` where `completed` is 0"),
            ({"most_in_flight": 2}, "`most_in_flight` <= `requests`"),
        ],
    ),
    SourceRecord: Case(
        base={"kind": "tree", "commit": "1a"},
        legal=[
            {"kind": "release", "ref": "a==1", "commit": None},
            {"kind": "git", "url": "u", "ref": "main", "ref_kind": "branch", "tree": "t", "describe": "d",
             "submodules": [{"path": "p"}]},
            {"commit": None, "dirty": ["a.py"]},
        ],
        broken=[
            ({"kind": "folder"}, "`kind` is `tree`, `git` or `release`"),
            ({"url": "u"}, "`url`, `ref_kind`, `tree` and `describe` are there exactly where `kind` is `git`"),
            ({"ref_kind": "head"}, "`ref_kind` is `commit`"),
            ({"kind": "release", "commit": None}, "`ref` is there exactly where `kind` is `git` or `release`"),
            ({"kind": "git", "commit": None}, "`commit` is there where `kind` is `git`"),
            ({"kind": "release", "ref": "a==1"}, "`commit` is not there where `kind` is `release`"),
            ({"kind": "release", "ref": "a==1", "commit": None, "dirty": ["x"]}, "`dirty` is not there where"),
            ({"submodules": [{"path": "p"}]}, "`submodules` is not there where `kind` is `tree` or `release`"),
        ],
    ),
    HostState: Case(base={"when": "before"}, broken=[({"when": "now"}, "`when` is `before` or `after`")]),
    GpuState: Case(base={"when": "after"}, broken=[({"when": "now"}, "`when` is `before` or `after`")]),
    BlockRecord: Case(
        base={"valid": True},
        legal=[{"valid": False, "faults": [{"rule": "stamps"}]}],
        broken=[
            ({"valid": False}, "`faults` is there exactly where `valid` is false"),
            ({"faults": [{"rule": "stamps"}]}, "`faults` is there exactly where `valid` is false"),
        ],
    ),
    VllmEngine: Case(
        base={"scale_policy": "none", "runner": "v1"},
        legal=[{"scale_policy": "fixed", "value_scales": [1.0]}],
        broken=[
            ({"scale_policy": "static"}, "`scale_policy` is `none`, `fixed` or `dynamic`"),
            ({"key_scales": [1.0]}, "`key_scales` and `value_scales` are not there where `scale_policy` is `none`"),
            ({"runner": "v3"}, "`runner` is `v1` or `v2`"),
        ],
    ),
    VllmRequest: Case(
        base={"completion_steps": [0]},
        legal=[{"completion_steps": []}, {"completion_steps": [], "output_tokens": 0, "first_ns": 0, "ended_ns": 0}],
        broken=[
            ({"first_ns": 2}, "`submitted_ns` <= `first_ns` <= `ended_ns`"),
            ({"output_tokens": 0}, "`completion_steps` are at most as many as `output_tokens`"),
        ],
    ),
    VllmSpan: Case(
        base={},
        broken=[
            ({"started_ns": 2}, "`started_ns` <= `ended_ns`"),
            ({"full_steps": 2}, "`full_steps` <= `decode_steps`"),
        ],
    ),
    VllmFinding: Case(
        base={"finding": "route"}, broken=[({"finding": "speed"}, "`finding` is `physical`, `scales`, `route`")]
    ),
    VllmCheck: Case(
        base={"differing": 0, "passed": True},
        legal=[{"planted": True, "differing": 1}, {"error": NAN, "passed": False}, {"planted": True, "error": NAN}],
        broken=[
            ({"differing": 2, "passed": False}, "`differing` <= `count`"),
            ({"error": 2.0}, "`passed` is whether nothing is `differing` and `error` is within `limit`"),
            ({"planted": True}, "and of `planted` the reverse"),
        ],
    ),
    VllmServer: Case(
        base={"attested_before": ENGINE, "attested_after": ENGINE | {"events": ["captured"]}, "cached_tokens": 0},
        legal=[
            {"attested_after": ENGINE | {"blocks": 99}, "changed": ["blocks"], "faults": ["its engine changed"]},
            {"routes": {}, "replays": {}, "fallbacks": 0},
            {"cached_tokens": 16, "faults": ["16 prompt tokens came from a cache"]},
        ],
        broken=[
            ({"changed": ["events"], "faults": ["x"]}, "`changed` are the fields in which `attested_before` and"),
            ({"attested_after": {}}, "`changed` are the fields in which `attested_before` and"),
            ({"fallbacks": 0}, "`routes`, `replays` and `fallbacks` are null together"),
            ({"cached_tokens": 16}, "`faults` are there exactly where something `changed`"),
            ({"faults": ["x"]}, "`faults` are there exactly where something `changed`"),
        ],
    ),
}  # fmt: skip
