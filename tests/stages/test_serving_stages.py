"""The serving stages as programs: real servers, injected failures, and what is concluded from them."""

import json
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kassay import paths
from kassay.serving import arrivals
from tests.serving.test_server import MODEL, scales_at, written
from tests.stages.conftest import Ran

HERE = paths.ROOT / "tests" / "serving"
FAULTS = ["pass", "http_500", "pass", "empty", "stalled", "truncated", "reset", "pass", "refuse"]
CONTEXT, OUTPUT = 96, 8
CLOSED: dict[str, Any] = {"name": "closed", "concurrency": 1, "context_tokens": CONTEXT, "output_tokens": OUTPUT}


def params(**changes: Any) -> dict[str, Any]:
    """Params of stages/serving.py at the smallest size."""
    served = {
        "model": "robust",
        "sixteen": "fp16",
        "backend": {"checkpoint": "shipped", "compute": "fp32", "gpus": 0},
        "command": "",
        "chat": False,
        "loads": [{**CLOSED, "requests": 12, "warmups": 0}],
        "largest_cohort": 2,
        "most_waiting": 8,
        "ready_timeout_s": 60,
        "grace_s": 30,
        "connect_s": 5,
        "stall_s": 60,
        "request_s": 120,
        "seed": 1,
    }
    given = {"arms": ["native", "k16v8-f"], "blocks": 1, "pilot_blocks": 0, "lag_limit_s": 1.0}
    return {**given, "served": served | changes}


def study(**changes: Any) -> dict[str, Any]:
    """What stages/serving_verdict.py judges by."""
    rules = {"blocks": 2, "alpha": 0.05, "interval_alpha": 0.05, "screen_ratio": 1.01}
    family = [{"load": "closed", "quantity": "tokens_per_s"}, {"load": "closed", "quantity": "latency_s.p95"}]
    return {"control": "native", "candidates": ["k16v8-f"], "family": family, **rules, **changes}


def judged(run_stage: Callable[..., Ran], ran: Ran, **changes: Any) -> Ran:
    """The verdict over what a serving stage left."""
    inputs = {"serving": ran.directory / "records.jsonl", "orders": ran.directory / "orders.json"}
    return run_stage("serving_verdict", {"model": "robust", "study": study(**changes)}, inputs)


@pytest.fixture
def inputs(tmp_path: Path) -> dict[str, Path]:
    """A model and its scales."""
    return {"model": MODEL, "scales": scales_at(tmp_path / "scales.json")}


def test_both_arms_by_the_in_tree_server(run_stage: Callable[..., Ran], inputs: dict[str, Path]) -> None:
    """Closed and open, warm-ups marked, the server's counts, its code in the receipt, and no process left."""
    opened = {"name": "open", "per_minute": 600, "arrivals": "poisson", "context_tokens": CONTEXT, "output_tokens": 4}
    loads = [{**CLOSED, "concurrency": 2, "requests": 6, "warmups": 2}, {**opened, "requests": 6, "warmups": 0}]
    ran = run_stage("serving", params(loads=loads), inputs, cpus=2)
    assert (ran.code, ran.outcome.word) == (0, "passed"), ran.stderr
    requests, made, servers = ran.records("served_request"), ran.records("served_load"), ran.records("server_run")
    assert len(requests) == 2 * (6 + 2 + 6) and {one["status"] for one in requests} == {"ok"}
    assert sum(one["warmup"] for one in requests) == 4
    assert [(one["requests"], one["completed"]) for one in made] == [(6, 6)] * 4
    assert [bool(one["faults"]) for one in made] == [off_schedule(one) for one in made]
    assert {(one["arm"], one["prompts_sha256"]) for one in made if one["load"] == "open"} == {
        (arm, made[1]["prompts_sha256"]) for arm in ("native", "k16v8-f")
    }, "all arms of a block answer the same prompts"
    assert made[0]["prompts_sha256"] != made[1]["prompts_sha256"], "and no load those of another one"
    assert {one["prompt_tokens"] for one in requests} == {CONTEXT} and made[0]["output_tokens"] == 6 * OUTPUT
    counted = {one["request_id"] for one in ran.records("server_request")}
    assert counted == {one["request_id"] for one in requests}
    assert made[1]["schedule_per_s"] == pytest.approx(10) and made[0]["most_in_flight"] == 2
    assert [(one["died"], one["stopped_by"], one["exit_code"]) for one in servers] == [(False, "TERM", 0)] * 2
    assert not any(Path(f"/proc/{one['pid']}").exists() for one in servers)
    code = json.loads((ran.directory / "receipt.json").read_text())["code"]
    assert {"stages/serving_server.py", "kassay/backend/cohort.py", "kassay/kv/cache.py"} <= set(code)
    assert (ran.directory / "servers" / "block-0-0-native" / "server.log").stat().st_size


def off_schedule(load: dict[str, Any]) -> bool:
    """Whether an open loop's starts were off by so much that it is no evidence: 10 ms of half a second are enough."""
    planned, kept = load["schedule_per_s"], load["achieved_per_s"]
    return planned is not None and abs(kept / planned - 1) > arrivals.RATE_SHARE


def test_every_injected_failure_is_counted(
    run_stage: Callable[..., Ran], inputs: dict[str, Path], tmp_path: Path
) -> None:
    """HTTP 500, an empty stream, a stall, a cut stream, a reset, refused connections, before the real server.

    The control is served by a fake without faults.
    """
    written(tmp_path / "k16v8-f", "k16v8-f", 0)
    command = f"{{python}} {HERE / 'proxy.py'} --port {{port}} --server {tmp_path}/{{recipe}} {' '.join(FAULTS)}"
    ran = run_stage("serving", params(command=command, stall_s=4), inputs, cpus=2)
    assert (ran.code, ran.outcome.word) == (0, "passed"), ran.stderr
    made = {one["arm"]: one for one in ran.records("served_load")}["k16v8-f"]
    done = [json.loads(line) for line in (tmp_path / "k16v8-f" / "proxy.jsonl").read_text().splitlines()]
    assert done == FAULTS, "the proxy saw the first nine"
    wanted = Counter({"http_500": 1, "stalled": 1, "truncated": 1, "reset": 1, "refused": 12 - len(FAULTS)})
    assert Counter(made["errors"]) == wanted and made["empty"] == 1
    assert (made["requests"], made["completed"], made["failed"]) == (12, 4, wanted.total())
    assert made["ttft_s"]["n"] == made["latency_s"]["n"] == made["tpot_s"]["n"] == 4
    assert made["window_s"] > 4, "the stall is part of the window"
    own = [one for one in ran.records("served_request") if one["arm"] == "k16v8-f"]
    assert [one["status"] for one in own[:4]] == ["ok", "failed", "ok", "empty"]
    assert all(one["detail"] for one in own if one["status"] == "failed")
    assert {one["status"] for one in ran.records("served_request") if one["arm"] == "native"} == {"ok"}
    verdict = judged(run_stage, twice(ran))
    assert (verdict.code, verdict.outcome.word) == (3, "rejected")
    assert verdict.outcome.reason == "k16v8-f, closed: 14 failed, 2 empty"
    assert {one["verdict"] for one in verdict.records("serving_contrast")} == {"no confirmed gain"}
    assert {one["arm"]: one["verdict"] for one in verdict.records("serving_gate")} == {
        "native": "pass",
        "k16v8-f": "fails",
    }


def twice(ran: Ran) -> Ran:
    """A second block beside the first, with prompts of its own, so that a verdict can be had."""
    path = ran.directory / "records.jsonl"
    bodies = [json.loads(line) for line in path.read_text().splitlines()]
    more = [
        body | {"block": 1} | ({"prompts_sha256": "other"} if "prompts_sha256" in body else {})
        for body in bodies
        if body["schema"].startswith(("kassay.served_load/", "kassay.server_run/"))
    ]
    path.write_text("".join(json.dumps(body) + "\n" for body in [*bodies, *more]))
    orders = json.loads((ran.directory / "orders.json").read_text())
    (ran.directory / "orders.json").write_text(json.dumps({**orders, "orders": orders["orders"] * 2}))
    return ran


def test_a_server_that_dies_is_the_failure_of_its_requests(
    run_stage: Callable[..., Ran], inputs: dict[str, Path]
) -> None:
    """It answers three and dies at the fourth; the second arm's server, a fresh one, does the same."""
    command = f"{{python}} {HERE / 'fake.py'} --port {{port}} ok ok ok die"
    ran = run_stage("serving", params(command=command), inputs)
    assert (ran.code, ran.outcome.word) == (0, "passed"), ran.stderr
    for made in ran.records("served_load"):
        assert (made["completed"], made["failed"], sum(made["errors"].values())) == (3, 9, 9)
        assert set(made["errors"]) <= {"disconnected", "reset", "refused"} and made["errors"]["refused"] >= 7
    assert [(one["died"], one["stopped_by"], one["exit_code"]) for one in ran.records("server_run")] == [
        (True, "itself", 9)
    ] * 2
    verdict = judged(run_stage, twice(ran))
    assert verdict.code == 3 and "the server of native died in block 0" in verdict.outcome.reason
    assert {one["verdict"] for one in verdict.records("serving_contrast")} == {"invalidated"}


def test_a_foreign_server_that_works_is_served_and_descriptive(
    run_stage: Callable[..., Ran], inputs: dict[str, Path], tmp_path: Path
) -> None:
    command = f"{{python}} {HERE / 'fake.py'} --port {{port}}"
    ran = run_stage("serving", {**params(command=command, chat=True), "blocks": 2}, inputs)
    assert (ran.code, ran.outcome.word) == (0, "passed"), ran.stderr
    verdict = judged(run_stage, ran)
    assert (verdict.code, verdict.outcome.word) == (0, "passed"), verdict.stderr
    assert {(one["verdict"], one["certificate"]) for one in verdict.records("serving_contrast")} == {
        ("descriptive", "none")
    }
    certificates = tmp_path / "certificates.json"
    made = {"model": "robust", "candidate": "k16v8-f", "objective": "preservation", "verdict": "pass"}
    certificates.write_text(json.dumps([made]))
    given = {"serving": ran.directory / "records.jsonl", "orders": ran.directory / "orders.json"}
    given["certificates"] = certificates
    certified = run_stage("serving_verdict", {"model": "robust", "study": study()}, given)
    assert {one["certificate"] for one in certified.records("serving_contrast")} == {"pass"}
    assert {one["verdict"] for one in certified.records("serving_contrast")} == {"no confirmed gain"}, "two blocks"
    certificates.write_text(json.dumps([made, made | {"verdict": "unestablished"}]))  # against another control
    both = run_stage("serving_verdict", {"model": "robust", "study": study()}, given)
    assert {one["certificate"] for one in both.records("serving_contrast")} == {"unestablished"}
    certificates.write_text(json.dumps([made, made | {"objective": "aggregate-math"}]))
    refused = run_stage("serving_verdict", {"model": "robust", "study": study()}, given)
    assert refused.code == 1 and "objectives aggregate-math, preservation, allowed is one" in refused.outcome.reason


def test_a_command_that_never_serves_is_a_crash_with_its_last_words(
    run_stage: Callable[..., Ran], inputs: dict[str, Path]
) -> None:
    ran = run_stage("serving", params(command="sh -c 'echo no such model {port} >&2; exit 3'"), inputs)
    assert ran.code == 1 and "no such model" in ran.outcome.reason


TOOL = """#!{python}
import json, pathlib, sys, urllib.request
argv = dict(zip(sys.argv[1:], sys.argv[2:]))
folder = pathlib.Path(argv["--artifact-dir"]); folder.mkdir()
prompts = [json.loads(line)["text"] for line in open(argv["--input-file"])]
lines = []
for number, prompt in enumerate(prompts[: int(argv["--request-count"]) - {short}]):
    body = {{"model": argv["--model"], "prompt": prompt, "max_tokens": 8, "stream": True}}
    url = argv["--url"] + "/v1/completions"
    with urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode())) as answer:
        answer.read()
    values = {{"time_to_first_token": 5.0, "request_latency": 9.0, "usage_completion_tokens": 8}}
    metadata = {{"benchmark_phase": "profiling", "request_start_ns": number}}
    lines.append({{"metadata": metadata, "metrics": {{name: {{"value": value}} for name, value in values.items()}}}})
(folder / "profile_export.jsonl").write_text("".join(json.dumps(line) + chr(10) for line in lines))
summary = {{"aiperf_version": "0", "is_complete": {complete}, "was_cancelled": False}}
(folder / "profile_export_aiperf.json").write_text(json.dumps(summary))
raise SystemExit({code})
"""


@pytest.mark.parametrize(
    ("short", "complete", "code", "word"),
    [(0, True, 0, "passed"), (0, True, 1, "passed"), (1, True, 0, "rejected"), (0, False, 0, "rejected")],
)
def test_another_tool_is_judged_by_its_json_and_never_by_its_exit_status(
    short: int,
    complete: bool,
    code: int,
    word: str,
    run_stage: Callable[..., Ran],
    inputs: dict[str, Path],
    tmp_path: Path,
) -> None:
    tool = tmp_path / "bin" / "aiperf"
    tool.parent.mkdir()
    tool.write_text(TOOL.format(python=sys.executable, short=short, complete=complete, code=code))
    tool.chmod(0o755)
    stack = tmp_path / "stack.json"
    stack.write_text(json.dumps({"python": str(tool.with_name("python")), "modules": {"aiperf": "0.13.0"}}))
    served = params(command=f"{{python}} {HERE / 'fake.py'} --port {{port}}")["served"]
    served["loads"] = [{**CLOSED, "requests": 4, "warmups": 0}]
    given = {"tool": "aiperf", "arm": "native", "tool_timeout_s": 30, "served": served}
    ran = run_stage("serving_check", given, {**inputs, "tool": stack})
    assert ran.outcome.word == word, ran.stderr
    (record,) = ran.records("serving_check")
    assert (record["exit_code"], record["completed"], record["requests"]) == (code, 4 - short, 4)
    assert bool(record["faults"]) == (word == "rejected")


VLLM = """#!{python}
import json, pathlib, sys, time, urllib.request
argv = dict(zip(sys.argv[1:], sys.argv[2:]))
assert sys.argv[1:3] == ["bench", "serve"] and {{"--save-result", "--save-detailed"}} <= set(sys.argv)
prompts = [json.loads(line)["prompt"] for line in open(argv["--dataset-path"])]
lists = dict(output_lens=[], ttfts=[], itls=[], errors=[], start_times=[])
for prompt in prompts[: int(argv["--num-prompts"])]:
    body = {{"model": argv["--model"], "prompt": prompt, "max_tokens": 8, "stream": True}}
    url = "http://" + argv["--host"] + ":" + argv["--port"] + argv["--endpoint"]
    began = time.perf_counter()
    with urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode())) as answer:
        answer.read()
    told = [8, time.perf_counter() - began, [0.001] * 7, "", began]
    for name, value in zip(lists, told):
        lists[name].append(value)
count = len(prompts)
totals = dict(num_prompts=count, completed=count - {lost}, failed={lost}, total_output_tokens=8 * count)
target = pathlib.Path(argv["--result-dir"]) / argv["--result-filename"]
target.write_text(json.dumps(totals | lists))
"""


@pytest.mark.parametrize(("lost", "word"), [(0, "passed"), (1, "rejected")])
def test_vllm_bench_serve_is_judged_by_its_detailed_report(
    lost: int, word: str, run_stage: Callable[..., Ran], inputs: dict[str, Path], tmp_path: Path
) -> None:
    """What stands for `vllm` sends real requests and writes the documented fields; one report contradicts itself."""
    tool = tmp_path / "bin" / "vllm"
    tool.parent.mkdir()
    tool.write_text(VLLM.format(python=sys.executable, lost=lost))
    tool.chmod(0o755)
    stack = tmp_path / "stack.json"
    stack.write_text(json.dumps({"python": str(tool.with_name("python")), "modules": {"vllm": "0.32.0"}}))
    served = params(command=f"{{python}} {HERE / 'fake.py'} --port {{port}}")["served"]
    served["loads"] = [{**CLOSED, "requests": 4, "warmups": 0}]
    given = {"tool": "vllm", "arm": "native", "tool_timeout_s": 30, "served": served}
    ran = run_stage("serving_check", given, {**inputs, "tool": stack})
    assert ran.outcome.word == word, ran.stderr
    (record,) = ran.records("serving_check")
    assert (record["tool"], record["version"], record["completed"], record["output_tokens"]) == (
        "vllm",
        "0.32.0",
        4,
        32,
    )
    assert bool(record["faults"]) == (word == "rejected")
