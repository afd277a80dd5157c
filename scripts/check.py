"""What `make check` runs, in order, in the environment that make made for it: lint, types, spelling, docs, tests.

Every step runs even if an earlier one failed, so that one call tells all; the exit code is 1 if any failed.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
WORKERS = str(min(8, CORES + 1))  # one of them has the tests that mostly wait (tests/conftest.py)
STEPS = {
    "ruff": [BIN / "ruff", "check", "."],
    "mypy": [BIN / "mypy"],
    "codespell": [BIN / "codespell"],
    "generated docs": [sys.executable, "scripts/docs.py", "--check"],
    "tests": [sys.executable, "-m", "pytest", "-n", WORKERS, "--dist", "loadgroup"],
}


def main() -> int:
    """Run all steps; a line each with its seconds."""
    failed = []
    for name, argv in STEPS.items():
        started = time.monotonic()
        code = subprocess.run([str(word) for word in argv], cwd=ROOT, check=False).returncode
        print(f"{name}: {'ok' if code == 0 else f'FAILED ({code})'} in {time.monotonic() - started:.1f} s", flush=True)
        failed += [name] if code else []
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
