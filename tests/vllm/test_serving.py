"""`vllm serve` behind the serving stages: its command, what its engine must attest, what makes its loads invalid."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kassay import paths
from kassay.audit import compare, served
from kassay.backend.vllm_arguments import Asked, cell_of
from kassay.errors import KassayError, RunError
from kassay.kinds.serving import ServedLoad, ServerRun
from kassay.kinds.vllm import VllmEngine
from kassay.kinds.vllm_serving import VllmServer
from kassay.kv.tasks import vocabulary
from kassay.serving import vllm_command, vllm_server
from kassay.stage import Stage
from tests.stages.conftest import Ran, runner
from tests.vllm.test_arguments import ENGINE
from tests.vllm.test_profiles import stages_of

ROBUST = paths.ROOT / "data" / "models" / "robust"
CONTEXT, OUTPUT, REQUESTS = 96, 8, 6
ARMS = {
    "native": {"recipe": "native", "attention": "flash-attn"},
    "k16v8-d": {"recipe": "k16v8-d", "attention": "plug-in"},
}
LOAD = {"name": "closed", "concurrency": 2, "context_tokens": CONTEXT, "output_tokens": OUTPUT,
        "requests": REQUESTS, "warmups": 2}  # fmt: skip
SERVED: dict[str, Any] = {
    "model": "robust", "sixteen": "fp16", "backend": {"checkpoint": "shipped", "compute": "fp16", "gpus": 1},
    "command": "", "chat": False, "loads": [LOAD], "largest_cohort": 1, "most_waiting": 1, "ready_timeout_s": 60,
    "grace_s": 30, "connect_s": 30, "stall_s": 60, "request_s": 120, "seed": 20261204,
    "vllm": {"geometry": "", "arms": ARMS, "engine": ENGINE},
}  # fmt: skip
PARAMS: dict[str, Any] = {"arms": list(ARMS), "blocks": 1, "pilot_blocks": 0, "lag_limit_s": 1.0, "served": SERVED}


def asked(arm: str = "k16v8-d", **given: Any) -> Asked:
    """A served cell."""
    base = {"model": "/m", "dummy": False, "scales": None, "observe": (), "calibrate": False, "seed": 3}
    return cell_of(ENGINE, **base | ARMS[arm] | given)


class Served(Stage):
    """A stage in this process, whose servers are the fake's."""

    def __init__(self, directory: Path, **served: Any) -> None:
        directory.mkdir(exist_ok=True)
        request = {
            "stage": "serving", "run": "r", "run_dir": str(directory), "attempt": 1, "roots": [str(paths.ROOT)],
            "params": {**PARAMS, "served": {**SERVED, **served}},
            "inputs": {"model": {"path": str(ROBUST), "sha256": ""}, "scales": {"path": "s", "sha256": ""}},
            "grant": {"cpus": 2, "memory_gib": 1, "gpus": 1, "gpu_ids": None},
        }  # fmt: skip
        (directory / paths.REQUEST).write_text(json.dumps(request))
        super().__init__(directory)
        self.records: list[Any] = []

    def append(self, record: Any) -> None:
        """Keep it here, too."""
        super().append(record)
        self.records.append(record)

    def of(self, kind: type) -> list[Any]:
        """Records of a kind."""
        return [one for one in self.records if isinstance(one, kind)]


@pytest.fixture
def serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Served]:
    """Run the serving stage on fake servers, with a fault or without."""
    monkeypatch.syspath_prepend(str(paths.ROOT / "stages"))
    monkeypatch.setattr(vllm_server, "require_vllm", lambda: None)
    monkeypatch.setattr(vllm_command, "MODULE", "tests.vllm.fake_serve")

    def run(fault: str = "", **served: Any) -> Served:
        import serving

        monkeypatch.setenv("FAKE_FAULT", fault)
        stage = Served(tmp_path / f"stage-{fault}", **served)
        serving.run(stage)
        assert stage._records is not None
        stage._records.close()
        return stage

    return run


def said_by(stage: Served, arm: str) -> dict[str, Any]:
    """What the fake wrote first into its log."""
    log = next((stage.directory / "servers").glob(f"*-{arm}")) / "server.log"
    return dict(json.loads(log.read_text().splitlines()[0]))


def test_both_arms_are_served_attested_and_counted(serve: Callable[..., Served]) -> None:
    stage = serve()
    engines, loads, servers = stage.of(VllmEngine), stage.of(ServedLoad), stage.of(VllmServer)
    assert [(one.arm, one.backend, one.value_format) for one in engines] == [
        ("native", "FlashAttentionBackend", "fp16"), ("k16v8-d", "PagedBackend", "e4m3fn")
    ]  # fmt: skip
    assert [(one.completed, one.failed, one.empty, one.faults) for one in loads] == [(REQUESTS, 0, 0, [])] * 2
    count = REQUESTS + 2
    for one in servers:
        assert (one.prompt_tokens, one.generated_tokens) == (count * CONTEXT, count * OUTPUT)
        assert (one.steps, one.finished, one.preemptions, one.faults) == (2 * count, {"length": count}, 0, [])
    assert servers[0].routes is None and servers[0].fallbacks is None
    assert (servers[1].routes, servers[1].fallbacks) == ({"decode": count, "fresh": count}, 0)
    assert servers[1].replays == {"1": count}
    assert [one.attested_before for one in servers] == [asdict(one) for one in engines], "both attestations, whole"
    assert [(one.attested_after, one.changed) for one in servers] == [(one.attested_before, []) for one in servers]
    told = stage.receipt()
    assert told["effective"]["k16v8-d"]["values"] == "e4m3fn" and told["effective"]["native"]["values"] == "fp16"
    assert "kassay/backend/vllm_serve_worker.py" in told["code"], "the worker's own code is the stage's too"
    assert [(one.died, one.stopped_by) for one in stage.of(ServerRun)] == [(False, "TERM")] * 2
    assert said_by(stage, "native")["plug_ins"] == [], "a native arm is an unpatched vLLM"
    assert said_by(stage, "k16v8-d")["plug_ins"] == ["kassay_vllm"]
    assert len({one.argv_sha256 for one in stage.of(ServerRun)}) == 2
    assert recounted(stage) == []


def test_a_geometry_draws_its_weights_and_says_so(serve: Callable[..., Served]) -> None:
    stage = serve(model="qwen3-8b", vllm={**SERVED["vllm"], "geometry": "qwen3-8b"})
    assert {one.dummy_weights for one in stage.of(VllmEngine)} == {True}
    words = said_by(stage, "k16v8-d")["argv"]
    assert Path(words[1]).name == "qwen3-8b-geometry" and words[words.index("--load-format") + 1] == "dummy"
    whole = json.loads((Path(words[words.index("--tokenizer") + 1]) / "tokenizer.json").read_bytes())
    assert len(whole["model"]["vocab"]) == 151936


def recounted(stage: Served) -> list[str]:
    """Where the audit, which counts every load again from requests and servers, comes to something else."""
    told = compare.Compared(stage="serving")
    entry: Any = SimpleNamespace(name="serving", params=stage.params)
    run: Any = SimpleNamespace(folder=lambda name: stage.directory, plan=SimpleNamespace(stage=lambda name: entry))
    served.recount_loads(run, entry, told)
    assert told.values > 50
    return [one.line() for one in told.differences]


FAULTS = {
    "cached": "prompt tokens came from a cache",
    "fallback": "prefills took the fallback",
    "miscount": "output tokens, its clients were told",
    "changed": "its engine changed `flash_attention` from 3 to 2",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_a_server_did_otherwise_makes_its_loads_invalid(fault: str, serve: Callable[..., Served]) -> None:
    stage = serve(fault)
    said = {one.arm: one.faults for one in stage.of(ServedLoad)}
    assert any(FAULTS[fault] in one for one in said["k16v8-d"]), said
    if fault == "fallback":
        assert said["native"] == []
    if fault == "changed":
        seen = [(one.attested_before["flash_attention"], one.attested_after["flash_attention"], one.changed)
                for one in stage.of(VllmServer)]  # fmt: skip
        assert seen == [(3, 2, ["flash_attention"])] * 2
    assert recounted(stage) == []
    path = stage.directory / paths.RECORDS
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for one in lines:
        if one["schema"].startswith("kassay.served_load/"):
            one["faults"] = []
    path.write_text("".join(json.dumps(one) + "\n" for one in lines))
    assert "faults" in recounted(stage)[0], "and an edited load does not pass"


def test_a_server_that_does_not_attest_is_no_cell(serve: Callable[..., Served]) -> None:
    with pytest.raises(KassayError, match=r"the server of arm `k16v8-d` is invalid.*values are `fp16`"):
        serve("native")
    with pytest.raises(RunError, match="did not answer `kassay_attest`: HTTP 404"):
        serve("silent")
    with pytest.raises(RunError, match="lacks `vllm:num_preemptions_total`"):
        serve("no_metrics")
    with pytest.raises(RunError, match="did not answer `kassay_attest`: HTTP 404"):
        serve("silent_later")


def test_a_server_that_dies_is_the_failure_of_its_requests(serve: Callable[..., Served]) -> None:
    stage = serve("die")
    assert [one.died for one in stage.of(ServerRun)] == [True, True]
    assert all(one.failed == REQUESTS and one.faults == ["the server did not attest after its loads"]
               for one in stage.of(ServedLoad))  # fmt: skip
    assert stage.of(VllmServer) == [] and recounted(stage) == []


def test_a_plug_in_that_is_not_found_ends_the_server(serve: Callable[..., Served], tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(vllm_command, "written_entry_point", lambda folder: empty)
        with pytest.raises(RunError, match="ended before it was ready") as caught:
            serve()
    assert "backend CUSTOM is not registered" in str(caught.value)


def test_the_words_are_those_of_an_offline_cell() -> None:
    words = vllm_command.serve_words(asked(), python="py", name="m", port=8123, tokenizer=Path("/t"))
    assert words[:9] == [
        "py",
        "-m",
        "vllm.entrypoints.cli.main",
        "serve",
        "/m",
        "--host",
        "127.0.0.1",
        "--port",
        "8123",
    ]
    given = dict(pairwise(words))
    assert json.loads(given["--attention-config"]) == {"backend": "CUSTOM"}
    assert json.loads(given["--additional-config"])["kassay"]["recipe"] == "k16v8-d"
    assert json.loads(given["--compilation-config"]) == {
        "mode": 0, "cudagraph_mode": "FULL_DECODE_ONLY", "cudagraph_capture_sizes": [1, 8]
    }  # fmt: skip
    assert {"--no-enable-prefix-caching", "--no-enable-chunked-prefill"} <= set(words)
    assert (given["--kv-cache-memory-bytes"], given["--max-num-seqs"]) == (str(64 << 20), "8")
    native = vllm_command.serve_words(asked("native"), python="py", name="m", port=8123, tokenizer=None)
    assert "--additional-config" not in native and "--tokenizer" not in native
    with pytest.raises(KassayError, match="this vLLM cell is refused"):
        vllm_command.serve_words(asked(sixteen="fp32"), python="py", name="m", port=1, tokenizer=None)


def test_the_environment_has_the_trees_plug_in_or_none(tmp_path: Path) -> None:
    entry = vllm_command.written_entry_point(tmp_path)
    around = {"PATH": "/bin", "PYTHONPATH": "/more", "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_PLUGINS": "other"}
    ours = vllm_command.environment(asked(), entry, around)
    assert ours["PYTHONPATH"].split(":") == [str(entry), str(vllm_command.PLUG_IN), str(paths.ROOT), "/more"]
    assert (ours["VLLM_PLUGINS"], ours["VLLM_SERVER_DEV_MODE"], ours["PATH"]) == ("kassay", "1", "/bin")
    assert "VLLM_ENABLE_V1_MULTIPROCESSING" not in ours and ours["VLLM_NO_USAGE_STATS"] == "1"
    native = vllm_command.environment(asked("native"), entry, around)
    assert native["VLLM_PLUGINS"] == "" and native["PYTHONPATH"] == f"{paths.ROOT}:/more"
    code = "import importlib.metadata as m; (one,) = m.entry_points(group='vllm.general_plugins', name='kassay'); "
    code += "print(one.load().__qualname__, one.dist.version)"
    done = subprocess.run([sys.executable, "-c", code], env=ours, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["register", "0.1.0"]


def test_a_tokenizer_of_characters_is_what_the_models_were_trained_with(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="the tokenizer is read by transformers")
    for size in (vocabulary.SIZE, 1000):
        made = transformers.AutoTokenizer.from_pretrained(vllm_command.written_tokenizer(tmp_path / f"{size}", size))
        text = "the key of a lock is 7.\n"
        assert made(text).input_ids == vocabulary.encode_context(text) and len(made) == size
        assert made.decode(vocabulary.encode_context(text), skip_special_tokens=True) == text
        assert all(made.decode([token]) for token in range(2, size)), "whatever is generated is a text"


def test_the_serving_stages_are_unmet_without_vllm(tmp_path: Path) -> None:
    if find_spec("vllm") is not None:
        pytest.skip("vLLM is installed here")
    scales = tmp_path / "scales.json"
    scales.write_text("{}")
    inputs = {"model": ROBUST, "scales": scales}
    ran: Ran = runner(tmp_path)("serving", PARAMS, inputs)
    assert (ran.code, ran.outcome.word) == (4, "unmet"), ran.stderr
    assert ran.outcome.reason == "vLLM is not installed in the stack's environment"


def test_the_shipped_servers_are_allowed_and_hold_their_loads(tmp_path: Path) -> None:
    found = stages_of("vllm-serving", tmp_path / ".config")
    params = found["serving"]
    told = params["served"]["vllm"]
    stage: Any = SimpleNamespace(params=params, directory=tmp_path, inputs={"scales": "s", "model": ROBUST})
    assert params["arms"] == ["native", "k16v8-f"] and set(params["arms"]) <= set(told["arms"])
    for arm in told["arms"]:
        cell = vllm_server.asked_of(stage, arm)
        vllm_command.serve_words(cell, python="py", name="m", port=1, tokenizer=None)
        assert cell.dummy and max(cell.graphs) == cell.sequences >= params["served"]["loads"][0]["concurrency"]
        assert cell.sequence_tokens == 8192 + 128
    for check, tool in (("check-vllm", "vllm"), ("check-aiperf", "aiperf")):
        assert (found[check]["tool"], found[check]["arm"]) == (tool, "k16v8-f")
    params["served"]["vllm"]["geometry"] = ""
    given = vllm_server.asked_of(stage, "k16v8-f")
    assert (given.model, given.dummy) == (str(ROBUST), False)
