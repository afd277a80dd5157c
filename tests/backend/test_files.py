"""Files of tasks as tokens: exact windows, problems that show their form, answers read to their last label."""

import json
from decimal import Decimal
from pathlib import Path

import pytest

from kassay.backend import answers, files, text
from kassay.backend.text import Characters, Tokens
from kassay.errors import KassayError
from kassay.kv.tasks import document, gsm8k
from kassay.stage import Unmet
from tests import given

ASKED = {"split": "confirmation", "seed": 3}


@pytest.fixture(scope="module", params=[False, True], ids=["no-begin", "begin"])
def tokens(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Tokens:
    folder = tmp_path_factory.mktemp("given")
    given.tokenizer(request.param).save_pretrained(folder)
    return text.of_folder(folder, {5})


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "documents.jsonl"
    made = document.documents(split="train", seed=1, count=9, context_tokens=600, targets=0)
    lines = [{"text": one.context if at % 3 else one.context[:20]} for at, one in enumerate(made)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.fixture(scope="module")
def problems(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "problems.jsonl"
    lines = [{"question": f"what is {n} + {n}? ", "answer": f"{n} + {n} = {2 * n}\n#### {2 * n}.00"} for n in range(9)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_windows_are_exact_and_those_of_documents_that_are_long_enough(tokens: Tokens, documents: Path) -> None:
    found = files.windows(tokens, documents, **ASKED, count=6, context_tokens=50, targets=7)
    assert {(len(one.context), len(one.continuation)) for one in found} == {(50, 7)}
    assert [one.document.item_id for one in found] == [f"documents-{line:05d}" for line in (2, 3, 5, 6, 8, 9)]
    lines = [json.loads(line)["text"] for line in documents.read_text().splitlines()]
    for one in found:
        assert one.context[: len(tokens.begin)] == tokens.begin
        whole = tokens.tokenizer.decode(one.context[len(tokens.begin) :] + one.continuation)
        assert lines[int(one.document.item_id[-5:]) - 1].startswith(whole)
    few = files.windows(tokens, documents, **ASKED, count=2, context_tokens=50, targets=7)
    assert {one.document.digest for one in few} < {one.document.digest for one in found}
    longer = files.windows(tokens, documents, **ASKED, count=2, context_tokens=60, targets=7)
    assert [one.document.item_id for one in longer] == [one.document.item_id for one in few]


def test_too_few_long_documents_are_unmet(tokens: Tokens, documents: Path) -> None:
    with pytest.raises(Unmet, match="7 documents of 57 tokens are asked for, and 6 of 9 are that long"):
        files.windows(tokens, documents, **ASKED, count=7, context_tokens=50, targets=7)


def test_problems_stand_behind_solved_ones_and_their_answers_are_exact(tokens: Tokens, problems: Path) -> None:
    found = files.problems(tokens, problems, **ASKED, count=9)
    for at, one in enumerate(found):
        assert one.item.expected == str(2 * at) and one.item.context.endswith(f"Question: what is {at} + {at}?")
        assert tokens.tokenizer.decode(one.context[len(tokens.begin) :] + one.question).endswith("?\nAnswer:")
    assert len({one.item.digest for one in found}) == 9
    with pytest.raises(Unmet, match=r"problems\.jsonl: 10 entries are asked for, and 9 can be used"):
        files.problems(tokens, problems, **ASKED, count=10)


def test_what_is_shown_is_right_by_the_strict_reader() -> None:
    assert [gsm8k.read(solution, "length").value for _, solution in files.SHOWN] == [Decimal(19), Decimal(9)]


def test_characters_take_no_files(problems: Path) -> None:
    with pytest.raises(KassayError, match="need a checkpoint with a tokenizer"):
        files.problems(Characters(), problems, **ASKED, count=1)


@pytest.mark.parametrize(
    ("whole", "ended", "parsed", "outcome", "marked"),
    [
        (" so 9 * 2 = 18\n#### 18", True, "18", "correct", True),
        (" so\n#### 18.00\n\nQuestion: and 5?\nAnswer: #### 5", False, "18", "correct", True),
        (" #### 18", False, "18", "correct", True),
        (" #### 17", False, "17", "wrong", True),
        (" it is $18.", True, "18", "correct", False),
        (" it is 17", True, "17", "wrong", False),
        (" it is 18 and", False, None, "truncated", True),
        (" it is 18\nQuestion: what", False, "18", "correct", False),
        (" who knows", True, None, "unreadable", True),
    ],
)
def test_answers_are_read_to_their_last_label(
    whole: str, ended: bool, parsed: str | None, outcome: str, marked: bool
) -> None:
    said = answers.problem(whole, ended, "18")
    assert (said.parsed, said.outcome, said.marked) == (parsed, outcome, marked)
    assert "Question" not in said.text


def test_a_line_does_not_end_an_answer_at_length(tokens: Tokens) -> None:
    line = tokens.ids("\n")[-1]
    assert answers.stops("gsm8k", tokens) == {5, tokens.tokenizer.eos_token_id} and line in tokens.stops
    row = [*tokens.ids(" 3 + 3 = 6\n#### 6"), tokens.tokenizer.eos_token_id]
    assert answers.read("gsm8k", tokens, row, "6").outcome == "correct"
    assert answers.read("gsm8k", tokens, [*tokens.ids(" 3 + 3 ="), line], "3").outcome == "truncated"
    assert answers.read("retrieval", tokens, [*tokens.ids(" 472"), line], "472").outcome == "correct"


@pytest.mark.parametrize(
    ("value", "shown"),
    [("29.00", "29"), ("18.", "18"), ("-0", "0"), ("0.50", "0.5"), ("100", "100"), ("1" * 40 + ".10", "1" * 40 + ".1")],
)
def test_decimals_have_one_form(value: str, shown: str) -> None:
    assert gsm8k.shown(Decimal(value)) == shown and Decimal(shown) == Decimal(value)
