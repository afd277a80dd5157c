"""A token id is a character's ASCII code, and nothing outside it is let through."""

import pytest

from kassay.kv.tasks import vocabulary


def test_ids_are_ascii_codes():
    assert vocabulary.encode("a~\n") == [97, 126, vocabulary.NEWLINE]


def test_a_context_begins_with_begin_of_text():
    assert vocabulary.encode_context("ab") == [vocabulary.BEGIN, 97, 98]


def test_decoding_undoes_encoding_and_drops_the_marks():
    text = "".join(map(chr, range(10, vocabulary.SIZE)))
    assert vocabulary.decode([*vocabulary.encode_context(text), vocabulary.PAD]) == text


def test_a_foreign_character_is_an_error():
    with pytest.raises(UnicodeEncodeError):
        vocabulary.encode("caf\u00e9")


def test_a_foreign_id_is_an_error():
    with pytest.raises(UnicodeDecodeError):
        vocabulary.decode([128])
