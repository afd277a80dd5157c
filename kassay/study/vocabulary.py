"""The words that study files may use, each with its meaning: kinds, verdicts, measures, statistics, forbidden claims.

Verdicts are those of the field and of kassay.stats; they are not synonyms, and none stands for another.
"""

# kind -> what decides, and the sections that a study of that kind cannot do without
KINDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "reference-quality": (
        "certificates from a reference execution, which says nothing of speed",
        ("models", "comparisons", "alpha", "seed", "split", "gates", "certificates"),
    ),
    "worker-quality": (
        "certificates from the serving worker itself",
        ("models", "comparisons", "alpha", "gates", "certificates", "engine", "memory"),
    ),
    "throughput": (
        "ratios within blocks of fresh processes, after the quality gates",
        ("models", "comparisons", "workloads", "timing"),
    ),
    "http": ("requests over HTTP: concurrency, not batch", ("models", "comparisons", "workloads", "gates")),
    "gate": ("go or no go on fixed limits, without a family", ("models", "gates")),
    "check": ("a predeclared check of one build; no benchmark, qualifies nothing", ("gates",)),
    "screen": ("a heuristic, descriptive", ()),
    "illustration": ("arithmetic or measurements without a decision, descriptive", ()),
}

VERDICTS = {
    "pass": "every gate of the unit holds and its evidence is complete",
    "fails": "the violation of a gate is established: a bound, a point or a case lies beyond its limit",
    "unestablished": "the limit lies between the bounds: no proof of harm, and no pass",
    "ineligible": "the control is below its floor, or the geometry is out of scope",
    "gain confirmed": "all gates, the adjusted sign test and the screen hold",
    "no confirmed gain": "it was timed and qualified, and the sign test or the screen does not hold",
    "not run": "an earlier gate stopped it; its place in the family stays, with p = 1",
    "gated off": "a predeclared stop rule kept a later stage from running",
    "descriptive": "no family and no decision",
    "invalidated": "an audit of inputs or protocol voided it; it stays in the record",
    "scoped pass": "the strict reader fails, a disclosed one supports a narrower claim",
    "diagnostic failure": "a diagnostic outside the gate failed; it is recorded and decides nothing",
}

# measures of endpoints, by the form of their data
LOSSES = {
    "nll": "prediction loss of scored targets, in nats",
    "perplexity": "exp of the mean loss over a corpus",
    "in-sample-loss": "loss on the very data that something was trained on: no quality claim",
}
ANSWERS = {
    "retrieval": "needles at seeded depths, exact match",
    "arithmetic": "generated problems, last labelled answer",
    "gsm8k": "GSM8K test items, last labelled numeric answer",
    "questions": "another set of questions with one right answer each",
}
CHECKS = {
    "production": "predeclared checks of what the worker stores and computes",
    "numerical": "outputs against an independent oracle",
    "mutation-suite": "clean cases that must pass and planted faults that must be caught",
    "integrity": "rows of records recomputed from raw values",
    "request-match": "prompts whose served output equals the serial in-process output",
}
MEASURED = {
    "output-rate": "output tokens per second of complete requests",
    "request-rate": "completed requests per second",
    "latency": "time of a complete request",
    "ttft": "time to the first token",
    "tpot": "time per further output token",
    "failures": "requests that failed",
    "error": "largest absolute difference from the oracle",
    "slots": "tokens that a pool holds",
    "bytes": "bytes of a state or a cache, scales counted once",
    "bandwidth": "transferred bytes over time, decimal",
    "acceptance": "share of drafted tokens that are accepted",
    "speedup": "rate over the rate without the intervention",
    "logit-error-ratio": "mean logit error of one key format over that of another",
    "correlation": "rank correlation of a predictor with what it predicts",
    "accuracy": "share answered, where only the total is known and no item",
}
MEASURES = LOSSES | ANSWERS | CHECKS | MEASURED

STATISTICS = {
    "gross-loss": "exact one-sided upper bound of right under the control and wrong under the candidate",
    "net-change": "Tango's one-sided lower bound of (gains - losses) / n",
    "relative-nll": "bootstrap one-sided upper bound of mean(candidate) / mean(control) - 1 over documents",
    "nll-difference": "bootstrap one-sided upper bound of mean(candidate) - mean(control) over documents, in nats",
    "ratio": "candidate over control, a point",
    "value": "a point against fixed limits",
    "all-pass": "every case passes",
}

TESTS = {
    "mcnemar-exact": "exact test of discordant pairs",
    "centered-bootstrap": "resampled paired differences about their mean",
}

CLAIMS = {
    "absence-is-equivalence": "a difference that is not significant shows that there is none",
    "aggregate-degradation": "a missed bound shows harm",
    "capacity-times-throughput": "a ratio of capacities may be multiplied by a ratio of rates",
    "certified-numerics": "a smoke test or an install check qualifies a recipe",
    "continuous-peak": "the largest of samples is the largest of all time",
    "across-campaigns": "percentages of different campaigns may be added or compared",
    "concurrency-is-batch": "requests in flight are the batch of the GPU",
    "expert-calibration-fails": "one rejected calibration rejects all others",
    "faster-kernel": "a gain of complete requests is a gain of the decode kernel",
    "independent-samples": "cartridges trained apart, or repetitions, are a sample of patients or prompts",
    "key-precision-alone": "recipes that differ in more than their key format isolate it",
    "other-models": "a result holds for a model, length or batch that was not measured",
    "plateau": "a fitted ceiling that the data do not approach is one",
    "provenance": "the commits that a historical table ran on are known",
    "serving-gain": "a gain in process, or at one length, is a gain of serving",
    "speed": "a reference execution or a failed qualification says anything of speed",
    "total-hbm-saving": "bytes of a cache are bytes of the device",
    "unseen-benchmark": "an exposed benchmark is unseen data",
}

OF_MODEL = "compute"  # an arm that stores what the model computes in: FP16 or BF16, as its model says
FORMATS = ("fp32", "fp16", "bf16", "e4m3fn", "e5m2", "int8", "int6", "int4", "int4-g32", "int4-awq")
SCALES = {
    "none": "16-bit keys and values",
    "fixed": "one per layer and component, from calibration",
    "dynamic": "one per token and head",
    "tensor": "one per tensor, static, of a calibration tool",
    "group": "one per group of channels",
    "unit": "1 everywhere, uncalibrated",
    "prebias": "keys are stored without their bias",
}
LOADS = {
    "batch": "requests handed over together, in process",
    "closed-loop": "that many requests in flight over HTTP",
    "open-loop": "requests at an offered rate, whatever is in flight",
}
