"""Requests of any lengths on the fused backend: admitted in cohorts as rows become free, decoded in mixed batches.

A cohort is the oldest waiting request and those behind it with as many prompt tokens, as far as rows are free. A step
decodes all rows together, whatever their ages. Output lengths are forced, so the host knows without asking the device
when a row ends: between two changes of the batch it decodes as many steps as the row that ends first still has.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from kassay.backend.fused import Decoder


@dataclass(frozen=True, kw_only=True)
class Request:
    """One prompt and the length of its output, which is forced."""

    prompt: tuple[int, ...]
    output_tokens: int


def serve(decoder: Decoder, requests: Sequence[Request]) -> list[list[int]]:
    """All outputs, by request. A cohort is the oldest waiting request and those behind it of its length, as rows allow.

    Between two changes of the batch the device decodes as many steps as the row that ends first still has.
    """
    waiting, rows, left = list(range(len(requests))), list[int](), list[int]()
    outputs: list[list[int]] = [[] for _ in requests]
    while waiting or rows:
        free, tokens = decoder.plan.batch - len(rows), len(requests[waiting[0]].prompt) if waiting else 0
        cohort = [one for one in waiting if len(requests[one].prompt) == tokens][:free]
        by_output: dict[int, list[int]] = {}
        for one in cohort:
            by_output.setdefault(requests[one].output_tokens, []).append(one)
        for output_tokens, alike in by_output.items():
            decoder.admit(torch.tensor([requests[one].prompt for one in alike]), output_tokens)
            rows += alike
            left += [output_tokens] * len(alike)
        waiting = [one for one in waiting if one not in rows]
        steps = min(left)
        decoder.run(steps)
        for one, column in zip(rows, decoder.collect().T.tolist(), strict=True):
            outputs[one] += column
        kept = [row for row, more in enumerate(left) if more > steps]
        decoder.keep(kept)
        rows, left = [rows[row] for row in kept], [left[row] - steps for row in kept]
    return outputs
