"""The queue and the text of pieces, without a model behind them."""

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kassay.backend.checkpoint import Checkpoint
from kassay.backend.cohort import Decoder, Served, Waiting
from kassay.backend.completion import Asked, BadRequest, Job, parse
from kassay.backend.text import Tokens
from kassay.kinds.serving import ServerRequest
from kassay.kv.recipe import NATIVE
from kassay.serving import tools


class Bytes:
    """A tokenizer whose tokens are bytes, so that a character may take several."""

    bos_token_id = None
    eos_token_id = None

    def __call__(self, text: str, add_special_tokens: bool = True) -> dict[str, list[int]]:
        return {"input_ids": list(text.encode())}

    def decode(self, row: list[int], skip_special_tokens: bool = False) -> str:
        """The text, with a sign for what is no whole character."""
        return bytes(row).decode(errors="replace")

    def batch_decode(self, rows: list[list[int]]) -> list[str]:
        """The texts of rows."""
        return [self.decode(row) for row in rows]

    def __len__(self) -> int:
        return 256


def served(tokenizer: Any) -> Served:
    """A server's settings over a model that is only asked for its configuration."""
    config = SimpleNamespace(vocab_size=256, max_position_embeddings=32)
    model: Any = SimpleNamespace(config=SimpleNamespace(get_text_config=lambda **kwargs: config))
    checkpoint = Checkpoint(model=model, text=Tokens(tokenizer, []), device=torch.device("cpu"), compute="fp32")
    return Served(
        name="m",
        checkpoint=checkpoint,
        recipe=NATIVE,
        scales=None,
        largest_cohort=2,
        most_waiting=3,
        most_tokens=16,
    )


def asked(prompt: str | tuple[int, ...], max_tokens: int = 4) -> Asked:
    """A request."""
    return Asked(chat=False, prompt=prompt, max_tokens=max_tokens, stream=True, usage=True, ignore_eos=True)


def job(name: str, tokens: int = 4, max_tokens: int = 4) -> Job:
    """A request of so many prompt tokens."""
    return Job(request_id=name, prompt=(1,) * tokens, max_tokens=max_tokens, stops=frozenset())


def test_a_checkpoints_own_tokenizer_makes_the_prompt(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    folder = tools.write_character_tokenizer(tmp_path / "tokenizer")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    found = served(tokenizer)
    assert found.encoded(asked("ada")) == (97, 100, 97) and found.decoded([97, 100]) == "ad"
    with pytest.raises(BadRequest, match="29 prompt and 4 output tokens exceed the 32 positions"):
        found.encoded(asked("a" * 29))


def test_a_character_of_two_tokens_is_shown_when_it_is_whole() -> None:
    decoder, one = Decoder(served(Bytes()), lambda record: None), job("a", max_tokens=3)
    for token in (0xC3, 0xA9, ord("x")):
        decoder.hand_out([one], torch.tensor([[token]]))
    pieces = [one.pieces.get_nowait() for _ in range(3)]
    assert [(piece.text, piece.output_tokens) for piece in pieces] == [("", 1), ("é", 2), ("x", 3)]
    assert [piece.finish_reason for piece in pieces] == [None, None, "length"]


def test_a_cohort_is_the_oldest_and_those_of_its_length() -> None:
    waiting = Waiting(most=4)
    jobs = [job("a", 4), job("b", 5), job("c", 4), job("d", 4)]
    assert [waiting.put(one) for one in jobs] == [True] * 4 and waiting.put(job("e")) is False
    jobs[0].gone = True
    assert [one.request_id for one in waiting.take(2)] == ["b"], "who went away is dropped, and b is the oldest"
    assert [one.request_id for one in waiting.take(2)] == ["c", "d"] and waiting.take(2) == []


def test_what_waits_when_the_server_stops_is_told() -> None:
    records: list[ServerRequest] = []
    decoder = Decoder(served(Bytes()), records.append)
    decoder.stopping.set()
    one = job("a")
    decoder.waiting.put(one)
    thread = threading.Thread(target=decoder.run)
    thread.start()
    thread.join(60)
    assert not thread.is_alive() and one.pieces.get_nowait().finish_reason == "error"


def test_all_that_is_wrong_with_a_request_is_said_at_once() -> None:
    with pytest.raises(BadRequest) as caught:
        parse(b'{"model": "n", "max_tokens": 0, "n": 2, "stream_options": 3}', model="m", chat=False, most_tokens=8)
    assert len(caught.value.messages) == 5
    with pytest.raises(BadRequest, match="is no JSON object"):
        parse(b"[]", model="m", chat=True, most_tokens=8)
    with pytest.raises(BadRequest, match="`messages` is no list"):
        parse(b'{"model": "m"}', model="m", chat=True, most_tokens=8)
    neutral = (
        b'{"model": "m", "prompt": "x", "temperature": 0.0, "top_p": 1.0, "logprobs": null, "repetition_penalty": 1.0}'
    )
    assert parse(neutral, model="m", chat=False, most_tokens=16).max_tokens == 16
