"""What a file imports, for the tests of what may import what."""

import ast
from pathlib import Path


def imported(path: Path) -> set[str]:
    """Dotted names that a file imports, those within functions too; of `from a import b` both `a` and `a.b`."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found
