"""Passes counted at a model's own door: prefill and decode told apart by the cache, and who was missing from a step."""

from types import SimpleNamespace
from typing import Any

import torch

from kassay.backend.passes import Pass, Passes, Schedule, decode_passes, schedule_of


def passes(*seen: tuple[int, int, int]) -> list[Pass]:
    """Requests, tokens and cached tokens of each."""
    return [Pass(requests=requests, tokens=tokens, cached=cached) for requests, tokens, cached in seen]


def test_a_pass_into_an_empty_cache_is_a_prefill_whatever_its_width() -> None:
    class Door(torch.nn.Module):
        def forward(self, ids_BT: torch.Tensor, past_key_values: Any) -> torch.Tensor:
            return ids_BT

    door = Door()
    with Passes(door) as counted:
        for requests, tokens, cached in ((3, 7, 0), (3, 1, 7), (2, 5, 8)):
            ids_BT = torch.zeros(requests, tokens, dtype=torch.int64)
            door(ids_BT, past_key_values=SimpleNamespace(get_seq_length=lambda cached=cached: cached))
        assert counted.taken() == passes((3, 7, 0), (3, 1, 7), (2, 5, 8)) and counted.taken() == []
    assert decode_passes(passes((3, 7, 0), (2, 5, 8))) == passes((2, 5, 8))


def test_the_last_token_of_each_prompt_is_prefilled_by_the_first_step() -> None:
    plain = schedule_of(passes((2, 7, 0), (2, 1, 7), (2, 1, 8)), 2)
    assert plain == Schedule(prefilled_tokens=16, decode_steps=2, full_steps=2, preemptions=0)
    drafts = schedule_of(passes((2, 7, 0), (2, 4, 7), (1, 3, 9)), 2, due=[2, 1])
    assert drafts == Schedule(prefilled_tokens=16, decode_steps=2, full_steps=1, preemptions=0)


def test_a_request_that_is_missing_was_preempted_unless_it_had_ended() -> None:
    seen = passes((2, 7, 0), (2, 1, 7), (1, 1, 8), (2, 1, 8))
    assert schedule_of(seen, 2).preemptions == 1
    assert schedule_of(seen, 2, due=[2, 2, 2]).preemptions == 1
    assert schedule_of(seen, 2, due=[2, 1, 1]).preemptions == 0
    assert schedule_of([], 2) == Schedule(prefilled_tokens=0, decode_steps=0, full_steps=0, preemptions=0)
