"""How fast a link must be that cached bytes cross, and what share of a decode step's traffic the cache is.

    GB/s = requests * fraction * bytes / deadline          decimal: 1 GB = 10^9 bytes
    f_KV = B * T * b_KV / (W + B * T * b_KV + O)

`bytes` is the payload of one request, `fraction` the share of it that crosses the link (1 - the resident one),
`deadline` the time until it must be there: a decode step for streaming, the resume time for a reload, the handoff
for disaggregation; each has its own. B sequences of T cached tokens of b_KV bytes, W bytes of weights and O other
bytes read per step (a mixture of experts reads the active ones only). Source: the reference, "Offloading and
disaggregation" and "Traffic regime" (studies.md 16). A byte model: no protocol overhead, no overlap, no profile.
Everything is exact (Fraction); only printing rounds.
"""

from fractions import Fraction

from kassay.errors import KassayError

GB = 10**9


def link_gb_per_s(payload_bytes: int, *, deadline_s: Fraction, fraction: Fraction, requests: int) -> Fraction:
    """Decimal GB/s that `requests` transfers at once need; raises KassayError outside the ranges of each."""
    if deadline_s <= 0:
        raise KassayError(f"the deadline is {float(deadline_s):g} s, allowed is more than 0")
    if not 0 <= fraction <= 1:
        raise KassayError(f"the fraction is {float(fraction):g}, allowed is 0 to 1")
    if payload_bytes < 0 or requests < 0:
        raise KassayError(f"{requests} requests of {payload_bytes} bytes: allowed is 0 or more of each")
    return requests * fraction * payload_bytes / deadline_s / GB


def traffic_fraction(cache_bytes: int, *, weight_bytes: int, other_bytes: int) -> Fraction:
    """f_KV of a step that reads so many bytes of cache, weights and anything else; raises KassayError for none."""
    if min(cache_bytes, weight_bytes, other_bytes) < 0 or cache_bytes + weight_bytes + other_bytes == 0:
        got = f"{cache_bytes} + {weight_bytes} + {other_bytes}"
        raise KassayError(f"a step reads {got} bytes: allowed is 0 or more of each, and not all 0")
    return Fraction(cache_bytes, cache_bytes + weight_bytes + other_bytes)
