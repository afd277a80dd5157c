"""The section of the page on the numerical oracle: clean comparisons by recipe, injected faults by name."""

import math
from collections.abc import Iterable, Sequence

from kassay.kinds.oracle import OracleCase
from kassay.report.evidence import Report
from kassay.report.findings import oracle_counts
from kassay.report.markup import Markup, cell, numbers, section, table, tag
from kassay.report.model import NOT_RUN
from kassay.report.sections import absent, recipes_of, word
from kassay.report.words import ABSENT, fixed, title


def oracle_section(report: Report) -> Markup:
    """Worst error over tolerance per model and recipe, and what became of every injected fault."""
    cases = report.of(OracleCase)
    if not cases:
        return section("oracle", "Numerical oracle", absent(report, "oracle", "oracle"))
    within, clean, caught, injected = oracle_counts(list(cases))
    lead = (
        f"{within:,} of {clean:,} clean comparisons are within tolerance of a float64 reference on the "
        "stored operands; "
        f"{caught:,} of {injected:,} injected faults were caught."
    )
    order, models = recipes_of(report), list(report.run.models)
    keys = sorted(
        {(case.model, case.recipe) for case in cases}, key=lambda key: (rank(models, key[0]), rank(order, key[1]))
    )
    rows = [oracle_row(*key, [case for case in cases if (case.model, case.recipe) == key]) for key in keys]
    done = {model for model, _ in keys}
    rows += [not_run_row(report, model) for model in report.run.models if model not in done]
    header = [
        "model",
        "recipe",
        "comparisons",
        "worst error / tolerance",
        "differing codes, scales",
        "faults caught",
        "result",
    ]
    return section(
        "oracle",
        "Numerical oracle",
        tag("p", lead),
        table(
            "Clean comparisons by recipe: the worst of relative and peak error, each over its own tolerance.",
            header,
            rows,
            right=(2, 3, 4, 5),
        ),
        fault_table(cases),
    )


def rank(order: list[str], name: str) -> int:
    """Place of a recipe or model in the study's order; one that is not planned comes last."""
    return order.index(name) if name in order else len(order)


def not_run_row(report: Report, model: str) -> list[Markup]:
    """A model that has no oracle case."""
    why = tag("span", report.run.why_absent("oracle"), class_="sub")
    return [cell(model), cell(""), *numbers(*[ABSENT] * 4), cell([word(NOT_RUN), why])]


def oracle_row(model: str, recipe: str, cases: Sequence[OracleCase]) -> list[Markup]:
    """One model and recipe."""
    clean = [case for case in cases if case.mutation is None]
    exact = [case for case in clean if case.tolerance == 0]
    shares = [worst(case) for case in clean if case.tolerance > 0]
    faults = [case for case in cases if case.mutation is not None]
    good = all(case.within for case in clean) and all(case.caught for case in faults)
    return [
        cell(model),
        tag("th", title(recipe), scope="row"),
        *numbers(f"{len(clean):,}", fixed(max(shares), 3) if shares else ABSENT),
        *numbers(f"{sum(case.max_abs_error or 0 for case in exact):,.0f}" if exact else ABSENT),
        *numbers(f"{sum(case.caught is True for case in faults)} of {len(faults)}" if faults else ABSENT),
        cell(word("pass" if good else "fails")),
    ]


def worst(case: OracleCase) -> float:
    """The larger of relative and peak error, each over its tolerance; infinite where one was not finite."""
    found = ((case.relative_error, case.tolerance), (case.peak_error, case.peak_tolerance))
    return max(math.inf if error is None or bound is None else error / bound for error, bound in found)


def fault_table(cases: Iterable[OracleCase]) -> Markup | None:
    """Injected faults by name: how many were caught."""
    by_name: dict[str, list[OracleCase]] = {}
    for case in cases:
        if case.mutation is not None:
            by_name.setdefault(case.mutation, []).append(case)
    if not by_name:
        return None
    rows = [
        [
            tag("th", name.replace("_", " "), scope="row"),
            *numbers(f"{sum(case.caught is True for case in own)} of {len(own)}"),
            cell(", ".join(sorted({case.quantity for case in own if case.caught}))),
            cell(word("pass" if all(case.caught for case in own) else "fails")),
        ]
        for name, own in by_name.items()
    ]
    return table(
        "Injected faults: the oracle must notice every one.",
        ["fault", "caught", "noticed in", "result"],
        rows,
        right=(1,),
    )
