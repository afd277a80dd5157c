"""baselines/<profile>.json: what the nights of a profile are held to, and every acceptance of it with its reason.

    schema    kassay.baseline/1
    alpha     level of all paired metrics together: how often a night may turn red by chance
    subject   of which plan, pins, data and host it holds (kassay.compare.subject)
    rules     name -> by, better, tolerance, why (kassay.nightly.rule); yours to edit and to add to, with a reason
    metrics   name -> value, the name of its rule, and the raw pairs where it has some
    history   acceptances, newest last: when, which run and commit of kassay, why, and what changed

It is kept with the project's files, so that whoever accepts it does so in a commit. Accepting a run keeps the rules
that the file has and writes the usual one for a metric that is new. A run is accepted only if it is whole, if its audit
finds nothing, and if every value is finite: what could not be compared tonight could not be compared tomorrow either.
"""

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kassay import digest, paths
from kassay.compare.subject import Subject, subject_of
from kassay.entry import Stage
from kassay.errors import ConfigError, RunError
from kassay.nightly import rule
from kassay.nightly.judging import shown
from kassay.nightly.rule import Rule, Value
from kassay.nightly.watched import Metric, settled, watched
from kassay.stage import utc_now

FOLDER = "baselines"
SCHEMA = "kassay.baseline/1"
ALPHA = 0.01  # one night in a hundred turns red by chance
KEYS = ("schema", "alpha", "subject", "rules", "metrics", "history")


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """The content of a baseline's file."""

    alpha: float
    subject: Subject
    metrics: dict[str, Metric]
    history: list[dict[str, Any]]

    @property
    def words(self) -> str:
        """What it is, for people."""
        last = self.history[-1]
        return f"{self.subject.run}, accepted {last['at'][:10]}: {last['reason']}"


def place(profile: str, given: str | None) -> Path:
    """The file of a profile's baseline; `given` names another."""
    return paths.ROOT / (given or f"{FOLDER}/{profile}.json")


def load(path: Path) -> Baseline | None:
    """The baseline in a file; None if there is no such file. Raises ConfigError with everything that is wrong in it."""
    try:
        body = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{paths.shown(path)}: not a baseline that can be read: {error}") from None
    if errors := faults(body):
        raise ConfigError(*(f"{paths.shown(path)}: {error}" for error in errors))
    return Baseline(
        alpha=body["alpha"],
        subject=Subject(**body["subject"]),
        metrics={name: metric_of(one, body["rules"]) for name, one in body["metrics"].items()},
        history=body["history"],
    )


def faults(body: Any) -> list[str]:
    """Everything that is wrong with a baseline."""
    if not isinstance(body, dict) or body.get("schema") != SCHEMA:
        return [f"schema `{body.get('schema') if isinstance(body, dict) else body}`, this kassay reads `{SCHEMA}`"]
    found = [f"it lacks `{key}`" for key in KEYS if key not in body]
    found += [f"unknown key `{key}`" for key in body if key not in KEYS]
    if found:
        return found
    if not rule.is_number(body["alpha"]) or not 0 < body["alpha"] < 1:
        found.append(f"`alpha` is `{body['alpha']}`, allowed is a number strictly between 0 and 1")
    if not isinstance(subject := body["subject"], dict) or set(subject) != set(Subject.__dataclass_fields__):
        found.append("`subject` has other fields than this kassay writes; accept a run again")
    if not isinstance(history := body["history"], list) or not history or not all(map(whole_entry, history)):
        found.append("`history` has no acceptance with `at`, `run` and `reason`")
    if not isinstance(metrics := body["metrics"], dict) or not metrics:
        return [*found, "`metrics` is empty: nothing would be compared"]
    if not isinstance(rules := body["rules"], dict):
        return [*found, "`rules` is no mapping"]
    found += [fault for name, one in rules.items() for fault in rule.faults(name, one)]
    return found + [fault for name, one in metrics.items() for fault in faults_of_metric(name, one, rules)]


def whole_entry(entry: Any) -> bool:
    """Whether an acceptance says when, what and why."""
    return isinstance(entry, dict) and all(isinstance(entry.get(key), str) for key in ("at", "run", "reason"))


def faults_of_metric(name: str, one: Any, rules: dict[str, Any]) -> list[str]:
    """What is wrong with one metric of a baseline."""
    if not isinstance(one, dict) or not {"value", "rule"} <= set(one) <= {"value", "rule", "pairs"}:
        return [f"metric `{name}`: allowed are `value`, `rule` and `pairs`"]
    found = []
    if one["rule"] not in rules:
        found.append(f"metric `{name}`: there is no rule `{one['rule']}`, the file has {', '.join(sorted(rules))}")
    if not isinstance(one["value"], str | bool | int | float) or not finite(one["value"]):
        found.append(f"metric `{name}`: `value` is `{one['value']}`, allowed is a word or a finite number")
    pairs = one.get("pairs")
    if pairs is not None and not usable(pairs):
        found.append(f"metric `{name}`: `pairs` is no mapping of blocks to numbers above 0")
    elif pairs is None and isinstance(asked := rules.get(one["rule"]), dict) and asked.get("by") == "pairs":
        found.append(f"metric `{name}`: it is judged by pairs and has none")
    return found


def finite(value: Value) -> bool:
    """Whether a value is no number that is not finite."""
    return isinstance(value, str) or math.isfinite(value)


def usable(pairs: Any) -> bool:
    """Whether pairs are blocks with ratios above 0."""
    if not isinstance(pairs, dict) or not pairs or not all(block.isdecimal() for block in pairs):
        return False
    return all(rule.is_number(ratio) and 0 < ratio < math.inf for ratio in pairs.values())


def metric_of(one: dict[str, Any], rules: dict[str, Any]) -> Metric:
    """A metric of a sound baseline."""
    pairs = one.get("pairs")
    asked = Rule(name=one["rule"], **rules[one["rule"]])
    blocks = None if pairs is None else {int(block): ratio for block, ratio in pairs.items()}
    return Metric(value=one["value"], pairs=blocks, rule=asked)


def accept(run_dir: Path, given: str | None, reason: str, commit: str | None) -> list[str]:
    """Write a run into a baseline's file; what a user should know. Raises RunError if it may not be one."""
    subject, found = subject_of(run_dir), watched(run_dir)
    path = place(subject.profile, given)
    before = load(path)
    if wrong := unacceptable(run_dir, subject, found):
        raise RunError(*(f"`{subject.run}` is no baseline: {one}" for one in wrong), hint="make nightly makes a run")
    made = settled(found, ALPHA if before is None else before.alpha)
    known = {} if before is None else before.metrics
    rules = {one.rule.name: one.rule for one in known.values()}
    made = {
        name: Metric(value=one.value, pairs=one.pairs, rule=kept(one, known.get(name), rules))
        for name, one in made.items()
    }
    changed = {} if before is None else changes(known, made)
    entry = {
        "at": utc_now(),
        "run": subject.run,
        "commit": commit or subject.own_commit,
        "plan_hash": subject.plan_hash,
        "reason": reason,
        "changed": changed,
    }
    body = {
        "schema": SCHEMA,
        "alpha": ALPHA if before is None else before.alpha,
        "subject": asdict(subject),
        "rules": rules_of(before, made),
        "metrics": {name: body_of(one) for name, one in made.items()},
        "history": [*([] if before is None else before.history), entry],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    digest.write_bytes(path, text_of(body).encode())
    told = [f"{paths.shown(path)}: {subject.run}, {len(made)} metrics, {len(changed)} changed"]
    return told + [f"  {name}: {text}" for name, text in changed.items()]


def kept(fresh: Metric, known: Metric | None, rules: dict[str, Rule]) -> Rule:
    """The metric's rule in the file, where it can still be asked; else the usual one, as the file has it."""
    usual = rules.get(fresh.rule.name, fresh.rule)
    return usual if known is None or (known.rule.by == "pairs") != (fresh.rule.by == "pairs") else known.rule


def body_of(one: Metric) -> dict[str, Any]:
    """A metric as the file has it."""
    pairs = {} if one.pairs is None else {"pairs": {str(block): ratio for block, ratio in one.pairs.items()}}
    return {"value": one.value, "rule": one.rule.name, **pairs}


def rules_of(before: Baseline | None, made: dict[str, Metric]) -> dict[str, Any]:
    """The rules that metrics use, and those that the file has though no metric uses them now."""
    used = {one.rule.name: one.rule for one in made.values()}
    spare = {} if before is None else {one.rule.name: one.rule for one in before.metrics.values()}
    return {name: {key: vars(one)[key] for key in rule.KEYS} for name, one in sorted({**spare, **used}.items())}


def text_of(body: dict[str, Any]) -> str:
    """A baseline's file: a line for each rule and metric, so that a change of one is a line of a diff."""
    lines = []
    for key, value in body.items():
        if key in ("rules", "metrics"):
            rows = ",\n".join(f"  {dumped(name)}: {dumped(one)}" for name, one in value.items())
            lines.append(f" {dumped(key)}: {{\n{rows}\n }}")
        else:
            lines.append(f" {dumped(key)}: {dumped(value, indent=1)}".replace("\n", "\n "))
    return "{\n" + ",\n".join(lines) + "\n}\n"


def dumped(value: Any, indent: int | None = None) -> str:
    """A value as JSON."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent)


def changes(before: dict[str, Metric], now: dict[str, Metric]) -> dict[str, str]:
    """Metric -> `was -> is`, of all that differ."""
    told = {}
    for name in {**before, **now}:
        old, new = before.get(name), now.get(name)
        if old is None or new is None or old.value != new.value:
            said = [shown(one.value) if one else "absent" for one in (old, new)]
            told[name] = f"{said[0]} -> {said[1]}"
    return told


def unacceptable(run_dir: Path, subject: Subject, found: dict[str, Metric]) -> list[str]:
    """Why a run may not be a baseline: it is not whole, its audit differs, or nothing of it could be compared."""
    from kassay.audit import audit

    if subject.exit_code is None:
        return ["it has not ended: it goes on, was cancelled, or its driver died"]
    wrong = [f"stage `{name}` was {word}" for name, word in unmeasured(run_dir, subject).items()]
    wrong += [f"`{name}` is not finite" for name, one in found.items() if one.value is None]
    if not [name for name in found if not name.endswith(": outcome")]:
        wrong.append("it has no metric beside its outcomes: nothing would be compared")
    if not wrong:
        wrong += [f"its audit differs: {one.line()}" for one in audit(run_dir).differences]
    return wrong


def unmeasured(run_dir: Path, subject: Subject) -> dict[str, str]:
    """Stage -> word of all that left no result, but for those that the plan itself gates off."""
    stages = [Stage(**body) for body in json.loads((run_dir / paths.PLAN).read_bytes())["stages"]]
    words = {stage.name: subject.words.get(stage.name) or "not run" for stage in stages}
    return {
        stage.name: words[stage.name]
        for stage in stages
        if words[stage.name] not in ("passed", "rejected") and not (words[stage.name] == "blocked" and stage.stop)
    }
