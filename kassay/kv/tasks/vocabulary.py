"""The character vocabulary of the small models: which token id stands for which character.

A token id is the character's ASCII code, so that a text can be read off its ids with any tool. Three ids have a role:
0 pads, 1 begins a text, and 10 (newline) ends an answer. There is no tokenizer file and no unknown token: a character
outside ASCII is an error, never a replacement.
"""

SIZE = 128
PAD = 0
BEGIN = 1
NEWLINE = 10


def encode(text: str) -> list[int]:
    """Token ids of `text`, one a character; raises UnicodeEncodeError where a character is not ASCII."""
    return list(text.encode("ascii"))


def encode_context(text: str) -> list[int]:
    """Token ids of a context: begin-of-text, then one id a character (`len(text) + 1` ids)."""
    return [BEGIN, *encode(text)]


def decode(ids: list[int]) -> str:
    """Text of `ids`, without padding and begin-of-text; raises UnicodeDecodeError for an id outside 0..127."""
    return bytes(i for i in ids if i not in (PAD, BEGIN)).decode("ascii")
