"""Whatever is changed for the worse in a study is told, where it stands, and all of it at once."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from kassay.study import examine
from tests.study.test_files import NAMES, RUNNABLE, composed, content

Body = dict[str, Any]


def change(path: str, value: Any) -> Callable[[Body], None]:
    """Set a dotted key."""

    def apply(body: Body) -> None:
        *folders, last = path.split(".")
        for word in folders:
            body = body[word]
        body[last] = value

    return apply


def drop(path: str) -> Callable[[Body], None]:
    """Take a dotted key away."""

    def apply(body: Body) -> None:
        *folders, last = path.split(".")
        for word in folders:
            body = body[word]
        del body[last]

    return apply


def without_reason(body: Body) -> None:
    """Take away why a value is not there."""
    del body["unprinted"]["timing.orders"]


WRONG: list[tuple[str, Callable[[Body], None], str, str]] = [  # study, mutation, key, what is said
    ("small", drop("arms.k8v8-f"), "comparisons.k8v8-f.candidate", "`k8v8-f` is no arm, allowed are native, "),
    ("small", drop("comparisons.k8v16-d"), "certificates.comparisons[3]", "did you mean `k8v16-f`?"),
    ("small", change("comparisons.k8v8-f.control", "k8v8-f"), "comparisons.k8v8-f", "with itself"),
    ("small", change("gatez", {}), "gatez", "unknown key; did you mean `gates`?"),
    ("small", change("gates.nll.limt", 1), "gates.nll.limt", "unknown key; did you mean `limit`?"),
    ("small", drop("gates.retrieval.native_floor"), "gates.retrieval.native_floor", "is not there: Least share"),
    ("small", drop("endpoints.nll"), "gates.nll.endpoint", "`nll` is no endpoint, allowed are retrieval, arithmetic"),
    ("small", change("endpoints.retrieval.items", 0), "endpoints.retrieval.items", "is 0, allowed is at least 1"),
    ("small", change("gates.retrieval.endpoint", "nll"), "gates.retrieval.endpoint", "no data that `gross-loss`"),
    ("small", change("gates.nll.statistic", "t-test"), "gates.nll.statistic", "is `t-test`, allowed are gross-loss"),
    ("small", change("gates.nll.limit", 1.5), "gates.nll.limit", "is 1.5, allowed is above 0 and below 1"),
    ("small", change("gates.nll.limit", float("nan")), "gates.nll.limit", "is nan, allowed is a finite number"),
    ("small", change("gates.nll.draws", True), "gates.nll.draws", "allowed is a whole number"),
    ("small", change("gates.nll.draws", None), "gates.nll.draws", "is null, allowed is a whole number"),
    ("small", change("endpoints.nll.data", ""), "endpoints.nll.data", "is empty"),
    ("small", change("endpoints.retrieval.data", "file"), "endpoints.retrieval.data", "goes with gsm8k and nll, not"),
    ("small", change("endpoints.retrieval.keys", 0), "endpoints.retrieval.keys", "is 0, allowed is at least 1"),
    ("small", change("endpoints.arithmetic.keys", 2), "endpoints.arithmetic.keys", "goes with retrieval, not"),
    ("small", change("endpoints.nll.measure", "nil"), "endpoints.nll.measure", "did you mean `nll`?"),
    ("small", drop("certificates"), "certificates", "a study of kind `reference-quality` cannot do without"),
    ("small", change("certificates.objectives", {}), "certificates.objectives", "names none"),
    ("small", change("certificates.objectives.preservation", []), "certificates.objectives.preservation", "no gate"),
    ("small", change("certificates.route", "speed"), "certificates.route", "`speed` is no objective"),
    ("small", drop("alpha"), "alpha", "is not there"),
    ("small", change("alpha", 0), "alpha", "is 0, allowed is above 0 and below 1"),
    ("small", change("certificates.slots", 2), "certificates.family_alpha", "goes with more than one slot"),
    ("reference-seven-arm", change("alpha", 0.025), "certificates.family_alpha", "0.025 in 12 slots is 0.3"),
    ("reference-seven-arm", change("certificates.slots", 11), "certificates.slots", "12 certificates share the level"),
    ("reference-seven-arm", drop("models.qwen25-7b"), "certificates.slots", "is 12, and 6 certificates share"),
    ("reference-seven-arm", change("contrasts.gsm8k.family_size", 9), "contrasts.gsm8k.family_size", "and 8 comp"),
    ("reference-seven-arm", change("contrasts.gsm8k.p_formula", "k/B"), "contrasts.gsm8k.p_formula", "resampling"),
    ("reference-seven-arm", change("arm_order", ["native"]), "arm_order", "allowed is each of native, k16v8-f"),
    ("small", change("timing.family", ["k16v8-f", "k8v16-f"]), "timing.family[1]", "`k8v16-f` is no timed arm"),
    ("small", change("timing.family_size", 3), "timing.family_size", "is 3, and the family has 2 members"),
    ("small", change("timing.arms", ["native", "k16v9-f"]), "timing.arms[1]", "did you mean `k16v8-f`?"),
    ("small", change("timing.workloads", ["b32"]), "timing.workloads[0]", "`b32` is no workload"),
    ("small", change("timing.orders", "random"), "timing.orders", "allowed is `williams` or the order"),
    ("small", change("timing.orders", [["native", "k16v8-f", "k8v8-f"]]), "timing.orders", "has 1 orders for"),
    ("small", change("timing.orders", [["native", "native", "k8v8-f"]] * 6), "timing.orders[0]", "each of native"),
    ("small", change("timing.screen_ratio", None), "timing.screen_ratio", "the family is judged by it"),
    ("small", change("timing.alpha", None), "timing.alpha", "the family is judged by it"),
    ("small", change("claims_forbidden", ["faster-kernels"]), "claims_forbidden[0]", "did you mean `faster-kernel`?"),
    ("small", change("expected.robust.k16v8-f", "passes"), "expected.robust.k16v8-f", "did you mean `pass`?"),
    ("small", change("expected.robust.k16v8-x", "pass"), "expected.robust.k16v8-x", "no comparison or gate"),
    ("small", change("expected.robst", {}), "expected.robst", "did you mean `robust`?"),
    ("small", change("kind", "worker-qualty"), "kind", "did you mean `worker-quality`?"),
    ("small", change("unprinted", {"timing.order": "why"}), "unprinted", "`timing.order` is no key of this study"),
    ("small", change("arms.k16v8_x!", {}), "arms.k16v8_x!", "a name is letters"),
    ("small", change("arms", {}), "arms", "names none"),
    ("actual-worker", change("stops", [{"after": "certify"}]), "stops[0].when", "is not there"),
    ("actual-worker", drop("memory"), "memory", "a study of kind `worker-quality` cannot do without"),
    ("actual-worker", change("memory.exempt", ["numericl"]), "memory.exempt[0]", "did you mean `numerical`?"),
    ("awq-8k-b32", change("guards.batch-8.workload", "8k-b9"), "guards.batch-8.workload", "did you mean `at-8k-b8`?"),
    ("awq-8k-b32", without_reason, "timing.orders", "`unprinted` does not say why"),
    (
        "dense-http-serving",
        change("workloads.at-8k-open.load", "batch"),
        "workloads.at-8k-open.rate_per_s",
        "open loop",
    ),
    ("b32-matrix", change("gates.gsm8k.native_floor", {"phi4": 0.5}), "gates.gsm8k.native_floor[0]", "`phi-4`"),
    ("prebias-gate", change("gates.latency.at_most", None), "gates.latency", "neither `at_least` nor `at_most`"),
]


@pytest.mark.parametrize(("name", "mutate", "key", "said"), WRONG, ids=[f"{row[0]}-{row[2]}" for row in WRONG])
def test_a_mutation_is_told(name: str, mutate: Callable[[Body], None], key: str, said: str) -> None:
    body = copy.deepcopy(composed(name) if name in RUNNABLE else content(name))
    mutate(body)
    found = examine(body)
    assert key in found.wrong, found.wrong
    assert said in found.wrong[key], found.wrong[key]


def test_a_stop_rule_speaks_of_later_stages_only() -> None:
    body = content("actual-worker")
    body["stops"][0]["gates_off"] = ["quality"]
    assert examine(body).wrong == {"stops[0].gates_off": "`quality` does not come after `certify`"}


def test_everything_is_told_at_once() -> None:
    body = composed("small")
    del body["arms"]["k8v8-d"]
    body |= {"alhpa": 1, "claims_forbidden": ["speeed"], "batch": 0}
    assert {"comparisons.k8v8-d.candidate", "alhpa", "claims_forbidden[0]", "batch"} <= set(examine(body).wrong)


@pytest.mark.parametrize("body", [None, [], "small", 3, {}])
def test_what_is_no_study(body: Any) -> None:
    assert examine(body).wrong


@pytest.mark.parametrize("name", [name for name in NAMES if name not in RUNNABLE])
def test_no_section_can_be_renamed_or_emptied_unnoticed(name: str) -> None:
    """Every key of every section is known: with another letter it is an unknown key."""
    for section, value in content(name).items():
        if isinstance(value, dict) and value and section not in ("unprinted", "audits", "identities"):
            body = content(name)
            body[section + "s"] = body.pop(section)
            assert f"{section}s" in examine(body).wrong, section


STRANGE: list[Any] = ["???", None, 3, -1.5, "x", [], ["???"], [[None]], {}, {"x": "???"}, True]


@pytest.mark.parametrize("name", NAMES)
def test_a_strange_value_anywhere_is_told_and_breaks_nothing(name: str) -> None:
    whole = composed(name) if name in RUNNABLE else content(name)
    for number, place in enumerate(places(whole)):
        body = copy.deepcopy(whole)
        holder = body
        for word in place[:-1]:
            holder = holder[word]
        holder[place[-1]] = STRANGE[number % len(STRANGE)]
        examine(body)
    examine({key: "???" for key in whole})


def places(value: Any, prefix: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of every member of a nested value."""
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path for key, item in members for path in ((*prefix, key), *places(item, (*prefix, key)))]
