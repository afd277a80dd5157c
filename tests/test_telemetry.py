"""The sampler on a fake clock, its sources on a fake NVML, and the real one under load."""

import ctypes
import hashlib
import struct
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pytest

from kassay import gpus, memory_sources, paths
from kassay.errors import KassayError
from kassay.memory_sources import DeviceMemory, ResidentMemory, device_sources, sources
from kassay.telemetry import (
    LONGEST_GAP_NS,
    PERIOD_NS,
    Asked,
    QueryFailed,
    Sample,
    Sampler,
    Window,
    query_bounded_gap,
    samples_of,
    take,
)

MS = 1_000_000


class FakeClock:
    """A clock that only queries and waiting move; it stops the sampler at a planned time."""

    def __init__(self, stop_ns: int) -> None:
        self.at_ns = 1_000 * MS
        self.stop_ns = self.at_ns + stop_ns

    def now_ns(self) -> int:
        return self.at_ns

    def stopped_by(self, due_ns: int) -> bool:
        self.at_ns = max(self.at_ns, min(due_ns, self.stop_ns))
        return self.at_ns >= self.stop_ns


class FakeSource:
    """A source whose queries take planned times; a negative one fails."""

    name = "resident"
    device = "host"
    words = ()

    def __init__(self, clock: FakeClock, takes_ns: list[int]) -> None:
        self.clock, self.takes_ns, self.calls = clock, takes_ns, 0

    def ask(self) -> int:
        took = self.takes_ns[min(self.calls, len(self.takes_ns) - 1)]
        self.calls += 1
        self.clock.at_ns += abs(took)
        if took < 0:
            raise QueryFailed("no answer")
        return self.calls

    def bytes_of(self, answer: int) -> int:
        return answer


def sampled(takes_ns: list[int], stop_ns: int) -> list[Sample]:
    """The samples of a fake run."""
    clock = FakeClock(stop_ns)
    asked: list[Asked] = []
    source = FakeSource(clock, takes_ns)
    take(source, clock, asked, lambda: None)
    return samples_of(source, asked)


def starts(samples: list[Sample]) -> list[float]:
    """Starts in periods from the first."""
    return [(sample.started_ns - samples[0].started_ns) / PERIOD_NS for sample in samples]


def window(samples: list[Sample], opened_ns: int, closed_ns: int) -> Window:
    """A window over given samples."""
    return Window(
        source="resident",
        device="host",
        opened_ns=opened_ns,
        closed_ns=closed_ns,
        samples=tuple(samples),
        period_ns=PERIOD_NS,
        longest_gap_ns=LONGEST_GAP_NS,
        sampler_cpu_ns=1,
        sampler_wall_ns=1000,
        startup_cpu_ns=1,
    )


def test_starts_lie_on_the_grid_whatever_a_query_takes() -> None:
    """A wait of a period after each query would drift by 3 ms a query here."""
    assert starts(sampled([3 * MS], 100 * MS)) == [0, 1, 2, 3, 4, 5]
    assert PERIOD_NS == 20 * MS


def test_a_slow_query_skips_starts_and_does_not_bunch_them() -> None:
    assert starts(sampled([1 * MS, 70 * MS, 1 * MS], 160 * MS)) == [0, 1, 5, 6, 7, 8]


def test_a_stop_is_followed_by_one_more_query() -> None:
    samples = sampled([1 * MS], 50 * MS)
    assert starts(samples)[-1] == 2.5 and len(samples) == 4


def test_the_gap_is_bounded_by_queries_not_by_their_starts() -> None:
    """Two queries of 300 ms, 20 ms apart: memory was seen at an instant of each, 620 ms may lie between."""
    slow = [Sample(started_ns=start * MS, ended_ns=(start + 300) * MS, used_bytes=1, error="") for start in (0, 320)]
    assert query_bounded_gap(slow, 300 * MS, 320 * MS) == 620 * MS
    assert "620.0 ms" in window(slow, 300 * MS, 320 * MS).fault


def test_the_limit_itself_is_allowed_and_one_nanosecond_more_is_not() -> None:
    def two(end_ns: int) -> Window:
        pair = [
            Sample(started_ns=0, ended_ns=1, used_bytes=1, error=""),
            Sample(started_ns=end_ns - 1, ended_ns=end_ns, used_bytes=2, error=""),
        ]
        return window(pair, 1, end_ns - 1)

    assert two(LONGEST_GAP_NS).fault == ""
    assert replace(two(LONGEST_GAP_NS + 1), longest_gap_ns=None).fault == "", "a study without a bound"
    assert two(LONGEST_GAP_NS + 1).fault != ""


def test_failed_queries_close_no_gap_and_the_ends_of_the_window_count() -> None:
    answered = sampled([1 * MS, *[-1 * MS] * 30, 1 * MS], 700 * MS)
    failed = [sample for sample in answered if sample.used_bytes is None]
    assert len(failed) == 30 and all(sample.error == "no answer" for sample in failed)
    made = window(answered, answered[0].ended_ns, answered[-1].started_ns)
    assert made.gap_ns == 31 * PERIOD_NS + 1 * MS and made.fault
    pair = [Sample(started_ns=at * MS, ended_ns=at * MS + 1, used_bytes=1, error="") for at in (600, 620)]
    assert window(pair, 0, 630 * MS).gap_ns == 600 * MS + 1
    assert window(pair, 600 * MS, 1300 * MS).gap_ns == 680 * MS


@pytest.mark.parametrize("answers", [0, 1])
def test_without_two_answers_there_is_no_gap_and_no_evidence(answers: int) -> None:
    samples = [Sample(started_ns=0, ended_ns=1, used_bytes=1 if rank < answers else None, error="") for rank in (0, 1)]
    made = window(samples, 1, 2)
    assert made.gap_ns is None and "2 are needed" in made.fault
    assert made.largest_bytes == (1 if answers else None)


def source_of(*words: str) -> Any:
    """What a sampler is told to ask for."""
    return SimpleNamespace(name="resident", device="host", words=words)


def test_a_sampler_that_cannot_ask_or_dies_ends_the_block_with_an_error(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KassayError, match="died before its first query"), Sampler(source_of("resident", "no number")):
        pytest.fail("nothing may be measured without its sampler")
    assert "ValueError" in capfd.readouterr().err
    with pytest.raises(KassayError, match="died; its traceback"), Sampler(ResidentMemory()) as sampler:
        assert sampler._process is not None
        sampler._process.kill()


def test_the_samplers_process_ends_with_its_owner(tmp_path: Path) -> None:
    """An owner that is killed in the middle: its sampler sees its input end and is gone."""
    code = (
        "import os, signal\n"
        "from kassay.memory_sources import ResidentMemory\n"
        "from kassay.telemetry import Sampler\n"
        "with Sampler(ResidentMemory()) as sampler:\n"
        "    print(sampler._process.pid, flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=paths.ROOT, check=False)
    until = time.monotonic() + 60
    while runs(int(done.stdout)) and time.monotonic() < until:
        time.sleep(0.02)
    assert (done.returncode, done.stderr) == (-9, "") and not runs(int(done.stdout))


def runs(pid: int) -> bool:
    """Whether it is there and no zombie, which is what an orphan stays where nobody waits for it."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_process_that_is_gone_is_a_failed_query() -> None:
    """Its memory is neither 0 nor the last that was seen: the gap goes on."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    with Sampler(ResidentMemory(child.pid)) as sampler:
        child.communicate()
        time.sleep(0.05)
    made = sampler.finished()
    assert made.samples[0].used_bytes and made.samples[-1].used_bytes is None and made.samples[-1].error


# --- NVML


LOST = 15  # NVML_ERROR_GPU_IS_LOST


class NVMLError(Exception):
    """As pynvml has it: made of a code, or of words."""

    def __init__(self, said: object) -> None:
        super().__init__("GPU is lost" if said == LOST else said)


def fake_nvml(free: list[int | None], *, up: bool = True, known: tuple[str, ...] = ("GPU-a", "GPU-b")) -> Any:
    """An NVML whose device has 100 bytes; None fails. Its library is called as the real one is, into a structure."""
    answers = iter(free)

    def initialised() -> None:
        if not up:
            raise NVMLError("Driver/library version mismatch")

    def handle(uuid: str) -> int:
        if uuid not in known:
            raise NVMLError("Not Found")
        return 1 + known.index(uuid)

    def memory(handle: int, place: int) -> int:
        left = next(answers)
        if handle not in range(1, 1 + len(known)) or left is None:
            return LOST
        ctypes.memmove(place, struct.pack("=QQQ", 100, left, 1), 24)
        return 0

    call = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(memory)
    return SimpleNamespace(
        NVMLError=NVMLError,
        nvmlInit=initialised,
        nvmlDeviceGetHandleByUUID=handle,
        nvmlLib=SimpleNamespace(nvmlDeviceGetMemoryInfo=call),
    )


def test_a_device_is_asked_for_all_that_is_not_free_and_a_lost_one_fails() -> None:
    source = DeviceMemory(fake_nvml([30, 45, None]), "GPU-a")
    first, second = source.ask(), source.ask()
    assert (source.name, source.device) == ("device", "GPU-a")
    assert (source.bytes_of(first), source.bytes_of(second)) == (70, 55), "an answer that is kept stays what it was"
    with pytest.raises(QueryFailed, match="GPU is lost"):
        source.ask()


def test_the_structure_that_is_read_is_that_of_nvml() -> None:
    pynvml = pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
    told = pynvml.c_nvmlMemory_t(total=100, free=30, used=1)
    assert memory_sources.NVML_MEMORY.unpack(bytes(told)) == (100, 30, 1)


def test_what_nvml_does_not_answer_for_is_said() -> None:
    made, absent = device_sources(fake_nvml([1]), ["GPU-a", "GPU-z"])
    assert [source.device for source in made] == ["GPU-a"] and "GPU-z" in absent[0]
    assert device_sources(fake_nvml([], up=False), ["GPU-a"]) == (
        (),
        ("device memory: NVML does not come up: Driver/library version mismatch",),
    )


def inventory(state: str = "present", error: str = "") -> gpus.Inventory:
    """Two GPUs in one order of indices."""
    made = tuple(
        gpus.Gpu(index=index, name="x", memory_mib=1, uuid=uuid, capability=None, driver=None, instances=())
        for index, uuid in enumerate(("GPU-a", "GPU-b"))
    )
    return gpus.Inventory(state=state, gpus=made if state == "present" else (), error=error)


def test_visible_gpus_are_sampled_by_uuid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "inventory", inventory)
    monkeypatch.setenv(gpus.VISIBLE, "1")
    monkeypatch.setitem(sys.modules, memory_sources.MODULE, fake_nvml([]))
    found = sources()
    assert [(source.name, source.device) for source in found.sources] == [("resident", "host"), ("device", "GPU-b")]
    assert found.absent == ()


def test_absence_is_said_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "inventory", lambda: inventory("absent"))
    monkeypatch.delenv(gpus.VISIBLE, raising=False)
    assert sources().absent == ("device memory: no GPU is visible",)
    monkeypatch.setattr(gpus, "inventory", lambda: inventory("error", "nvidia-smi ended with 18"))
    assert sources().absent == ("device memory: nvidia-smi ended with 18",)
    monkeypatch.setattr(gpus, "inventory", inventory)
    monkeypatch.setitem(sys.modules, memory_sources.MODULE, None)
    assert sources().absent == ("device memory: nvidia-ml-py is not installed",)
    assert [source.name for source in sources().sources] == ["resident"]


# --- the real sampler


def test_proc_and_psutil_tell_the_same(tmp_path: Path) -> None:
    """Taken one after the other they differ by little; without /proc psutil answers."""
    block = np.ones(1 << 23)
    told = [one.bytes_of(one.ask()) for one in (ResidentMemory(), ResidentMemory(proc=str(tmp_path / "none")))]
    assert abs(told[0] - told[1]) < 8 << 20 < block.nbytes < min(told)
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "statm").write_text("100 7 3 1 0 9 0\n")
    source = ResidentMemory(7, str(tmp_path))
    assert source.bytes_of(source.ask()) == 7 * memory_sources.PAGE_BYTES and source.words == ("resident", "7")
    with pytest.raises(QueryFailed, match="b'' tells none"):
        source.bytes_of(b"")
    (tmp_path / "7" / "statm").write_text("100 9 3 1 0 9 0\n")
    assert source.bytes_of(source.ask()) == 9 * memory_sources.PAGE_BYTES, "each query reads anew"


def test_a_block_however_short_is_covered_at_both_ends() -> None:
    with Sampler(ResidentMemory(), longest_gap_ns=None) as sampler:
        pass
    made = sampler.finished()
    assert len(made.answered) >= 2 and made.fault == "", "two where this process goes on within 20 ms"
    assert made.samples[0].ended_ns <= made.opened_ns and made.samples[-1].started_ns >= made.closed_ns
    with pytest.raises(KassayError, match="not ended"):
        Sampler(ResidentMemory()).finished()


def test_under_load_gaps_are_short_and_the_sampler_takes_less_than_a_hundredth_of_a_core() -> None:
    """One of three windows: on a machine that stood still for a moment none is evidence, whoever samples."""
    for _ in range(3):
        made = sampled_beside_work()
        if made.fault == "" and made.cpu_share < 0.01 and len(made.answered) >= 20:
            break
    assert made.fault == "" and made.cpu_share < 0.01
    assert len(made.answered) >= 20, "1.5 s have 75 starts; a loaded machine may miss some"
    used = [sample.used_bytes or 0 for sample in made.answered]
    assert max(used) - used[0] > 20 << 20


def sampled_beside_work() -> Window:
    """Matrix products, which release the interpreter, and a loop, which does not, while memory is taken."""
    taken = []
    with Sampler(ResidentMemory()) as sampler:
        until = time.monotonic() + 1.5
        square = np.ones((300, 300))
        while time.monotonic() < until:
            square = np.clip(square @ square, 0, 1)
            hashlib.sha256(bytes(200_000)).hexdigest()
            sum(range(50_000))
            if len(taken) < 20:
                taken.append(np.ones(1 << 19))
    return sampler.finished()
