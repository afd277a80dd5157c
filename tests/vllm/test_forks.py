"""Forked cells of a trial: real processes that take turns, fail, and hang."""

import time
from pathlib import Path

import pytest

from kassay.backend.vllm_forks import LOAD, READY, TURN, Forks, Voice

pytestmark = pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")


def forks_of(folder: Path, seconds: float = 60) -> Forks:
    """Forks whose failures go to a file."""
    return Forks(folder, seconds, lambda name, error: (folder / f"{name}.failed").write_text(str(error)) and None)


def test_two_cells_take_turns_and_change_their_order(tmp_path: Path) -> None:
    order = tmp_path / "order"
    order.touch()

    def serve(voice: Voice, name: str, turns: int) -> None:
        voice.say(READY)
        for load in range(2):
            voice.wait()
            for turn in range(turns):
                with order.open("a") as file:
                    file.write(f"{load}{name}{turn} ")
                voice.say(TURN)
                voice.wait()
            voice.say(LOAD)

    works = [("a", lambda voice: serve(voice, "a", 2)), ("b", lambda voice: serve(voice, "b", 3))]
    assert forks_of(tmp_path).pair(works, 2)
    assert order.read_text().split() == ["0a0", "0b0", "0a1", "0b1", "0b2", "1b0", "1a0", "1b1", "1a1", "1b2"]


def test_a_cell_that_fails_says_so_and_one_that_hangs_is_ended(tmp_path: Path) -> None:
    def broken() -> None:
        raise ValueError("no such model")

    forks = forks_of(tmp_path)
    assert not forks.run("broken", broken, 60)
    assert (tmp_path / "broken.failed").read_text() == "no such model"
    begun = time.monotonic()
    assert not forks.run("hangs", lambda: time.sleep(600), 0.2)
    assert time.monotonic() - begun < 60


def test_a_side_that_says_something_else_ends_both(tmp_path: Path) -> None:
    works = [("a", lambda voice: voice.say(LOAD)), ("b", lambda voice: time.sleep(600))]
    assert not forks_of(tmp_path, 3).pair(works, 1)
