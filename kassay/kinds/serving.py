"""Serving over HTTP: every request as the client saw it and as the server counted it, each load, and what follows."""

from dataclasses import dataclass
from typing import Any, ClassVar

from kassay.combination import absent, given, given_only, one_of, ordered, rule, together
from kassay.kinds.words import OF_RATIOS, TESTED, VERDICTS
from kassay.record import Record, doc

OK, EMPTY, FAILED = "ok", "empty", "failed"


@dataclass(frozen=True, kw_only=True)
class ServedRequest(Record):
    """One request as the client saw it; stamps are of the monotonic clock in nanoseconds."""

    schema: ClassVar[str] = "kassay.served_request/1"

    arm: str = doc("Name of the arm that the server ran.")
    block: int = doc("Number of the block from 0; pilots have their own numbers.")
    pilot: bool = doc("Whether the block is a pilot, excluded from every result.")
    load: str = doc("Name of the load.")
    warmup: bool = doc("Whether it is a warm-up, excluded from every result.")
    request_id: str = doc("Id of the request, as the server was told it in `X-Request-Id`.")
    prompt_sha256: str = doc("Digest of the prompt's text.")
    scheduled_ns: int | None = doc("When it was to be sent, null in a closed loop.")
    started_ns: int = doc("When the client began to connect.")
    token_ns: list[int] = doc("Arrival of each piece of the stream that holds text, in order.")
    ended_ns: int = doc("When the stream ended or failed.")
    status: str = doc("`ok`; `empty`: HTTP 200 without any text; `failed`.")
    error: str = doc("Class of the failure, such as `refused`, `stalled`, `truncated` or `http_500`; empty if none.")
    detail: str = doc("The failure in words, empty if none.")
    http_status: int | None = doc("Status of the response, null if there was none.")
    prompt_tokens: int | None = doc("Prompt tokens as the server counted them, null if it did not tell.")
    output_tokens: int | None = doc("Output tokens as the server counted them, null if it did not tell.")
    finish_reason: str | None = doc("Why the output ended, as the server says; null if it did not tell.")
    text_sha256: str = doc("Digest of the output's text.")
    empty: bool = doc("Whether no text came at all.")

    combinations = (
        one_of("status", (OK, EMPTY, FAILED)),
        given_only("status", (FAILED,), "error", "detail"),
        given("status", (OK,), "token_ns"),
        absent("status", (EMPTY,), "token_ns"),
        given("status", (OK, EMPTY), "http_status", "prompt_tokens", "output_tokens"),
        rule("`empty` is whether `token_ns` are none", lambda one: one.empty == (not one.token_ns)),
        ordered("started_ns", "ended_ns"),
    )


@dataclass(frozen=True, kw_only=True)
class ServerRequest(Record):
    """One request as the in-tree server counted it; stamps are of the monotonic clock in nanoseconds."""

    schema: ClassVar[str] = "kassay.server_request/1"

    request_id: str = doc("Id of the request, as the client gave it.")
    received_ns: int = doc("When it was in the queue.")
    admitted_ns: int | None = doc("When its cohort began, null if it was never admitted.")
    finished_ns: int = doc("When its cohort ended.")
    cohort: int = doc("Number of its cohort from 0.")
    cohort_size: int = doc("Requests in its cohort: what is decoded together. It is no concurrency.")
    prompt_tokens: int = doc("Prompt tokens.")
    output_tokens: int = doc("Output tokens.")
    ended: str = doc("`length`, `stop`, `left` (the client went away) or `error` (the server was stopped).")

    combinations = (
        one_of("ended", ("length", "stop", "left", "error")),
        given("ended", ("length", "stop"), "admitted_ns"),
        ordered("received_ns", "admitted_ns", "finished_ns"),
        rule(
            "no `output_tokens` where `admitted_ns` is null",
            lambda one: one.admitted_ns is not None or not one.output_tokens,
        ),
    )


@dataclass(frozen=True, kw_only=True)
class ServerRun(Record):
    """One server process: from its start until it was stopped."""

    schema: ClassVar[str] = "kassay.server_run/1"

    arm: str = doc("Name of the arm.")
    block: int = doc("Number of the block from 0; pilots have their own numbers.")
    pilot: bool = doc("Whether the block is a pilot.")
    position: int = doc("Place of the arm in its block from 0.")
    argv_sha256: str = doc("Digest of the command, the port left out.")
    pid: int = doc("Process id of the server, which leads a process group of its own.")
    ready_s: float = doc("Seconds from its start until it answered for its health.")
    died: bool = doc("Whether it ended before it was told to.")
    stopped_by: str = doc("`TERM`, `KILL` after the grace, or `itself`.")
    exit_code: int = doc("Exit status, the negative signal if one ended it.")
    load_before: float = doc("One-minute load average of the host before its start.")
    load_after: float = doc("One-minute load average of the host after its end.")

    combinations = (
        one_of("stopped_by", ("TERM", "KILL", "itself")),
        rule("`died` is whether `stopped_by` is `itself`", lambda run: run.died == (run.stopped_by == "itself")),
    )


@dataclass(frozen=True, kw_only=True)
class ServedLoad(Record):
    """One load on one server, warm-ups left out; every number of time is over the successful requests alone."""

    schema: ClassVar[str] = "kassay.served_load/1"

    arm: str = doc("Name of the arm.")
    block: int = doc("Number of the block from 0; pilots have their own numbers.")
    pilot: bool = doc("Whether the block is a pilot, excluded from every result.")
    load: str = doc("Name of the load.")
    concurrency: int | None = doc("Requests in flight of a closed loop, null of an open one. It is no batch.")
    offered_per_s: float | None = doc("Offered rate of an open loop in requests per second, null of a closed one.")
    arrivals: str | None = doc("`poisson` or `constant`, null of a closed loop.")
    requests: int = doc("Requests that were sent, all planned ones.")
    completed: int = doc("Those that ended with text and the server's counts.")
    failed: int = doc("Those that failed.")
    empty: int = doc("Those that were answered with HTTP 200 and no text.")
    errors: dict[str, int] = doc("Class of failure -> number of requests.")
    prompts_sha256: str = doc("Digest of all prompts in their order.")
    window_s: float = doc("From the first start to the last end of all requests, failed ones included, in seconds.")
    output_tokens: int = doc("Output tokens of completed requests, by the server's counts.")
    tokens_per_s: float = doc("Output tokens of completed requests per second of the window.")
    completed_per_s: float = doc("Completed requests per second of the window.")
    schedule_per_s: float | None = doc("Rate of the drawn schedule in requests per second; null of a closed loop.")
    achieved_per_s: float | None = doc("Rate of the requests' starts in requests per second; null of a closed loop.")
    schedule_gap_cv: float | None = doc("Standard deviation of the schedule's gaps over their mean, 1 for Poisson.")
    achieved_gap_cv: float | None = doc("The same of the gaps between the requests' starts.")
    largest_lag_s: float | None = doc("Largest lateness of a start behind its schedule in seconds.")
    most_in_flight: int = doc("Most requests that were in flight at once.")
    method: str = doc("How percentiles are computed.")
    ttft_s: dict[str, Any] = doc("Time to first token: `n`, `mean`, `p50`, `p90`, `p95`, `p99`, `largest` in seconds.")
    tpot_s: dict[str, Any] = doc(
        "Time per output token after the first, of outputs of two tokens or more; the same keys."
    )
    latency_s: dict[str, Any] = doc("From start to end of a request; the same keys.")
    faults: list[str] = doc("Why the load is invalid, such as a rate that was not kept; empty if it is valid.")

    combinations = (
        together("offered_per_s", "arrivals", "largest_lag_s"),
        rule(
            "`concurrency` is there exactly where `offered_per_s` is not",
            lambda load: (load.concurrency is None) != (load.offered_per_s is None),
        ),
        absent("arrivals", (None,), "schedule_per_s", "achieved_per_s", "schedule_gap_cv", "achieved_gap_cv"),
        one_of("arrivals", ("poisson", "constant", None)),
        rule(
            "`completed`, `failed` and `empty` add up to `requests`",
            lambda load: load.completed + load.failed + load.empty == load.requests,
        ),
        rule("`errors` add up to `failed`", lambda load: sum(load.errors.values()) == load.failed),
        rule(
            "`ttft_s` and `latency_s` are of all that are `completed`, `tpot_s` of no more",
            lambda load: load.ttft_s["n"] == load.latency_s["n"] == load.completed >= load.tpot_s["n"],
        ),
        rule("no `output_tokens` where `completed` is 0", lambda load: load.completed > 0 or not load.output_tokens),
        ordered("most_in_flight", "requests"),
    )


@dataclass(frozen=True, kw_only=True)
class ServingCheck(Record):
    """A load by another tool on the same server, beside what the server itself counted."""

    schema: ClassVar[str] = "kassay.serving_check/1"

    tool: str = doc("`aiperf` or `vllm`.")
    version: str = doc("Version of the tool.")
    arm: str = doc("Name of the arm.")
    load: str = doc("Name of the load.")
    exit_code: int = doc("Its exit status, recorded and never judged by.")
    complete: bool = doc("Whether its own JSON says that it ran to its end.")
    requests: int = doc("Requests that were planned.")
    completed: int = doc("Requests that succeeded, by the tool.")
    failed: int = doc("Requests that failed, by the tool.")
    output_tokens: int | None = doc("Output tokens by the tool's report of the server's counts.")
    server_output_tokens: int | None = doc("Output tokens by the server's own records; null if it keeps none.")
    achieved_per_s: float | None = doc("Rate of its requests' starts; null of a closed loop.")
    achieved_gap_cv: float | None = doc("Gap variation of its requests' starts; null of a closed loop.")
    ttft_p50_s: float | None = doc("Median time to first token by the tool, in seconds.")
    own_ttft_p50_s: float | None = doc("The same by our client under the same load and server, in seconds.")
    latency_p50_s: float | None = doc("Median latency by the tool, in seconds.")
    own_latency_p50_s: float | None = doc("The same by our client, in seconds.")
    faults: list[str] = doc("Where tool, server and plan disagree; empty if nowhere.")

    combinations = (
        one_of("tool", ("aiperf", "vllm")),
        given("complete", (False,), "faults"),
        given("output_tokens", (None,), "faults"),
    )


@dataclass(frozen=True, kw_only=True)
class ServingGate(Record):
    """Requests of one arm under one load over all blocks that count: none may fail or be empty."""

    schema: ClassVar[str] = "kassay.serving_gate/1"

    arm: str = doc("Name of the arm.")
    load: str = doc("Name of the load.")
    requests: int = doc("Requests, all planned ones.")
    failed: int = doc("Requests that failed.")
    empty: int = doc("Requests that were answered without text.")
    errors: dict[str, int] = doc("Class of failure -> number of requests.")
    verdict: str = doc("`pass` or `fails`.")

    combinations = (
        one_of("verdict", ("pass", "fails")),
        rule(
            "`verdict` is `pass` exactly where `failed` and `empty` are 0",
            lambda gate: (gate.verdict == "pass") == (gate.failed == gate.empty == 0),
        ),
        rule("`failed` and `empty` are at most `requests`", lambda gate: gate.failed + gate.empty <= gate.requests),
        rule("`errors` add up to `failed`", lambda gate: sum(gate.errors.values()) == gate.failed),
    )


@dataclass(frozen=True, kw_only=True)
class ServingContrast(Record):
    """One planned comparison of two arms under one load."""

    schema: ClassVar[str] = "kassay.serving_contrast/1"

    contrast: str = doc("Name of the comparison.")
    load: str = doc("Name of the load.")
    quantity: str = doc("What is compared: `tokens_per_s`, or a time such as `latency_s.p95`.")
    candidate: str = doc("Arm that is judged.")
    control: str = doc("Arm that it is compared with.")
    failed: dict[str, int] = doc("Arm -> failed and empty requests over all blocks that count.")
    ratios: list[float] | None = doc(
        "Within-block ratios, above 1 where the candidate is better; null if not measured."
    )
    median: float | None = doc("Median of the ratios.")
    lower: float | None = doc("Lower end of the exact bootstrap interval of the median, two-sided 95 %, descriptive.")
    upper: float | None = doc("Upper end of the same interval.")
    wins: int | None = doc("Blocks whose ratio is above 1; ties are no wins and stay in n.")
    p: float | None = doc("One-sided exact sign test.")
    holm_p: float = doc("Holm-adjusted p over the whole family; what is not measured or not qualified keeps 1.")
    family_size: int = doc("Planned comparisons.")
    alpha: float = doc("Level of the family.")
    screen_ratio: float = doc("Least median ratio of a gain.")
    certificate: str = doc("Verdict of the candidate's quality certificate; `none` if the run judges no quality.")
    verdict: str = doc(
        "`gain confirmed`, `no confirmed gain`, `descriptive`, `ineligible`, `invalidated` or `not run`."
    )
    reason: str = doc("The verdict in words.")

    combinations = (
        one_of("verdict", (*TESTED, "descriptive", "ineligible", "invalidated", "not run")),
        *OF_RATIOS,
        given("verdict", ("gain confirmed", "descriptive"), "ratios"),
        absent("verdict", ("invalidated", "not run"), "ratios"),
        one_of("certificate", (*VERDICTS, "none")),
        rule(
            "`verdict` is `gain confirmed` only where `certificate` is `pass` and no request of `failed`",
            lambda made: (
                made.verdict != "gain confirmed" or (made.certificate == "pass" and not any(made.failed.values()))
            ),
        ),
        rule(
            "`ratios` are there where `verdict` is `no confirmed gain` and no request of `failed`",
            lambda made: made.verdict != "no confirmed gain" or made.ratios is not None or any(made.failed.values()),
        ),
    )
