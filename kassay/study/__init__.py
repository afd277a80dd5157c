"""Studies: what is frozen before the first result, as one strictly checked file of workflows/decode/study.

`examine` reads a composed study and tells everything that is wrong with it and every value that it still lacks, with
what the value means and why no default stands for it. The form is kassay.study.shape, what its parts mean together
kassay.study.rules, the words kassay.study.vocabulary. Whose hash a run carries is kassay.protocol.
"""

from dataclasses import dataclass
from typing import Any

from kassay.study import rules
from kassay.study.reading import OPEN, Faults, read
from kassay.study.shape import Study

SCHEMA = "kassay.study/1"  # `study_schema` of a workflow says that its studies are of this form


@dataclass(frozen=True, kw_only=True)
class Examined:
    """A study and what was found in it; keys are dotted, and start below the study."""

    study: Study | None  # None: it is no mapping
    wrong: dict[str, str]  # key -> what is wrong
    missing: dict[str, str]  # key -> what the value means, and why it has no default


def examine(body: Any) -> Examined:
    """A composed study, `???` standing for what must still be given."""
    faults = Faults()
    made = read(Study, body, "", faults)
    if made is OPEN:
        return Examined(study=None, wrong=faults.wrong or {"": "is no mapping"}, missing={})
    rules.check(made, faults)
    rules.unprinted_rules(body, faults.missing, faults)
    reasons = made.unprinted if isinstance(made.unprinted, dict) else {}
    missing = {
        key: f"has no value: {meaning} No default: {reasons[key]}"
        for key, meaning in faults.missing.items()
        if key in reasons
    }
    return Examined(study=made, wrong=faults.wrong, missing=missing)


def arms_of(study: dict[str, Any]) -> list[str]:
    """The arms of a study, in its order; none of one that has another form."""
    arms = study.get("arms", {})
    return [str(name) for name in arms] if isinstance(arms, dict) else []


def control_of(study: dict[str, Any]) -> str:
    """The one arm that all certified comparisons are made with; empty if there is none, or more than one."""
    pairs = study.get("comparisons") or {}
    planned = (study.get("certificates") or {}).get("comparisons", list(pairs))
    controls = {str(pairs[name]["control"]) for name in planned if name in pairs}
    return min(controls) if len(controls) == 1 else ""
