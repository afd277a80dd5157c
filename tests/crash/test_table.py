"""The crash table of ../shared/orchestrators.md, section D, row by row: three stages, two workers, nothing by hand.

In every row: no wrong result, no process left, and the next plain `run` is all that it takes. A row that is about a
stage which knows nothing of us uses a plain executable. Rows t4 are in test_damage.py, t8 in test_stale.py.
"""

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from kassay.engine import local
from tests.crash import toys
from tests.crash.conftest import larger
from tests.crash.project import DrivenProject, Driver, wait_until
from tests.crash.toys import KINDS, NAMES, assert_right, counts, open_gates, three, wait_for_halves

GRANDCHILD = "sh -c 'echo child $$ >> {root}/executions; exec sleep 600' &"
DEAF = """\
trap '' TERM INT HUP
sh -c 'trap "" TERM INT HUP; echo child $$ >> {root}/executions; while :; do sleep 1; done' &"""


def children(driven: DrivenProject) -> list[int]:
    """The processes of grandchildren that were started."""
    return [pid for name, pid in toys.executions(driven) if name == "child"]


def start_with_a_grandchild(driven: DrivenProject, extra: str) -> Driver:
    """Start the three stages; a signal comes only once the grandchild of `one` lives, which is later than its half.

    And once the driver has noted both: a stage that it has started and not noted yet is only sent KILL, at the end.
    """
    three(driven, "argv", extra=extra.format(root=driven.root))
    driver = driven.start()
    wait_for_halves(driven, "one", "two")
    wait_until(lambda: children(driven), "a grandchild")
    wait_until(lambda: len(driven.events("stage_started")) == 2, "two starts in the driver's log")
    return driver


@pytest.mark.parametrize("kind", KINDS)
def test_t1a_all_die_while_outputs_hold_half(driven: DrivenProject, kind: str) -> None:
    three(driven, kind)
    driver = driven.start()
    wait_for_halves(driven, "one", "two")
    driver.kill()
    for pid in driven.processes():
        with suppress(ProcessLookupError):  # what outlives the driver to end its stages may have done so already
            os.kill(pid, signal.SIGKILL)
    open_gates(driven)
    done = driven.run()
    assert done.code == 0 and "stage started one (did not finish)" in done.err
    assert counts(driven) == {"one": 2, "two": 2, "three": 1}
    assert_right(driven)


@pytest.mark.parametrize("kind", KINDS)
def test_t1b_only_the_driver_is_killed_and_the_next_starts_at_once(driven: DrivenProject, kind: str) -> None:
    three(driven, kind)
    driver = driven.start()
    wait_for_halves(driven, "one", "two")
    before = [pid for _, pid in toys.executions(driven)]
    driver.kill()
    second = driven.start()
    wait_for_halves(driven, "one", "two", times=2)
    assert toys.living(before) == [], "no stage of the dead driver runs beside its copy"
    open_gates(driven)
    done = second.wait()
    assert done.code == 0 and f"pid {driver.pid} on " in done.err and "died and left it" in done.err
    assert counts(driven) == {"one": 2, "two": 2, "three": 1}
    assert_right(driven)


@pytest.mark.parametrize("kind", KINDS)
def test_t2_one_stage_is_killed_and_the_others_go_on(driven: DrivenProject, kind: str) -> None:
    three(driven, kind)
    driver = driven.start()
    wait_for_halves(driven, "one", "two")
    os.kill(dict(toys.executions(driven))["one"], signal.SIGKILL)
    open_gates(driven)
    done = driver.wait()
    assert done.code == 1 and driven.words() == {"one": "crashed", "two": "passed", "three": "blocked"}
    assert "one crashed: ended by SIGKILL" in done.err and "three blocked: `one` was crashed" in done.err
    again = driven.run()
    assert again.code == 0 and "stage started one (was crashed)" in again.err and "stage reused two" in again.err
    assert counts(driven) == {"one": 2, "two": 1, "three": 1}
    assert_right(driven)


@pytest.mark.parametrize("kind", KINDS)
def test_t3a_a_stage_fills_the_disk(driven: DrivenProject, kind: str, small_disk: Callable[..., Path]) -> None:
    fill = {
        "program": "    if not (root / 'mended').exists(): path.write_bytes(b'x' * (64 << 20))",
        "argv": "[ -e {root}/mended ] || cat /dev/zero > out.txt || exit 1",
    }[kind]
    results = small_disk(4096)
    three(driven, kind, extra=fill.format(root=driven.root))
    open_gates(driven)
    done = driven.run()
    assert done.code in (1, 2) and "No space left on device" in done.err and "hint: " in done.err
    assert driven.left() == []
    larger(results, 32768)
    (driven.root / "mended").touch()
    again = driven.run()
    assert again.code == 0, again.err
    assert_right(driven)


def test_t3b_a_stage_succeeds_and_the_disk_is_full_when_it_is_recorded(
    driven: DrivenProject, small_disk: Callable[..., Path]
) -> None:
    filler = small_disk(4096) / "filler"
    fill = f"[ -e {driven.root}/mended ] || {{ printf 'whole one\\n' > out.txt; cat /dev/zero > {filler}; exit 0; }}"
    three(driven, "argv", extra=fill)
    open_gates(driven)
    done = driven.run()
    assert done.code == 2 and "No space left on device" in done.err
    assert "hint: what was recorded before is kept" in done.err and driven.left() == []
    filler.unlink()
    (driven.root / "mended").touch()
    assert driven.run().code == 0
    assert_right(driven)


@pytest.mark.parametrize("kind", KINDS)
def test_t5_two_drivers_at_once(driven: DrivenProject, kind: str) -> None:
    three(driven, kind)
    first = driven.start()
    wait_for_halves(driven, "one", "two")
    second = driven.run()
    assert second.code == 2 and f"another driver has this run: pid {first.pid} on " in second.err
    open_gates(driven)
    assert first.wait().code == 0
    assert counts(driven) == dict.fromkeys(NAMES, 1)
    assert_right(driven)


@pytest.mark.parametrize(
    ("number", "whole_group"),
    [(signal.SIGTERM, False), (signal.SIGINT, False), (signal.SIGINT, True), (signal.SIGHUP, True)],
    ids=["t6a-term", "t6b-int", "t6c-int-to-the-group", "hup-to-the-group"],
)
def test_t6_a_signal_while_stage_and_grandchild_ignore_it(
    driven: DrivenProject, number: signal.Signals, whole_group: bool
) -> None:
    driver = start_with_a_grandchild(driven, DEAF)
    began = time.monotonic()
    driver.signal(number, whole_group)
    done = driver.wait()
    assert done.plain and done.code == 130
    assert local.GRACE_S <= time.monotonic() - began < local.GIVE_UP_S, "after the grace, and not given up"
    assert len(children(driven)) == 1 and driven.left(0.5) == []
    assert "run interrupted" in done.err and "hint: make resumes it" in done.err
    open_gates(driven)
    assert driven.run().code == 0
    assert counts(driven) == {"one": 2, "two": 2, "three": 1}
    assert_right(driven)


def test_t6_a_second_ctrl_c_does_not_wait(driven: DrivenProject) -> None:
    driven.grant_no_end()
    driver = start_with_a_grandchild(driven, DEAF)
    hearing = [pid for name, pid in toys.executions(driven) if name == "two"]
    driver.signal(signal.SIGINT, whole_group=True)
    wait_until(lambda: toys.living(hearing) == [], "the end of the stage that hears TERM")
    driver.signal(signal.SIGINT, whole_group=True)
    done = driver.wait()
    assert done.plain and done.code == 130
    assert driven.left(0.5) == []
    open_gates(driven)
    assert driven.run().code == 0
    assert_right(driven)


def test_t6f_ctrl_c_to_the_group_with_a_grandchild_in_the_background(driven: DrivenProject) -> None:
    driven.grant_no_end()
    driver = start_with_a_grandchild(driven, GRANDCHILD)
    driver.signal(signal.SIGINT, whole_group=True)
    done = driver.wait()
    assert done.plain and done.code == 130
    assert len(children(driven)) == 1 and driven.left(0.5) == []
    open_gates(driven)
    assert driven.run().code == 0
    assert_right(driven)


@pytest.mark.parametrize(
    ("kind", "extra", "said"),
    [
        ("program", "    if not (root / 'mended').exists(): os._exit(3)", "exit status 3 without its outcome"),
        ("argv", "[ -e {root}/mended ] || {{ echo no luck >&2; exit 3; }}", "exit status 3; last line: no luck"),
    ],
    ids=KINDS,
)
def test_t7a_a_stage_writes_half_and_exits_3(driven: DrivenProject, kind: str, extra: str, said: str) -> None:
    three(driven, kind, extra=extra.format(root=driven.root))
    open_gates(driven)
    done = driven.run()
    assert done.code == 1 and driven.words() == {"one": "crashed", "two": "passed", "three": "blocked"}
    assert f"one crashed: {said}" in done.err
    (driven.root / "mended").touch()
    assert driven.run().code == 0
    assert counts(driven) == {"one": 2, "two": 1, "three": 1}
    assert_right(driven)


@pytest.mark.parametrize(
    ("kind", "extra", "ends", "said"),
    [
        (
            "argv",
            "[ -e {root}/mended ] || {{ rm out.txt; exit 0; }}",
            ("crashed", "blocked"),
            "one crashed: left no `out.txt`",
        ),
        (
            "program",
            "    if not (root / 'mended').exists(): return {{}}",
            ("crashed", "blocked"),
            "one crashed: left no `out`, which `three` reads",
        ),
    ],
    ids=["argv", "program"],
)
def test_t7b_exit_0_without_the_declared_output(
    driven: DrivenProject, kind: str, extra: str, ends: tuple[str, str], said: str
) -> None:
    three(driven, kind, extra=extra.format(root=driven.root))
    open_gates(driven)
    done = driven.run()
    assert done.code == 1 and said in done.err
    assert driven.took_s("one") < driven.took_s("two") + 5, "nobody waits for a file that may come late"
    assert driven.words() == {"one": ends[0], "two": "passed", "three": ends[1]}
    (driven.root / "mended").touch()
    assert driven.run().code == 0
    assert_right(driven)
