"""A released vLLM with a cache of 16-bit keys and E4M3 values, as a plug-in: no fork, no patch of its files.

    llm = LLM(model, enable_prefix_caching=False, enable_chunked_prefill=False,
              attention_config={"backend": "CUSTOM"},
              additional_config={"kassay": {"recipe": "k16v8-d"}})

vLLM calls `register` in each of its processes. It puts our attention backend into the registry's free place, and wraps
one method of vLLM, which asks an attention layer for the spec of its cache: the spec of a layer on our backend has
pages of our size, and vLLM's own allocator does the rest. Layers on other backends get what they got before.

`page` says how a page's bytes lie, `routes` which kernel reads what, `attend` does it (torch and kassay's kernels, no
vLLM); `backend` and `spec` are vLLM's side.
"""

from kassay_vllm.versions import require_tested

BACKEND = "kassay_vllm.backend.PagedBackend"


def register() -> None:
    """What vLLM calls, several times in a process. Raises KassayError for a vLLM that it was not tested with."""
    require_tested()
    from vllm.v1.attention.backends.registry import AttentionBackendEnum, register_backend

    from kassay_vllm.spec import wrap

    register_backend(AttentionBackendEnum.CUSTOM, BACKEND)
    wrap()
