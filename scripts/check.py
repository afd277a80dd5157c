"""What `make check` runs, in order, in the environment that make made for it: lint, types, spelling, docs, tests.

Every step runs even if an earlier one failed, so that one call tells all; the exit code is 1 if any failed.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
PYTEST = [sys.executable, "-m", "pytest", "-m"]
ONE_AT_A_TIME = "tests, one at a time"  # they mostly wait, and do so beside all other steps
STEPS = {
    "ruff": [BIN / "ruff", "check", "."],
    "mypy": [BIN / "mypy"],
    "codespell": [BIN / "codespell"],
    "generated docs": [sys.executable, "scripts/docs.py", "--check"],
    "tests, side by side": [*PYTEST, "not clock", "-n", str(min(8, CORES)), "--dist", "loadfile"],
}


def main() -> int:
    """Run all steps; a line each with its seconds."""
    failed = []
    with tempfile.TemporaryFile() as said:
        began = time.monotonic()
        waiting = subprocess.Popen([*PYTEST, "clock"], cwd=ROOT, stdout=said, stderr=said)
        for name, argv in STEPS.items():
            started = time.monotonic()
            code = subprocess.run([str(word) for word in argv], cwd=ROOT, check=False).returncode
            failed += told(name, code, started)
        code = waiting.wait()
        said.seek(0)
        print(said.read().decode(errors="replace"), end="", flush=True)
        failed += told(ONE_AT_A_TIME, code, began)
    return 1 if failed else 0


def told(name: str, code: int, started: float) -> list[str]:
    """Say how a step ended; its name if it failed."""
    print(f"{name}: {'ok' if code == 0 else f'FAILED ({code})'} in {time.monotonic() - started:.1f} s", flush=True)
    return [name] if code else []


if __name__ == "__main__":
    raise SystemExit(main())
