"""The nightly: a run in a folder of its own, audited, and judged by a baseline that was accepted with a reason.

    night.py      make nightly: clean tree, run, audit, judge, tell, keep house; its exit code
    metrics.py    what of a run is watched: words, numbers, and ratios within blocks with all their raw pairs
    rule.py       how a metric may move, and why so far: the defaults that a first acceptance writes down
    baseline.py   baselines/<profile>.json: metrics, rules, what they hold for, and every acceptance before
    judging.py    tonight beside the baseline: a word a metric
    nights.py     the folders of nights: their mark, which is the last one, and which may go
    telling.py    nightly.md and junit.xml of a night

A comparison that cannot be made is as red as a regression: nothing is green because nothing was compared.
docs/nightly.md says what a user needs of it.
"""
