"""The same load by another tool beside our own client, on one server of one arm: do they and the server agree?

The tool is judged by its own JSON, never by its exit status. Its token counts are compared with the in-tree server's
own records, its pace with what was offered. Rejected where they disagree. Times stand side by side, and nothing is
decided by them: the two loads ran one after the other.
"""

import os
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from kassay.kinds.serving import OK, ServingCheck
from kassay.serving import arm, arrivals, loops, metrics, process, prompts, tools, vllm_counts
from kassay.serving.arm import Arm
from kassay.serving.client import Answer
from kassay.serving.loops import Load
from kassay.serving.tools import Told
from kassay.stage import Metrics, Rejection, Stage, Unmet, main

BLOCK = "check"
PLACE = {"block": 0, "pilot": True, "position": 0}


@dataclass(frozen=True, kw_only=True)
class Compared:
    """One load, by both."""

    load: Load
    own: list[Answer]
    told: Told
    exit_code: int
    since_ns: int  # the tool ran from here
    until_ns: int


def run(stage: Stage) -> Metrics | Rejection:
    """Every load, by our client and by the tool."""
    params, tool = stage.params, stage.params["tool"]
    program = Path(stage.json_input("tool")["python"]).with_name(tool)
    if not program.is_file():
        raise Unmet(f"the environment {program.parent.parent} has no `{program.name}`")
    with arm.serving(stage, BLOCK, {**PLACE, "arm": params["arm"]}) as running:
        found = [compared(stage, running, program, load) for load in loops.loads_of(params["served"])]
    faults = vllm_counts.faults(running.told)
    for one in found:
        made = check_record(stage, one, running)
        stage.append(made)
        faults += [f"{made.load}: {fault}" for fault in made.faults]
    said: Metrics = {"loads": len(found), f"{tool} requests": sum(one.told.completed for one in found)}
    return stage.rejected("; ".join(faults), **said) if faults else said


def compared(stage: Stage, running: Arm, program: Path, load: Load) -> Compared:
    """Our client first, then the tool on other texts of the same length."""
    _, own = loops.drive(stage, running, BLOCK, load)
    served, tool, name = stage.params["served"], stage.params["tool"], load["name"]
    folder = stage.directory / name
    folder.mkdir()
    tools.write_prompts(folder, loops.planned(served, BLOCK, load, tool, load["requests"]))
    shipped = served["backend"]["checkpoint"] == "shipped"
    tokenizer = tools.write_character_tokenizer(folder / "tokenizer") if shipped else stage.inputs["model"]
    seed = prompts.seed_of(served["seed"], BLOCK, name, tool)
    argv = tools.ARGV[tool](program, running.target, load, folder, tokenizer, seed)
    stage.progress(0, 1, f"{name}: {tool}")
    since_ns = time.monotonic_ns()
    exit_code = run_tool(argv, folder, stage.params["tool_timeout_s"])
    until_ns = time.monotonic_ns()
    told = tools.READ[tool](folder)
    return Compared(load=load, own=own, told=told, exit_code=exit_code, since_ns=since_ns, until_ns=until_ns)


def run_tool(argv: list[str], folder: Path, timeout_s: float) -> int:
    """Run a tool to its end or until its time is over, with whatever it started; what it says goes to a log."""
    around = {name: text for name, text in os.environ.items() if name not in tools.DROPPED}
    with (folder / "tool.log").open("wb") as log:
        done = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=around, cwd=folder, process_group=0
        )
        process.wait_ended(done, timeout_s)
        process.signal_group(done.pid, signal.SIGKILL)
        return done.wait()


def check_record(stage: Stage, one: Compared, running: Arm) -> ServingCheck:
    """The tool's word beside our client's, the server's and the plan's."""
    load, told, tool = one.load, one.told, stage.params["tool"]
    tokens = server_tokens(one, running) if running.own else None
    open_loop = "per_s" in load
    pace = arrivals.pace(told.starts_s) if open_loop else arrivals.Pace(per_s=None, gap_cv=None)
    ttfts = [value for answer in one.own if (value := metrics.ttft_s(answer)) is not None]
    latencies = [value for answer in one.own if (value := metrics.latency_s(answer)) is not None]
    return ServingCheck(
        tool=tool,
        version=stage.json_input("tool")["modules"][tool],
        arm=stage.params["arm"],
        load=load["name"],
        exit_code=one.exit_code,
        complete=told.complete,
        requests=load["requests"],
        completed=told.completed,
        failed=told.failed,
        output_tokens=told.output_tokens,
        server_output_tokens=tokens,
        achieved_per_s=pace.per_s,
        achieved_gap_cv=pace.gap_cv,
        ttft_p50_s=told.ttft_p50_s,
        own_ttft_p50_s=metrics.spread(ttfts)["p50"],
        latency_p50_s=told.latency_p50_s,
        own_latency_p50_s=metrics.spread(latencies)["p50"],
        faults=[*disagreements(one, tokens), *(paces(one, pace) if open_loop else [])],
    )


def server_tokens(one: Compared, running: Arm) -> int:
    """Output tokens of the requests that the in-tree server received while the tool ran."""
    return sum(noted.output_tokens for noted in running.counted if one.since_ns <= noted.received_ns <= one.until_ns)


def disagreements(one: Compared, tokens: int | None) -> list[str]:
    """Where the tool did not do what was asked, or counts what the server does not."""
    told, asked = one.told, one.load["requests"]
    faults = [] if told.complete else ["the tool's own report says that it is not complete"]
    if told.completed + told.failed != asked:
        faults.append(f"the tool reports {told.completed + told.failed} requests, {asked} were asked for")
    own = sum(answer.status != OK for answer in one.own)
    if told.failed or own:
        faults.append(f"{told.failed} requests failed by the tool, {own} failed or were empty by our client")
    if told.output_tokens is None:
        faults.append("the tool lost the server's token counts of some requests")
    elif tokens is not None and told.output_tokens != tokens:
        faults.append(f"the tool reports {told.output_tokens} output tokens, the server decoded {tokens}")
    return faults


def paces(one: Compared, pace: arrivals.Pace) -> list[str]:
    """Where the tool's requests did not come as they were offered."""
    load = one.load
    return arrivals.off_offer(pace, pattern=load["arrivals"], per_s=load["per_s"], count=len(one.told.starts_s))


if __name__ == "__main__":
    main(run)
