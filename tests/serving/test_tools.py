"""Other tools: what they are asked, and that their JSON is read as it is, whatever their exit status was."""

import json
from pathlib import Path
from typing import Any

import pytest

from kassay.errors import RunError
from kassay.kv.tasks import vocabulary
from kassay.serving import tools
from kassay.serving.client import Planned
from tests.serving.test_client import target_of

OPEN = {"name": "open", "per_s": 4.0, "arrivals": "poisson", "requests": 3, "output_tokens": 32}
CLOSED = {"name": "closed", "concurrency": 2, "requests": 3, "output_tokens": 32}


def pairs(argv: list[str]) -> dict[str, str]:
    """Options and their values."""
    return {word: argv[at + 1] for at, word in enumerate(argv[:-1]) if word.startswith("--")}


def test_aiperf_is_asked_for_the_servers_counts_and_a_forced_length() -> None:
    argv = tools.aiperf_argv(Path("/e/bin/aiperf"), target_of(80), OPEN, Path("/f"), Path("/t"), 7)
    given = pairs(argv)
    assert argv[:2] == ["/e/bin/aiperf", "profile"] and {"--streaming", "--use-server-token-count"} <= set(argv)
    assert (given["--request-rate"], given["--arrival-pattern"], given["--request-count"]) == ("4", "poisson", "3")
    assert "ignore_eos:true" in argv and given["--output-tokens-mean"] == "32" and "--concurrency" not in given
    closed = pairs(tools.aiperf_argv(Path("/e/bin/aiperf"), target_of(80), CLOSED, Path("/f"), Path("/t"), 7))
    assert closed["--concurrency"] == "2" and "--request-rate" not in closed


def test_vllm_is_asked_for_the_same() -> None:
    argv = tools.vllm_argv(Path("/e/bin/vllm"), target_of(80), OPEN, Path("/f"), Path("/t"), 7)
    given = pairs(argv)
    assert argv[:3] == ["/e/bin/vllm", "bench", "serve"] and {"--ignore-eos", "--save-detailed"} <= set(argv)
    assert (given["--request-rate"], given["--num-prompts"], given["--custom-output-len"]) == ("4", "3", "32")
    assert "--max-concurrency" in pairs(tools.vllm_argv(Path("/e"), target_of(80), CLOSED, Path("/f"), Path("/t"), 7))


def aiperf_left(folder: Path, *, cancelled: bool = False, failed: int = 1) -> Path:
    """A report of aiperf 0.13.0 with two requests that ended and one that failed, cut to what is read."""
    (folder / "aiperf").mkdir(parents=True)
    summary = {"aiperf_version": "0.13.0", "is_complete": not cancelled, "was_cancelled": cancelled}
    (folder / "aiperf" / "profile_export_aiperf.json").write_text(json.dumps(summary))
    lines: list[dict[str, Any]] = [metrics_line(start, 70.0 + start, 120.0) for start in (0, 1)]
    for _ in range(failed):
        lines.append({"metadata": metadata(2), "metrics": {}, "error": {"type": "ClientConnectorError"}})
    lines.append({"metadata": metadata(9) | {"benchmark_phase": "warmup"}, "metrics": {}})
    (folder / "aiperf" / "profile_export.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def metadata(start_s: int) -> dict[str, Any]:
    """Of a request."""
    return {"benchmark_phase": "profiling", "request_start_ns": start_s * 10**9}


def metrics_line(start_s: int, ttft_ms: float, latency_ms: float) -> dict[str, Any]:
    """Of a request that ended."""
    values = {"time_to_first_token": ttft_ms, "request_latency": latency_ms, "usage_completion_tokens": 32}
    return {"metadata": metadata(start_s), "metrics": {name: {"value": value} for name, value in values.items()}}


def test_aiperfs_own_records_are_read(tmp_path: Path) -> None:
    told = tools.read_aiperf(aiperf_left(tmp_path))
    assert (told.complete, told.completed, told.failed, told.output_tokens) == (True, 2, 1, 64)
    assert told.starts_s == [0.0, 1.0, 2.0] and told.ttft_p50_s == 0.0705 and told.latency_p50_s == 0.12


def test_a_cancelled_run_of_aiperf_is_not_complete_though_it_exits_0(tmp_path: Path) -> None:
    assert tools.read_aiperf(aiperf_left(tmp_path, cancelled=True)).complete is False


def test_where_every_request_failed_aiperf_leaves_no_summary(tmp_path: Path) -> None:
    (aiperf_left(tmp_path) / "aiperf" / "profile_export_aiperf.json").unlink()
    line = json.dumps({"metadata": metadata(0), "metrics": {}, "error": {"type": "ClientConnectorError"}})
    (tmp_path / "aiperf" / "profile_export.jsonl").write_text(f"{line}\n{line}\n")
    told = tools.read_aiperf(tmp_path)
    assert (told.complete, told.completed, told.failed, told.output_tokens) == (False, 0, 2, 0)
    assert told.ttft_p50_s is None


def test_no_report_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="left no report"):
        tools.read_aiperf(tmp_path)
    (tmp_path / "vllm.json").write_text("[]")
    with pytest.raises(RunError, match="no JSON object"):
        tools.read_vllm(tmp_path)


DETAILED: dict[str, Any] = {  # of `vllm bench serve --save-result --save-detailed`, cut to what is read
    "num_prompts": 3,
    "completed": 2,
    "failed": 1,
    "total_output_tokens": 64,
    "output_lens": [32, 0, 32],
    "ttfts": [0.1, 0.0, 0.3],
    "itls": [[0.1, 0.1], [], [0.1]],
    "errors": ["", "refused", ""],
    "start_times": [5.0, 4.0, 6.0],
}


def vllm_told(folder: Path, **changes: Any) -> tools.Told:
    """What is read of a report; a change to None takes the field away."""
    body = {name: value for name, value in {**DETAILED, **changes}.items() if value is not None}
    (folder / "vllm.json").write_text(json.dumps(body))
    return tools.read_vllm(folder)


def test_vllms_detailed_result_is_read(tmp_path: Path) -> None:
    for changes in ({}, {"failed": None}):  # which older ones do not tell
        told = vllm_told(tmp_path, **changes)
        assert (told.complete, told.completed, told.failed, told.output_tokens) == (True, 2, 1, 64)
        assert told.ttft_p50_s == pytest.approx(0.2) and told.latency_p50_s == pytest.approx(0.35)
        assert told.starts_s == [4.0, 5.0, 6.0]


def test_a_success_of_vllms_without_a_token_or_a_time_is_a_failure(tmp_path: Path) -> None:
    """Its times of failed requests are zeros, which would pull every median down."""
    told = vllm_told(tmp_path, output_lens=[32, 0, 0], total_output_tokens=32)
    assert (told.complete, told.completed, told.failed, told.output_tokens) == (False, 1, 2, 32)
    assert told.ttft_p50_s == pytest.approx(0.1)
    assert vllm_told(tmp_path, ttfts=[0.1, 0.0, 0.0]).failed == 2
    none = vllm_told(tmp_path, errors=["a", "b", "c"], completed=0, failed=3, total_output_tokens=0)
    assert (none.complete, none.completed, none.ttft_p50_s, none.latency_p50_s) == (True, 0, None, None)


@pytest.mark.parametrize(
    "changes",
    [{"completed": 3}, {"num_prompts": 4}, {"total_output_tokens": 65}, {"failed": 0}],
)
def test_a_report_of_vllms_that_contradicts_itself_is_not_complete(tmp_path: Path, changes: dict[str, int]) -> None:
    assert vllm_told(tmp_path, **changes).complete is False


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"ttfts": None, "start_times": None}, "lacks `ttfts`, `start_times`"),
        ({"completed": None}, "lacks `completed`"),
        ({"itls": [[0.1], []]}, "not of the same requests: `output_lens` 3, `ttfts` 3, `itls` 2"),
        ({"errors": "none"}, "`errors` no list"),
        ({"ttfts": [0.1, 0.0, float("nan")]}, "nan where a time"),
        ({"itls": [[0.1, -1.0], [], [0.1]]}, "-1.0 where a time"),
        ({"output_lens": [32, 0, "32"]}, "'32' where a time or a count"),
    ],
)
def test_a_report_of_vllms_that_is_not_whole_is_an_error(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(RunError, match=words):
        vllm_told(tmp_path, **changes)


def test_the_character_tokenizer_is_the_models_vocabulary(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    folder = tools.write_character_tokenizer(tmp_path / "tokenizer")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    text = "ada the baker of oslo\nhas 12 coins."
    assert tokenizer(text, add_special_tokens=False)["input_ids"] == vocabulary.encode(text)


def test_both_read_the_same_prompts(tmp_path: Path) -> None:
    tools.write_prompts(tmp_path, [Planned(request_id="a", prompt="x y")])
    assert json.loads((tmp_path / "prompts.jsonl").read_text()) == {"text": "x y", "prompt": "x y"}


# --- what a real `vllm bench serve` 0.25.1 wrote of six requests to the in-tree server behind a proxy: one passed, one
# stalled and was reset, one had a 500, one an empty stream, one was cut, one was reset. Errors are cut to their last
# line and the tokenizer's place to its name, nothing else is changed (docs/findings/2026-11-30-vllm-bench.md).
REAL = json.loads((Path(__file__).parent / "vllm-bench-0.25.1.json").read_text())


def test_a_real_report_of_vllms_is_read_with_its_failures(tmp_path: Path) -> None:
    (tmp_path / "vllm.json").write_text(json.dumps(REAL))
    told = tools.read_vllm(tmp_path)
    assert (told.complete, told.completed, told.failed, told.output_tokens) == (True, 1, 5, 8)
    assert told.ttft_p50_s == pytest.approx(REAL["ttfts"][0])
    assert told.latency_p50_s == pytest.approx(REAL["ttfts"][0] + sum(REAL["itls"][0]))
    assert len(told.starts_s) == 6 and told.starts_s == sorted(REAL["start_times"])


@pytest.mark.parametrize("name", [*tools.VLLM_LISTS, *tools.VLLM_TOTALS])
def test_every_field_that_is_read_stands_in_the_real_report(name: str, tmp_path: Path) -> None:
    assert name in REAL
    (tmp_path / "vllm.json").write_text(json.dumps({key: value for key, value in REAL.items() if key != name}))
    with pytest.raises(RunError, match=f"lacks `{name}`"):
        tools.read_vllm(tmp_path)


def test_a_cut_stream_has_times_and_is_a_failure_all_the_same(tmp_path: Path) -> None:
    """The fifth request told a time to first token and three gaps before it broke off."""
    assert REAL["ttfts"][4] > 0 and REAL["itls"][4] and REAL["errors"][4] and REAL["output_lens"][4] == 0
    silent = {**REAL, "errors": [*REAL["errors"][:4], "", REAL["errors"][5]]}
    (tmp_path / "vllm.json").write_text(json.dumps(silent))
    assert tools.read_vllm(tmp_path).failed == 5, "an error that is not told is not taken for a success"


def test_vllms_gaps_are_those_that_were_asked_for() -> None:
    """Without a burstiness vLLM draws a Poisson process: its real run of a load of constant gaps was refused."""
    for arrivals, shape in (("poisson", "1"), ("constant", "inf")):
        load = {**OPEN, "arrivals": arrivals}
        given = pairs(tools.vllm_argv(Path("/e/bin/vllm"), target_of(80), load, Path("/f"), Path("/t"), 7))
        assert (given["--request-rate"], given["--burstiness"]) == ("4", shape)
    assert "--burstiness" not in pairs(tools.vllm_argv(Path("/e"), target_of(80), CLOSED, Path("/f"), Path("/t"), 7))


@pytest.mark.parametrize("load", [CLOSED, OPEN, {**OPEN, "arrivals": "constant"}])
def test_vllms_own_parser_takes_every_word(load: dict[str, Any]) -> None:
    """Where vLLM is installed: no option has another name there, and none is taken for another one."""
    serve = pytest.importorskip("vllm.benchmarks.serve", reason="vLLM is not installed here", exc_type=ImportError)
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    argv = tools.vllm_argv(Path("/e/bin/vllm"), target_of(80), load, Path("/f"), Path("/t"), 7)
    parser = FlexibleArgumentParser()
    serve.add_cli_args(parser)
    known = {word for action in parser._actions for word in action.option_strings}
    assert {word for word in argv[3:] if word.startswith("--")} <= known
    asked = parser.parse_args(argv[3:])
    assert (asked.dataset_name, asked.custom_output_len, asked.num_prompts) == ("custom", 32, 3)
    assert asked.ignore_eos and asked.save_detailed and asked.disable_shuffle and asked.skip_chat_template
    assert asked.max_concurrency == load.get("concurrency") and asked.request_rate == load.get("per_s", float("inf"))
