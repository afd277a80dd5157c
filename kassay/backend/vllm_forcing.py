"""Teacher forcing in a vLLM engine: the tokens of a script stand in the place of sampled ones, each fed by a decode.

Why: prompt log-probabilities come from a fresh prefill, whose tokens attend to their own 16-bit keys and values. They
say nothing of a quantized cache. So what is to be predicted is not part of the prompt: it is decoded token by token,
each step reads all earlier ones from the pages, and the step's log-probability of the next token of the script is
vLLM's own (`logprobs=0`), for the token that was put there.

How: a request carries its script in `SamplingParams.extra_args`; a table on the GPU holds it by slot and position, and
the sampler's choice is replaced where the table has a token. Nothing is looked at on the host between two steps, so
scheduling and graphs are those of any request. This is how vLLM 0.25.1 samples in its model runner v2; another sampler
is refused by name.
"""

import inspect
from typing import Any

from kassay.errors import KassayError

SCRIPT = "kassay_script"  # key of extra_args: token ids that follow the prompt
FREE = -1  # of the table: the sampler's own choice stands
SAMPLES = (
    "logits", "expanded_idx_mapping", "idx_mapping_np", "pos", "input_ids", "expanded_local_pos", "return_logprobs",
)  # fmt: skip
ADDS = ("req_idx", "prompt_len", "sampling_params")


class Teacher:
    """Scripts of the requests of one engine, by slot R and position T of what a position holds."""

    def __init__(self, runner: Any) -> None:
        """Take the sampler's place. Raises KassayError for a runner whose sampler is another one."""
        sampler: Any = getattr(runner, "sampler", None)
        known = [(getattr(sampler, "sample", None), SAMPLES), (getattr(sampler, "add_request", None), ADDS)]
        if not all(callable(one) and tuple(inspect.signature(one).parameters) == wanted for one, wanted in known):
            raise KassayError(
                f"no token can be forced in `{type(runner).__module__}`, whose sampler is another than that of vLLM "
                "0.25.1's model runner v2: what a quantized cache predicts cannot be measured",
                hint="VLLM_USE_V2_MODEL_RUNNER=1, or a vLLM that has it",
            )
        import torch

        self.table_RT = torch.full(
            (runner.max_num_reqs, runner.max_model_len + 1), FREE, dtype=torch.int64, device=runner.device
        )
        self._scripted: set[int] = set()
        self._add, self._sample = sampler.add_request, sampler.sample
        sampler.add_request, sampler.sample = self.add, self.sample

    def add(self, req_idx: int, prompt_len: int, sampling_params: Any) -> None:
        """A request takes a slot: its script stands behind its prompt, and nothing of the slot's last one."""
        self._add(req_idx, prompt_len, sampling_params)
        if req_idx in self._scripted:
            self.table_RT[req_idx].fill_(FREE)
            self._scripted.discard(req_idx)
        if script := (sampling_params.extra_args or {}).get(SCRIPT):
            tokens_T = self.table_RT.new_tensor(script)
            self.table_RT[req_idx, prompt_len : prompt_len + len(script)] = tokens_T
            self._scripted.add(req_idx)

    def sample(
        self, logits: Any, expanded_idx_mapping: Any, idx_mapping_np: Any, pos: Any, input_ids: Any,
        expanded_local_pos: Any, return_logprobs: bool = False,
    ) -> tuple[Any, Any]:  # fmt: skip
        """The sampler's tokens, and the script's where there is one; `pos` is of the tokens that were just fed."""
        import torch

        sampled, processed = self._sample(
            logits, expanded_idx_mapping, idx_mapping_np, pos, input_ids, expanded_local_pos,
            return_logprobs=return_logprobs,
        )  # fmt: skip
        if not self._scripted:
            return sampled, processed
        scripted = self.table_RT[expanded_idx_mapping.long(), pos.long() + 1]
        return torch.where(scripted != FREE, scripted.to(sampled.dtype), sampled), processed
