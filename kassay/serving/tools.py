"""The same load by another tool: its command, and what its own JSON says; its exit status is never believed.

    aiperf   NVIDIA's, in an environment of its own; measured with 0.13.0 (docs/findings/2026-11-30-serving.md). It
             exits 0 with 17 % failures, divides by its own token counts unless --use-server-token-count is given, and
             finds a local tokenizer only while HF_HUB_OFFLINE is not set.
    vllm     `vllm bench serve` of the stack's own vLLM; run with 0.25.1 (docs/findings/2026-11-30-vllm-bench.md). Its
             gaps are scaled to the offered rate, and are those of a Poisson process unless a burstiness is given.

Both send greedy requests of a forced length from texts that we give them, each text once, in order where they can.
"""

import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kassay import digest
from kassay.errors import RunError
from kassay.kv.tasks import vocabulary
from kassay.serving.client import NS_PER_S, Planned, Target
from kassay.serving.loops import Load

MS_PER_S = 1000
VLLM_TOTALS = ("num_prompts", "completed", "total_output_tokens")
VLLM_LISTS = ("output_lens", "ttfts", "itls", "errors", "start_times")  # of --save-detailed, one entry a request
BURSTINESS = {"poisson": "1", "constant": "inf"}  # shape of the gamma distribution that vLLM draws gaps from
DROPPED = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")  # aiperf then takes a folder for the name of a repository


@dataclass(frozen=True, kw_only=True)
class Told:
    """What a tool says of its load."""

    complete: bool
    completed: int
    failed: int
    output_tokens: int | None  # the server's counts, as the tool passes them on
    starts_s: list[float]  # of all requests, in order, on a clock of its own
    ttft_p50_s: float | None
    latency_p50_s: float | None


def aiperf_argv(program: Path, target: Target, load: Load, folder: Path, tokenizer: Path, seed: int) -> list[str]:
    """The command of aiperf."""
    asked = {
        "--model": target.model,
        "--url": f"http://{target.host}:{target.port}",
        "--endpoint-type": "chat" if target.chat else "completions",
        "--tokenizer": str(tokenizer),
        "--input-file": str(folder / "prompts.jsonl"),
        "--custom-dataset-type": "single_turn",
        "--dataset-sampling-strategy": "sequential",
        "--output-tokens-mean": str(load["output_tokens"]),
        "--output-tokens-stddev": "0",
        "--request-count": str(load["requests"]),
        "--random-seed": str(seed % 2**31),
        "--request-timeout-seconds": f"{target.limits.request_s:g}",
        "--export-level": "records",
        "--ui": "none",
        "--artifact-dir": str(folder / "aiperf"),
    }
    if "concurrency" in load:
        asked["--concurrency"] = str(load["concurrency"])
    else:
        asked |= {"--request-rate": f"{load['per_s']:g}", "--arrival-pattern": load["arrivals"]}
    flags = ["--streaming", "--use-server-token-count", "--use-legacy-max-tokens"]
    flags += ["--no-server-metrics", "--no-gpu-telemetry"]
    flags += ["--extra-inputs", "ignore_eos:true", "--extra-inputs", "temperature:0"]
    words = [word for pair in asked.items() for word in pair]
    return [str(program), "profile", *words, *flags]


def vllm_argv(program: Path, target: Target, load: Load, folder: Path, tokenizer: Path, seed: int) -> list[str]:
    """The command of `vllm bench serve`."""
    asked = {
        "--backend": "openai-chat" if target.chat else "openai",
        "--endpoint": target.path,
        "--host": target.host,
        "--port": str(target.port),
        "--model": target.model,
        "--tokenizer": str(tokenizer),
        "--dataset-name": "custom",
        "--dataset-path": str(folder / "prompts.jsonl"),
        "--custom-output-len": str(load["output_tokens"]),
        "--num-prompts": str(load["requests"]),
        "--seed": str(seed % 2**31),
        "--temperature": "0",
        "--ready-check-timeout-sec": "0",  # else a request that is in no report
        "--result-dir": str(folder),
        "--result-filename": "vllm.json",
    }
    if "concurrency" in load:
        asked["--max-concurrency"] = str(load["concurrency"])
    else:
        asked |= {"--request-rate": f"{load['per_s']:g}", "--burstiness": BURSTINESS[load["arrivals"]]}
    flags = ["--save-result", "--save-detailed", "--ignore-eos", "--disable-shuffle", "--skip-chat-template"]
    words = [word for pair in asked.items() for word in pair]
    return [str(program), "bench", "serve", *words, *flags]


def write_prompts(folder: Path, planned: Sequence[Planned]) -> None:
    """The texts, in the form that each of the two reads."""
    lines = [json.dumps({"text": one.prompt, "prompt": one.prompt}) for one in planned]
    (folder / "prompts.jsonl").write_text("".join(f"{line}\n" for line in lines))


def write_character_tokenizer(folder: Path) -> Path:
    """The shipped models' vocabulary as a tokenizer's folder: a token a character, its id the ASCII code."""
    folder.mkdir()
    vocab = {"<pad>": vocabulary.PAD, "<begin>": vocabulary.BEGIN}
    vocab |= {chr(token): token for token in range(2, vocabulary.SIZE)}
    split = {"type": "Split", "pattern": {"Regex": "[\\s\\S]"}, "behavior": "Isolated", "invert": False}
    nothing = dict.fromkeys(("truncation", "padding", "normalizer", "post_processor"))
    model = {"type": "WordLevel", "vocab": vocab, "unk_token": "<pad>"}
    whole: dict[str, Any] = {
        "version": "1.0",
        **nothing,
        "added_tokens": [],
        "pre_tokenizer": split,
        "decoder": {"type": "Fuse"},
    }
    digest.write_json(folder / "tokenizer.json", {**whole, "model": model})
    names = {"bos_token": "<begin>", "pad_token": "<pad>", "unk_token": "<pad>"}
    digest.write_json(folder / "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast", **names})
    return folder


def read_aiperf(folder: Path) -> Told:
    """What aiperf left. Raises RunError where it left nothing. It leaves no summary where every request failed."""
    path = folder / "aiperf" / "profile_export.jsonl"
    if not path.is_file():
        raise RunError(f"the tool left no report: no {path.name}", hint=f"its log is {folder / 'tool.log'}")
    records = [json.loads(line) for line in path.read_text().splitlines()]
    whole = path.with_name("profile_export_aiperf.json")
    summary = loaded(whole) if whole.is_file() else {}
    sent = [one for one in records if one["metadata"]["benchmark_phase"] == "profiling"]
    good = [one["metrics"] for one in sent if not one.get("error")]
    counts = [one["usage_completion_tokens"]["value"] for one in good if "usage_completion_tokens" in one]
    return Told(
        complete=summary.get("is_complete") is True and summary.get("was_cancelled") is False,
        completed=len(good),
        failed=len(sent) - len(good),
        output_tokens=sum(counts) if len(counts) == len(good) else None,
        starts_s=sorted(one["metadata"]["request_start_ns"] / NS_PER_S for one in sent),
        ttft_p50_s=median_s([one["time_to_first_token"]["value"] for one in good if "time_to_first_token" in one]),
        latency_p50_s=median_s([one["request_latency"]["value"] for one in good]),
    )


def read_vllm(folder: Path) -> Told:
    """What `vllm bench serve` left with --save-detailed. Raises RunError where it left no report or not all of it.

    Its lists have one entry a request, failed ones included, whose times stand at 0 and are no times. A success without
    a token or without a time is none: a zero in its place makes a broken server look fast (vllm-project/vllm#5895).
    Where its totals are not those of its lists the report contradicts itself, and is not complete.
    """
    body = loaded(folder / "vllm.json")
    lists = vllm_lists(body)
    asked, errors = len(lists["errors"]), lists["errors"]
    good = [at for at in range(asked) if not errors[at] and lists["output_lens"][at] > 0 and lists["ttfts"][at] > 0]
    latencies = [(lists["ttfts"][at] + sum(lists["itls"][at])) * MS_PER_S for at in good]
    tokens = sum(lists["output_lens"][at] for at in good)
    whole = [body["num_prompts"] == asked, body["completed"] == len(good), body["total_output_tokens"] == tokens]
    whole.append(body.get("failed", asked - len(good)) == asked - len(good))  # since 0.13 it tells them itself
    return Told(
        complete=all(whole),
        completed=len(good),
        failed=asked - len(good),
        output_tokens=tokens,
        starts_s=sorted(lists["start_times"]),
        ttft_p50_s=median_s([lists["ttfts"][at] * MS_PER_S for at in good]),
        latency_p50_s=median_s(latencies),
    )


def vllm_lists(body: dict[str, Any]) -> dict[str, list[Any]]:
    """The lists of a detailed report, one entry a request. Raises RunError where one lacks, is short or is no list."""
    lacking = [name for name in (*VLLM_LISTS, *VLLM_TOTALS) if name not in body]
    if lacking:
        told = f"the report of vllm lacks {', '.join(f'`{name}`' for name in lacking)}"
        raise RunError(told, hint="it is written with --save-result --save-detailed")
    found = {name: body[name] for name in VLLM_LISTS}
    sizes = {name: len(value) if isinstance(value, list) else None for name, value in found.items()}
    if len(set(sizes.values())) != 1 or None in sizes.values():
        said = ", ".join(f"`{name}` {'no list' if size is None else size}" for name, size in sizes.items())
        raise RunError(f"the lists of vllm's report are not of the same requests: {said}")
    gaps = [gap for own in found["itls"] for gap in own]
    numbers = [*found["ttfts"], *found["start_times"], *found["output_lens"], *gaps]
    if strange := [value for value in numbers if type(value) not in (int, float) or not 0 <= value < math.inf]:
        raise RunError(f"vllm's report has {strange[0]!r} where a time or a count from 0 on belongs")
    return found


def loaded(path: Path) -> dict[str, Any]:
    """The JSON object of a report."""
    try:
        body = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise RunError(f"the tool left no report: {error}", hint=f"its log is beside {path}") from None
    if not isinstance(body, dict):
        raise RunError(f"{path}: no JSON object")
    return body


def median_s(values_ms: Sequence[float]) -> float | None:
    """The median in seconds, None of nothing."""
    return statistics.median(values_ms) / MS_PER_S if values_ms else None


ARGV = {"aiperf": aiperf_argv, "vllm": vllm_argv}
READ = {"aiperf": read_aiperf, "vllm": read_vllm}
