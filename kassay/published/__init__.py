"""Do printed figures follow from what their own documents print?

    facts (JSONL of kassay.kinds.published) ─► inputs ─► derivation by name ─► one of four answers

`figures.py` reads and checks the facts, `consistency.py` defines the four answers, and one module a subject holds
the derivations: `arithmetic.py` (counts, shares, ranges), `verdicts.py` (bounds, tests, gates of kassay.stats),
`serving.py` (bytes and admissions), `curves.py` (saturation, rounding, ranks). `derivations.py` names them all.

A derivation is a pure function of its inputs; it never sees the printed figure. Only where a count is not printed
and its bound is, the bound is an input and the counts that give it are searched. Nothing here reads a run.
"""

EQUAL = "equal"
CONSISTENT = "consistent within input rounding"
CONTRADICTED = "contradicted"
NOT_DERIVABLE = "not derivable"
ANSWERS = (EQUAL, CONSISTENT, CONTRADICTED, NOT_DERIVABLE)
