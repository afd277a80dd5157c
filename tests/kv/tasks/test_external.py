"""Files of tasks: every line is checked, the selection is the seed's, and what lacks is unmet by name."""

import hashlib
import json
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import pytest

from kassay import digest, paths
from kassay.errors import RecordError
from kassay.kv.tasks import external
from kassay.stage import Unmet

FAKE = '''
"""Stands for the library: two problems, or two articles of lines."""
HEAD = ["", " = One = \\n", "", " first \\n", " = = Part = = \\n", " more \\n", "", " = Two = \\n", "", " second \\n"]
def load_dataset(repository, config, split):
    if split != "test":
        raise ValueError("unknown split " + split)
    if repository == "openai/gsm8k" and config == "main":
        return [{"question": f"what is {n}?", "answer": f"it is\\n#### {n:,}.50"} for n in (1, 7000)]
    assert (repository, config) == ("Salesforce/wikitext", "wikitext-103-raw-v1")
    return [{"text": text} for text in HEAD]
'''


def written(path: Path, *lines: object) -> Path:
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return path


def problem(number: int, label: str = "####") -> dict[str, str]:
    return {"question": f"how many are {number}?", "answer": f"they are {number}.\n{label} {number}"}


def test_problems_have_exact_answers_and_digests_of_what_they_say(tmp_path: Path) -> None:
    path = written(tmp_path / "p.jsonl", problem(18), {"question": "q", "answer": "3 #### 4 #### 1,234,567.50"})
    found = external.problems(path)
    assert [one.answer for one in found.entries] == [Decimal(18), Decimal("1234567.5")]
    assert found.sha256 == hashlib.sha256(path.read_bytes()).hexdigest() == digest.of_path(path)
    moved = external.problems(written(tmp_path / "q.jsonl", problem(17), problem(18)))
    assert moved.entries[1].digest == found.entries[0].digest and moved.entries[1].line == 2
    assert external.texts(written(tmp_path / "t.jsonl", {"text": "öd"})).entries[0].text == "öd"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "p.jsonl:2: "),
        ("", "p.jsonl:2: "),
        ("[1]", "p.jsonl:2: is list, allowed is an object of question and answer"),
        ({"question": "q"}, "p.jsonl:2: is keys question"),
        ({**problem(2), "id": 1}, "allowed is an object of question and answer"),
        ({"question": " ", "answer": "#### 1"}, "`question` is not a text"),
        ({"question": "q", "answer": 1}, "`answer` is not a text"),
        ({"question": "q", "answer": "it is 18"}, "no number labelled `####`"),
        ({"question": "q", "answer": "#### 18 #### none"}, "no number labelled `####`"),
        (problem(1), "says the same as line 1"),
    ],
)
def test_every_line_is_checked(tmp_path: Path, line: object, said: str) -> None:
    with pytest.raises(RecordError) as caught:
        external.problems(written(tmp_path / "p.jsonl", problem(1), line, problem(3)))
    assert said in str(caught.value) and len(caught.value.messages) == 1


def test_all_faults_are_told_at_once_up_to_a_number(tmp_path: Path) -> None:
    with pytest.raises(RecordError) as caught:
        external.texts(written(tmp_path / "t.jsonl", *[{"text": ""}] * 12))
    assert len(caught.value.messages) == 11 and "2 more lines" in str(caught.value)


def test_the_selection_is_fixed_by_seed_and_content_and_never_smaller(tmp_path: Path) -> None:
    entries = external.problems(written(tmp_path / "p.jsonl", *map(problem, range(50)))).entries
    backwards = external.problems(written(tmp_path / "q.jsonl", *map(problem, reversed(range(50))))).entries

    def chosen(found: tuple[external.Problem, ...], seed: int, count: int) -> list[external.Problem]:
        return external.selected("p.jsonl", found, seed=seed, count=count)

    assert chosen(entries, 1, 50) == list(entries)
    ten = chosen(entries, 1, 10)
    assert [one.line for one in ten] == sorted(one.line for one in ten)
    assert {one.digest for one in ten} == {one.digest for one in chosen(backwards, 1, 10)}
    assert {one.line for one in ten} < {one.line for one in chosen(entries, 1, 20)}
    assert ten != chosen(entries, 2, 10)
    with pytest.raises(Unmet, match=r"p\.jsonl: 51 entries are asked for, and 50 can be used"):
        chosen(entries, 1, 51)


def test_a_file_that_is_not_there_is_unmet_by_name(tmp_path: Path) -> None:
    with pytest.raises(Unmet, match=r"none\.jsonl: no such file of tasks; .*fetch-tasks"):
        external.texts(tmp_path / "none.jsonl")


def fetch(tmp_path: Path, library: str, *words: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "datasets.py").write_text(library)
    argv = [sys.executable, str(paths.ROOT / "scripts" / "fetch-tasks.py"), *words]
    return subprocess.run(argv, capture_output=True, text=True, env={"PYTHONPATH": str(tmp_path)}, check=False)


def test_the_script_writes_what_is_read(tmp_path: Path) -> None:
    done = fetch(tmp_path, FAKE, "gsm8k", str(tmp_path / "out" / "p.jsonl"))
    assert done.returncode == 0, done.stderr
    found = external.problems(tmp_path / "out" / "p.jsonl")
    assert [one.answer for one in found.entries] == [Decimal("1.5"), Decimal("7000.5")] and found.sha256 in done.stdout
    assert fetch(tmp_path, FAKE, "wikitext", str(tmp_path / "t.jsonl")).returncode == 0
    articles = [one.text for one in external.texts(tmp_path / "t.jsonl").entries]
    assert len(articles) == 2 and articles[0].startswith("= One =") and "= = Part = =" in articles[0]


def test_the_script_says_what_lacks_and_leaves_no_file(tmp_path: Path) -> None:
    out = tmp_path / "p.jsonl"
    done = fetch(tmp_path, "raise ImportError", "gsm8k", str(out))
    assert done.returncode == 1 and "hint: pip install datasets" in done.stderr and not out.exists()
    done = fetch(tmp_path, FAKE, "gsm8k", str(out), "nowhere")
    assert done.returncode == 1 and "unknown split nowhere" in done.stderr and not out.exists()
    broken = 'load_dataset = lambda *_, split: [{"question": "q", "answer": "no label"}]'
    done = fetch(tmp_path, broken, "gsm8k", str(out))
    assert done.returncode == 1 and "no number labelled" in done.stderr and not out.exists()
