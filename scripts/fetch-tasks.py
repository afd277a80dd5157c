"""Write a file of tasks from a public data set: a problem or a document a line, as kassay.kv.tasks.external reads them.

    python scripts/fetch-tasks.py gsm8k build/tasks/gsm8k-test.jsonl
    python scripts/fetch-tasks.py wikitext build/tasks/wikitext.jsonl [SPLIT]

SPLIT is one of the data set's own, or several such as `validation+test`; without it, `test`. The library `datasets`
must be installed, and finds the data in its cache or downloads them. A document of WikiText is a whole article. What
was written is read once more before the file takes its name, and its digest is printed. Never imported.
"""

import json
import os
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from kassay.errors import KassayError
from kassay.kv.tasks import external

SETS = {"gsm8k": ("openai/gsm8k", "main"), "wikitext": ("Salesforce/wikitext", "wikitext-103-raw-v1")}
HEADING = re.compile(r" = [^=].* = \n?")  # of an article; those of its sections have more signs


def rows_of(name: str, split: str) -> Iterable[dict[str, Any]]:
    """The rows of a data set; exits with what to install or to fetch if there are none."""
    try:
        import datasets
    except ImportError:
        sys.exit("error: the library `datasets` is not installed\nhint: pip install datasets")
    repository, config = SETS[name]
    try:
        rows: Iterable[dict[str, Any]] = datasets.load_dataset(repository, config, split=split)
    except (OSError, ValueError) as error:  # no network, no such split
        sys.exit(
            f"error: {repository} ({config}, {split}) cannot be loaded: {error}\nhint: fetch it where there is a net"
        )
    return rows


def lines_of(name: str, rows: Iterable[dict[str, Any]]) -> Iterator[dict[str, str]]:
    """The lines of the file."""
    if name == "gsm8k":
        yield from ({"question": row["question"], "answer": row["answer"]} for row in rows)
        return
    article: list[str] = []
    blank_before = True
    for text in (row["text"] for row in rows):
        if blank_before and HEADING.fullmatch(text) and "".join(article).strip():
            yield {"text": "".join(article).strip()}
            article = []
        article.append(text)
        blank_before = not text.strip()
    if "".join(article).strip():
        yield {"text": "".join(article).strip()}


def main(name: str, path: Path, split: str) -> None:
    """Fetch, write, check, and tell."""
    lines = [json.dumps(line, ensure_ascii=True) + "\n" for line in lines_of(name, rows_of(name, split))]
    path.parent.mkdir(parents=True, exist_ok=True)
    written = path.with_name(f".{path.name}")
    written.write_text("".join(lines), encoding="ascii")
    try:
        found = external.problems(written) if name == "gsm8k" else external.texts(written)
    except KassayError as error:
        written.unlink()
        sys.exit(f"error: {error}")
    os.replace(written, path)
    print(f"{path}: {len(found.entries)} entries, sha256 {found.sha256}")


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4) or sys.argv[1] not in SETS:
        sys.exit(f"usage: python scripts/fetch-tasks.py {'|'.join(SETS)} FILE [SPLIT]")
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3] if len(sys.argv) == 4 else "test")
