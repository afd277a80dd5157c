"""The study of a composed workflow, read strictly where the workflow asks for it (`study_schema`).

Everything that is wrong and everything that is missing is told at once. While the study itself has faults, those of
stages that read it are not told: they would be the same again.
"""

from pathlib import Path
from typing import Any

import yaml

from kassay.config import groups
from kassay.config.locate import place_of
from kassay.dotted import flat
from kassay.study import SCHEMA, decode, examine, native, speculation

MISSING = "???"
NO_VALUE = "has no value"
FILL = "fill"  # the group whose files give what a study leaves open
CARRIED_OUT = {  # what their stages can do of a study
    decode.WORKFLOW: decode.faults,
    native.WORKFLOW: native.faults,
    speculation.WORKFLOW: speculation.faults,
}


def faults(
    composed: dict[str, Any], found: dict[str, str], workflow_dir: Path, choices: dict[str, str], only_study: bool
) -> tuple[dict[str, str], str | None]:
    """Key -> what is wrong with it in all, and a hint; `found` is what could not be resolved."""
    if composed["study_schema"] != SCHEMA:
        return {"study_schema": f"is `{composed['study_schema']}`, allowed is `{SCHEMA}`"}, None
    examined = examine(composed.get("study"))
    told = {f"study.{key}".rstrip("."): text for key, text in {**examined.missing, **examined.wrong}.items()}
    told |= {key: text for key, text in found.items() if key.startswith("study.") and not text.startswith(NO_VALUE)}
    told |= overruled(workflow_dir, choices)
    made = examined.study
    if made is not None and not only_study and made.carried_out_by != workflow_dir.name:
        told.setdefault("study.carried_out_by", elsewhere(made.carried_out_by, workflow_dir.name))
    if made is not None and not examined.wrong and made.carried_out_by in CARRIED_OUT and not only_study:
        told = {f"study.{key}": text for key, text in CARRIED_OUT[made.carried_out_by](made).items()} | told
    if not told:
        return {} if only_study else found, None
    rest = {key: text for key, text in found.items() if key.partition(".")[0] not in ("study", "stages")}
    return told | rest, hint(sorted(examined.missing), workflow_dir)


def elsewhere(workflow: str | None, here: str) -> str:
    """Why a study is not planned here."""
    where = f"workflow `{workflow}` is for it" if workflow else "none is, as it is kept as a record"
    return (
        f"no stage of workflow `{here}` carries this study out: {where}; make freeze-protocol freezes it all the same"
    )


def hint(missing: list[str], workflow_dir: Path) -> str | None:
    """How to give what is missing."""
    if not missing:
        return None
    return f'make SET="study.{missing[0]}=…", or FILL=<name> with workflows/{workflow_dir.name}/{FILL}/<name>.yaml'


def overruled(workflow_dir: Path, choices: dict[str, str]) -> dict[str, str]:
    """A file that fills a study gives only what is `???` there; another value is changed by SET, which is recorded."""
    if FILL not in choices or "study" not in choices:
        return {}
    of_group = groups.folders(workflow_dir)
    study, given = (raw(of_group[group] / f"{choices[group]}.yaml") for group in ("study", FILL))
    there = flat(study)
    taken = [key for key in flat(given) if key in there and there[key] != MISSING]
    return {
        f"{FILL}.{key}": f"has a value in {place_of(workflow_dir, choices, f'study.{key}')}" for key in taken if key
    }


def raw(file: Path) -> Any:
    """The content of a YAML file, nothing of it resolved."""
    return yaml.safe_load(file.read_text(encoding="utf-8")) or {}
