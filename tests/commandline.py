"""The command line of a tree, as a subprocess, with no words of a make around it."""

import os
import subprocess
import sys
from pathlib import Path


def kassay(tree: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command line of a tree."""
    variables = {name: value for name, value in os.environ.items() if name not in ("KASSAY_MAKE", "SET")}
    return subprocess.run(
        [sys.executable, "-m", "kassay", *words],
        cwd=tree,
        env={**variables, "PYTHONPATH": str(tree), **environment},
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )
