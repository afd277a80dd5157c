"""The facts: figures as they are printed, read and checked whole, and each answered.

One JSONL line holds one figure (kassay.kinds.published). Inputs come in two kinds, because rounding is decided by them:
`exact` (whole numbers; fractions as text, `0.05` or `0.025/12`; words; lists of these) and `rounded` (printed decimals
as text with all their digits, or lists of these). A file with any fault is an error, told with all others of the file.
"""

from pathlib import Path
from typing import Any

from kassay.errors import RecordError
from kassay.kinds.published import FigureAnswer, PublishedFigure
from kassay.published import NOT_DERIVABLE
from kassay.published.consistency import Consistency, consistency, number, rounding_interval, shown
from kassay.published.derivations import DERIVATIONS, misfit
from kassay.record import read_kind
from kassay.stats import InvalidData


def load(path: Path) -> list[PublishedFigure]:
    """The figures of a file, in its order. Raises RecordError with every fault."""
    figures = read_kind(path, PublishedFigure)
    faults = [f"figure `{figure.figure}`: {fault}" for figure in figures for fault in faults_of(figure)]
    names = [figure.figure for figure in figures]
    faults += [f"figure `{name}` is there {names.count(name)} times" for name in set(names) if names.count(name) > 1]
    if not figures:
        faults.append("it holds no figure")
    if faults:
        raise RecordError(f"{path}: {'; '.join(sorted(faults))}")
    return figures


def faults_of(figure: PublishedFigure) -> list[str]:
    """What is wrong with a figure that is derived, in words; of one that is not, its kind says what goes together."""
    if figure.derivation is None:
        return []
    inputs = {*figure.exact, *figure.rounded}
    found = [f"`{name}` is exact and rounded" for name in figure.exact.keys() & figure.rounded.keys()]
    found += [f"`{name}` is inferred and no input" for name in set(figure.inferred) - inputs]
    found += [f"rounded input: {fault}" for fault in map(no_decimal, flat(figure.rounded)) if fault]
    found += [f"exact input `{value!r}`: write a fraction as text" for value in flat(figure.exact) if imprecise(value)]
    fault = misfit(figure.derivation, inputs)
    return [*found, fault] if fault else found


def flat(inputs: dict[str, Any]) -> list[Any]:
    """All values of inputs, those in lists included."""
    return [one for value in inputs.values() for one in (value if isinstance(value, list) else [value])]


def no_decimal(value: Any) -> str:
    """Why a value is no printed decimal; empty if it is one."""
    if not isinstance(value, str):
        return f"`{value!r}` is no text, which alone keeps its digits"
    try:
        rounding_interval(value)
    except InvalidData as error:
        return str(error)
    return ""


def imprecise(value: Any) -> bool:
    """Whether a value is of a type that exact inputs do not have."""
    return isinstance(value, float | bool | list | dict)


def exact_value(value: Any) -> Any:
    """An exact input as derivations take it: a text that is a number becomes a fraction, a list a tuple."""
    if isinstance(value, list):
        return tuple(exact_value(member) for member in value)
    if not isinstance(value, str):
        return value
    try:
        return number(value)
    except InvalidData:
        return value


def answered(figure: PublishedFigure) -> FigureAnswer:
    """One figure with its answer. Raises InvalidData, naming the figure, for inputs that allow no derivation."""
    found = derived(figure)
    told = ("", figure.remark) if found is None else (found.words, figure.remark)
    return FigureAnswer(
        figure=figure.figure,
        source=figure.source,
        line=figure.line,
        study=figure.study,
        quantity=figure.quantity,
        derivation=figure.derivation,
        inputs=figure.exact | figure.rounded,
        inferred=figure.inferred,
        printed=shown(figure.printed),
        derived=None if found is None else shown(found.derived),
        lowest=None if found is None or found.lowest is None else shown(found.lowest),
        highest=None if found is None or found.highest is None else shown(found.highest),
        answer=NOT_DERIVABLE if found is None else found.answer,
        remark="; ".join(text for text in told if text),
    )


def derived(figure: PublishedFigure) -> Consistency | None:
    """How a figure stands to its derivation; None where it is not derivable."""
    if figure.derivation is None:
        return None
    exact = {name: exact_value(value) for name, value in figure.exact.items()}
    try:
        return consistency(figure.printed, DERIVATIONS[figure.derivation], exact=exact, rounded=figure.rounded)
    except InvalidData as error:
        raise InvalidData(f"figure `{figure.figure}`: {error}") from error
