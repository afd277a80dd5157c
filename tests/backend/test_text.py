"""Texts as tokens: the shipped models' characters stay what they were, and a tokenizer's rows keep their promises."""

from pathlib import Path

import pytest

from kassay.backend import text
from kassay.backend.text import Characters, Passage, Tokens
from kassay.kv.tasks import arithmetic, document, retrieval, vocabulary
from kassay.stage import Unmet
from tests import given

ASKED = {"split": "development", "seed": 3, "count": 6}


@pytest.fixture(scope="module", params=[False, True], ids=["no-begin", "begin"])
def tokens(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Tokens:
    folder = tmp_path_factory.mktemp("given")
    given.tokenizer(request.param).save_pretrained(folder)
    return text.of_folder(folder, {5})


def test_characters_are_the_tasks_own_items_and_documents() -> None:
    found = Characters().passages(**ASKED, context_tokens=50, targets=7)
    made = document.documents(**ASKED, context_tokens=50, targets=7)
    assert [passage.document for passage in found] == made
    assert [list(passage.context) for passage in found] == [vocabulary.encode_context(one.context) for one in made]
    for measure, make, size in (("retrieval", retrieval.items, 250), ("arithmetic", arithmetic.items, 128)):
        questions = Characters().questions(measure, **ASKED, context_tokens=size)
        assert [question.item for question in questions] == make(**ASKED, context_tokens=size)
        assert {len(question.context) for question in questions} == {size}
        assert [list(q.question) for q in questions] == [vocabulary.encode(q.item.question) for q in questions]
    assert Characters().answer(vocabulary.encode("472\n")) == Characters().answer(vocabulary.encode("472")) == "472"


def test_documents_have_exactly_the_planned_tokens(tokens: Tokens) -> None:
    found = tokens.passages(**ASKED, context_tokens=90, targets=11)
    assert {(len(passage.context), len(passage.continuation)) for passage in found} == {(90, 11)}
    assert len({passage.document.digest for passage in found}) == len({p.document.content_digest for p in found}) == 6
    text_of = tokens.tokenizer.decode(found[0].context[len(tokens.begin) :] + found[0].continuation)
    assert text_of == found[0].document.context + found[0].document.continuation
    longer = document.documents(**ASKED, context_tokens=2000, targets=0)[0].context
    assert longer.split(".")[0] == text_of.split(".")[0], "the same text as that of the characters"
    assert found == tokens.passages(**ASKED, context_tokens=90, targets=11)


def test_begin_of_text_is_where_the_tokenizer_puts_it(tokens: Tokens) -> None:
    passage = tokens.passages(**ASKED, context_tokens=40, targets=3)[0]
    question = tokens.questions("retrieval", **ASKED, context_tokens=300)[0]
    bos = tokens.tokenizer.bos_token_id
    expected = (bos,) if tokens.begin else ()
    for row in (passage.context, question.context):
        assert row[: len(expected)] == expected and bos not in row[len(expected) :]
    assert bos not in passage.continuation + question.question


@pytest.mark.parametrize("measure", ["retrieval", "arithmetic"])
def test_contexts_of_questions_come_near_the_planned_length(tokens: Tokens, measure: str) -> None:
    found = tokens.questions(measure, **ASKED, context_tokens=300)
    lengths = [len(question.context) for question in found]
    assert all(abs(length - 300) <= 45 for length in lengths), lengths
    assert len({question.item.digest for question in found}) == 6
    for question in found:
        context, asked = question.item.context, question.item.question
        assert context + asked == context + asked.rstrip(), "no blank at the end, which tokenizers join to what follows"
        assert tokens.tokenizer.decode(question.context[len(tokens.begin) :]) == context


def test_a_context_shows_the_form_of_an_answer_and_never_the_answer() -> None:
    for item in text.shown_records(**ASKED, context_tokens=800):
        last, before = (line for line in item.context.split("\n")[-2:-4:-1])
        assert all(line.startswith("what is the code of ") for line in (last, before))
        assert item.expected not in last + before and item.context.count(item.expected) == 1
        assert item.question.split()[-1] not in last + before
    for item in text.solved_problems(**ASKED, context_tokens=800):
        *shown, story = item.context.split("\n")
        assert shown and all(arithmetic.last_labelled_answer(line) is not None for line in shown)
        assert arithmetic.last_labelled_answer(story) is None
        assert all(text.NUMBERS.findall(line)[:3] != text.NUMBERS.findall(story) for line in shown)


def test_an_answer_ends_with_a_line_or_with_the_text(tokens: Tokens) -> None:
    line = tokens.ids("\n")[-1]
    assert {line, 5, tokens.tokenizer.eos_token_id} <= tokens.stops
    assert not tokens.stops & set(tokens.ids("the code of kef is 472."))
    assert tokens.answer([*tokens.ids(" 472"), line]) == "472"
    assert tokens.answer([*tokens.ids(" 472"), tokens.tokenizer.eos_token_id]) == "472"
    assert tokens.answer(tokens.ids(" 472\nand more")) == "472"


def test_batches_hold_rows_of_equal_lengths_and_all_of_them_once(tokens: Tokens) -> None:
    found = tokens.questions("retrieval", **{**ASKED, "count": 30}, context_tokens=300)
    made = list(text.batches(found, 4))
    assert sorted(q.item.item_id for batch in made for q in batch) == sorted(q.item.item_id for q in found)
    assert all(len({(len(q.context), len(q.question)) for q in batch}) == 1 for batch in made)
    assert max(map(len, made)) <= 4 and len(made) > 8, "lengths differ, or nothing is shown"
    alike: list[Passage] = tokens.passages(**ASKED, context_tokens=30, targets=2)
    assert [p for batch in text.batches(alike, 4) for p in batch] == alike, "in their order where all are alike"


def test_a_folder_without_a_tokenizer_is_unmet_by_name(tmp_path: Path) -> None:
    with pytest.raises(Unmet, match=rf"{tmp_path.name}: no tokenizer lies beside the weights, allowed are tokenizer"):
        text.of_folder(tmp_path, set())
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(Unmet, match="its tokenizer cannot be read"):
        text.of_folder(tmp_path, set())
