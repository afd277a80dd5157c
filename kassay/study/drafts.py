"""The section of a study whose arms draft: how drafts are made, which arms have them, and where acceptance is measured.

What its keys mean together, and with the stages of the workflow, is checked by kassay.study.speculation.
"""

from dataclasses import dataclass

from kassay.study.reading import said

DRAFTS = {"ngram": "what followed the last tokens where they stood before in the request's own prompt and output"}


@dataclass(frozen=True, kw_only=True)
class Roles:
    """Four arms, each acceleration alone and both together."""

    plain: str = said("Arm without either acceleration.")
    quantized: str = said("Arm with a quantized cache alone.")
    speculative: str = said("Arm with drafts alone.")
    combined: str = said("Arm with both.")


@dataclass(frozen=True, kw_only=True)
class Acceptance:
    """Where the acceptance of drafts is measured: every recipe, context, batch and draft length with each other."""

    recipes: list[str] = said("Recipes of the cache.")
    contexts_tokens: list[int] = said("Contexts (tokens).", least=16)
    batches: list[int] = said("Batches into which the requests are cut.", least=1)
    draft_tokens: list[int] = said("Draft lengths (tokens).", least=1)
    requests: int = said("Requests, the same at every batch, which divides them.", least=1)
    output_tokens: int = said("Output of each request (tokens).", least=2)
    rounding_tolerance: float = said(
        "Largest difference of a logit between a verify pass and plain decoding, over the largest logit.", least=0
    )


@dataclass(frozen=True, kw_only=True)
class Speculation:
    """Drafts, and the arms that have them."""

    drafts: str = said("What makes drafts.", among=DRAFTS)
    draft_tokens: int = said("Most tokens of a draft in a timed cell.", least=1)
    longest_ngram: int = said("Tokens of the longest n-gram that is looked up.", least=1)
    shortest_ngram: int = said("Tokens of the shortest n-gram that is looked up.", least=1)
    same_tokens: bool = said("Whether a block counts only if arms with drafts give the tokens of those without.")
    arms: dict[str, str] = said("Arm that drafts -> arm of the same cache that does not.")
    composition: Roles = said("The arms of rho.")
    acceptance: Acceptance = said("Where acceptance is measured.")
