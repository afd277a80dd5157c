"""menuconfig as a user drives it: in a terminal of 80x24 under tmux, with keys."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commandline import kassay

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")


class Terminal:
    """A tmux session of its own server."""

    def __init__(self, tree: Path) -> None:
        self.socket = tree / "tmux.socket"
        environment = {name: text for name, text in os.environ.items() if name not in ("TMUX", "KASSAY_MAKE")}
        self.environment = {**environment, "PYTHONPATH": str(tree), "TERM": "xterm", "LC_ALL": "C.UTF-8"}
        self.tmux("-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "24", "-c", str(tree), "bash", "--norc")

    def tmux(self, *words: str) -> str:
        argv = ["tmux", "-S", str(self.socket), *words]
        return subprocess.run(argv, env=self.environment, capture_output=True, text=True, check=True).stdout

    def type(self, *keys: str) -> None:
        self.tmux("send-keys", *keys)

    def until(self, text: str, without: str = "\0") -> str:
        """The screen, as soon as it holds the one text and not the other."""
        deadline = time.monotonic() + 60
        while text not in (screen := self.tmux("capture-pane", "-p")) or without in screen:
            assert time.monotonic() < deadline, f"`{text}` did not come:\n{screen}"
            time.sleep(0.05)
        return screen


@pytest.fixture
def terminal(tree: Path) -> Iterator[Terminal]:
    """A terminal in a tree with a configuration."""
    assert kassay(tree, "defconfig", "decode-cpu").returncode == 0
    made = Terminal(tree)
    yield made
    made.tmux("kill-server")


def start(terminal: Terminal, verb: str = "menuconfig") -> str:
    """Open the menu."""
    terminal.type(f"{sys.executable} -m kassay {verb}; echo ended with $?", "Enter")
    screen = terminal.until("Run policy")
    lines = screen.rstrip("\n").split("\n")
    assert len(lines) <= 24 and max(map(len, lines)) <= 80
    return screen


def test_change_search_and_save(terminal: Terminal, tree: Path) -> None:
    start(terminal)
    terminal.type("/")
    terminal.until("Jump to symbol/choice/menu/comment")
    terminal.type("TIMING_BLOCKS")
    terminal.until("TIMING_BLOCKS(=6)")
    terminal.type("Enter")
    terminal.until("(6) Blocks; each holds one fresh process per arm")
    terminal.type("Enter")
    terminal.until("Range: 1-64")
    terminal.type("BSpace", "9", "9", "Enter")
    terminal.until("99 is outside the range 1-64")
    terminal.type("Escape")
    terminal.type("BSpace", "BSpace", "1", "2", "Enter")
    terminal.until("(12) Blocks")
    terminal.type("?")
    terminal.until("Six blocks balance the order")
    terminal.type("Escape", "s")
    terminal.until("Filename to save")
    terminal.type("Enter")
    terminal.until("saved to")
    terminal.type("Enter", "q")
    terminal.until("ended with 0")
    text = (tree / ".config").read_text()
    assert text.startswith("# kassay configuration") and "CONFIG_TIMING_BLOCKS=12\n" in text
    assert "CONFIG_TIMING_BLOCKS=6\n" in (tree / ".config.old").read_text()
    assert "12 (user, .config)" in kassay(tree, "helpconfig", "TIMING_BLOCKS").stdout


def test_a_file_that_does_not_hold_strictly_is_not_loaded(terminal: Terminal, tree: Path) -> None:
    (tree / "bad").write_text("CONFIG_TIMING_BLOCKS=12\nCONFIG_TIMNG_BLOCKS=9\n")
    (tree / "good").write_text("CONFIG_TIMING_BLOCKS=24\n")
    start(terminal)
    load(terminal, "bad", "unknown symbol `TIMNG_BLOCKS`", leaves=2)
    load(terminal, "good", "Loaded good", leaves=1)
    terminal.type("/")
    terminal.until("Jump to symbol/choice/menu/comment")
    terminal.type("TIMING_BLOCKS")
    terminal.until("TIMING_BLOCKS(=24)")
    terminal.type("Escape")
    terminal.until("[Q] Quit")
    terminal.type("q")
    terminal.until("Save configuration?")
    terminal.type("n")
    terminal.until("ended with 0")
    assert "CONFIG_TIMING_BLOCKS=6\n" in (tree / ".config").read_text(), "left without saving"


def load(terminal: Terminal, name: str, answer: str, leaves: int) -> None:
    """Load a file in the menu, and leave the dialogs."""
    terminal.type("o")
    terminal.until("File to load")
    terminal.type("C-u")
    terminal.type(name, "Enter")
    terminal.until(answer)
    for shown in [answer, "File to load"][:leaves]:
        terminal.type("Escape")
        terminal.until("[O] Load", without=shown)
    terminal.until("[O] Load", without="File to load")


def test_nconfig_and_oldconfig(terminal: Terminal, tree: Path) -> None:
    start(terminal, "nconfig")
    terminal.type("q")
    terminal.until("ended with 0")
    config = tree / ".config"
    config.write_text(config.read_text().replace("CONFIG_SWEEP_REPETITIONS=5\n", ""))
    terminal.type("clear", "Enter")
    terminal.type(f"{sys.executable} -m kassay oldconfig; echo asked, $?", "Enter")
    terminal.until("Measurements of each cell, after one warm-up")
    terminal.type("7", "Enter")
    terminal.until("asked, 0")
    assert "CONFIG_SWEEP_REPETITIONS=7\n" in config.read_text()
