"""What a vLLM server tells over HTTP: what its worker answers, and the counters of its /metrics (vLLM 0.25.1)."""

import http.client
import json
import time
from typing import Any

from kassay.errors import RunError
from kassay.serving import process

TOLD_S = 60.0  # within which a worker answers; weights of 16 GB are drawn in a second
SETTLED_S, PAUSE_S = 5.0, 0.1  # metrics follow the last token by a moment
COUNTED = {  # field of kassay.vllm_server -> counter
    "steps": "vllm:iteration_tokens_total_count",
    "prompt_tokens": "vllm:prompt_tokens_total",
    "cached_tokens": "vllm:prompt_tokens_cached_total",
    "generated_tokens": "vllm:generation_tokens_total",
    "preemptions": "vllm:num_preemptions_total",
}
FINISHED = "vllm:request_success_total"


def call(port: int, method: str, **named: str) -> dict[str, Any]:
    """What the worker answers. Raises RunError where it does not: a server that tells nothing cannot be believed."""
    body = json.dumps({"method": method, "kwargs": named})
    status, text = exchanged(port, "POST", "/collective_rpc", body)
    try:
        results = json.loads(text)["results"]
    except (ValueError, KeyError, TypeError):
        results = None
    if status != 200 or not isinstance(results, list) or len(results) != 1 or not isinstance(results[0], dict):
        raise RunError(
            f"the server did not answer `{method}`: HTTP {status}, {text[:200]!r}",
            hint="its log is beside the cell; vLLM 0.25.1 answers with VLLM_SERVER_DEV_MODE=1",
        )
    return dict(results[0])


def exchanged(port: int, verb: str, path: str, body: str | None = None) -> tuple[int, str]:
    """One exchange over HTTP: status 0 and the reason where there was none."""
    connection = http.client.HTTPConnection(process.HOST, port, timeout=TOLD_S)
    try:
        connection.request(verb, path, body, {"Content-Type": "application/json"} if body else {})
        response = connection.getresponse()
        return response.status, response.read().decode(errors="replace")
    except (OSError, http.client.HTTPException) as error:
        return 0, repr(error)
    finally:
        connection.close()


def settled(port: int) -> dict[str, Any]:
    """The counters, once two looks agree. Raises RunError where one lacks or they never do."""
    deadline, before = time.monotonic() + SETTLED_S, counters(port)
    while time.monotonic() < deadline:
        time.sleep(PAUSE_S)
        now = counters(port)
        if now == before:
            return now
        before = now
    raise RunError(f"the server's metrics still change {SETTLED_S:g} s after its last load")


def counters(port: int) -> dict[str, Any]:
    """The counters of /metrics. Raises RunError where one lacks: what was not counted is not 0."""
    status, text = exchanged(port, "GET", "/metrics")
    found: dict[str, Any] = {name: sum(samples(text, counter).values()) for name, counter in COUNTED.items()}
    lacking = [counter for counter in (*COUNTED.values(), FINISHED) if not samples(text, counter)]
    if status != 200 or lacking:
        raise RunError(f"the server's /metrics (HTTP {status}) lacks {', '.join(f'`{one}`' for one in lacking)}")
    by_reason: dict[str, float] = {}
    for labels, value in samples(text, FINISHED).items():
        reason = labels.partition('finished_reason="')[2].partition('"')[0]
        by_reason[reason] = by_reason.get(reason, 0) + value
    return found | {FINISHED: by_reason}


def samples(text: str, counter: str) -> dict[str, float]:
    """Labels -> value of one metric in Prometheus' text form."""
    found = {}
    for line in text.splitlines():
        name, _, rest = line.partition("{")
        if name == counter and (labels := rest.rpartition("}")[0]):
            found[labels] = float(rest.rpartition("}")[2].split()[0])
    return found
