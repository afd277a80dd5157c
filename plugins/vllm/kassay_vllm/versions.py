"""Which vLLM this plug-in was tested with. It reaches into vLLM's insides, so another one is refused by name."""

from importlib import metadata

from kassay.errors import KassayError

TESTED = ("0.25.1",)


def installed() -> str:
    """The version of the installed vLLM, without what a build adds to it."""
    return metadata.version("vllm").partition("+")[0]


def require_tested(version: str | None = None) -> None:
    """Raise KassayError unless the version (the installed one) is among those that were tested."""
    found = version or installed()
    if found not in TESTED:
        raise KassayError(
            f"kassay_vllm was tested with vLLM {', '.join(TESTED)} and not with {found}: "
            "it wraps a method of vLLM and reads its pages, which another version may do otherwise",
            hint=f"pip install vllm=={TESTED[-1]}, or VLLM_PLUGINS='' to run without the plug-in",
        )
