"""A complete run follows from its records; whatever is changed in it is found, also with digests made to fit."""

import copy
import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kassay import audit, digest, paths
from kassay.audit import Difference, files, recount, rederive
from kassay.plan import Plan
from tests.audit.fabricated import STUDY, reseal, rewrite

Bodies = list[dict[str, Any]]
QUALITY = "quality.robust"


def records(run_dir: Path, stage: str) -> Path:
    """The records of a stage."""
    return run_dir / "stages" / stage / paths.RECORDS


def derived(run_dir: Path, stage: str = "certify") -> list[Difference]:
    """What a stage derived again and the recount say."""
    run = files.load(run_dir)
    return [*rederive.stage(run, run.plan.stage(stage))[1], *recount.run(run)[1]]


def own(bodies: Bodies, recipe: str) -> Bodies:
    """The records of one recipe."""
    return [body for body in bodies if body["recipe"] == recipe]


# --- the clean run


def test_a_complete_run_follows_from_its_records(clean_run: Path) -> None:
    found = audit.audit(clean_run)
    assert found.differences == () and found.open == () and found.exit_code == 0, found.lines()
    told = {(one.stage, one.how): one for one in found.audited}
    for stage in ("certify", "direct", "contrast", "saturation"):
        assert told[stage, "rederived"].values > 10 and told[stage, "rederived"].loose == 0
        assert told[stage, "rederived"].note == ""
    assert told["certify", "recounted"].values > 100 and told[QUALITY, "recounted"].values > 500
    made = [json.loads(line) for line in records(clean_run, "certify").read_text().splitlines()]
    verdicts = {(b["model"], b["candidate"], b["objective"]): b["verdict"] for b in made if "failed_gates" in b}
    assert len(verdicts) == 8 and list(verdicts.values()).count("pass") == 6
    assert {key for key, verdict in verdicts.items() if verdict == "fails"} == {
        ("fragile", "k8v8-f", "preservation"),
        ("fragile", "k8v8-f", "aggregate-math"),
    }


def test_the_verb_ends_with_3_and_names_record_field_and_both_values(run_dir: Path, tmp_path: Path) -> None:
    def raised(bodies: Bodies) -> Bodies:
        return [b | {"verdict": "pass"} if b.get("candidate") == "k8v8-f" and "slots" in b else b for b in bodies]

    rewrite(records(run_dir, "certify"), raised)
    program = (
        "import sys; from pathlib import Path; from kassay import audit, cli, watch\n"
        "audit.JUDGES = ('certify',)\n"
        f"watch.asked_run = lambda arguments: Path({str(run_dir)!r})\n"
        "sys.argv = ['kassay', 'audit']; raise SystemExit(cli.main())"
    )
    environment = {**os.environ, "PYTHONPATH": str(paths.ROOT)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 3, done.stderr
    told = [
        line for line in done.stdout.splitlines() if "certificate/2 (model fragile" in line and ": verdict:" in line
    ]
    line = told[0]
    assert "recorded pass, derived fails" in line
    assert "difference: certify: records.jsonl: sha256: recorded " in done.stdout


def test_what_did_not_run_is_told_and_is_no_pass(run_dir: Path) -> None:
    shutil.rmtree(run_dir / "stages" / "contrast")
    run = files.load(run_dir)
    assert run.open(run.plan.stage("contrast")) == "it has not ended"
    assert audit.Audit(audited=(), differences=(), open=("x",)).exit_code == 4
    assert audit.Audit(audited=(), differences=(), open=()).exit_code == 4
    torn = run_dir / "stages" / "direct" / paths.OUTCOME
    torn.write_bytes(torn.read_bytes()[:40])
    unmet = run_dir / "stages" / "saturation" / paths.OUTCOME
    digest.write_json(unmet, json.loads(unmet.read_bytes()) | {"word": "unmet", "reason": "no GPU"})
    run = files.load(run_dir)
    assert run.open(run.plan.stage("saturation")) == "it was unmet (no GPU)"
    assert run.open(run.plan.stage("direct")) == "its outcome cannot be read"
    assert [d.stage for d in files.differences(run) if d.record == paths.OUTCOME] == ["direct"]


# --- raw records: as they lie, and with digests made to fit


def without_arm(bodies: Bodies) -> Bodies:
    return [body for body in bodies if body["recipe"] != "k16v8-f"]


def swapped_arms(bodies: Bodies) -> Bodies:
    names = {"native": "k8v8-f", "k8v8-f": "native"}
    return [body | {"recipe": names.get(body["recipe"], body["recipe"])} for body in bodies]


def document_twice(bodies: Bodies) -> Bodies:
    return [*bodies, bodies[-1]]


def document_in_place_of_another(bodies: Bodies) -> Bodies:
    same = {"document-001": "document-000"}
    return [body | {"item_id": same.get(body["item_id"], body["item_id"])} for body in bodies]


def shuffled_pairs(bodies: Bodies) -> Bodies:
    """What K16/V8 did on one item stands under another."""
    rng = random.Random(3)
    found = []
    for kind in ("answer", "document_loss"):
        mine = [body for body in own(bodies, "k16v8-f") if f".{kind}/" in body["schema"]]
        places = [(body["item_id"], body["item_digest"]) for body in mine]
        for task in {body.get("task") for body in mine}:
            group = [index for index, body in enumerate(mine) if body.get("task") == task]
            moved = rng.sample(group, len(group))
            found += [
                mine[here] | {"item_id": places[there][0], "item_digest": places[there][1]}
                for here, there in zip(group, moved, strict=True)
            ]
    return [body for body in bodies if body["recipe"] != "k16v8-f"] + found


def with_nan(bodies: Bodies) -> Bodies:
    return [
        *bodies[:-1],
        bodies[-1] | {"loss_nats": [None, *bodies[-1]["loss_nats"][1:]], "nonfinite": ["loss_nats[0]"]},
    ]


def cut_short(bodies: Bodies) -> Bodies:
    return bodies[:-1]


def other_items(bodies: Bodies) -> Bodies:
    """What another seed would have drawn under the same names, for one arm."""
    return [b | {"item_digest": f"seed-8-{b['item_id']}"} if b["recipe"] == "k8v8-f" else b for b in bodies]


def lost_answers(bodies: Bodies) -> Bodies:
    """K16/V8 loses twelve sums."""
    lost = {f"arithmetic-{index:03d}" for index in range(1, 60, 5)}
    return [
        b | {"outcome": "wrong", "parsed": "8", "text": "3+4=8 #8"}
        if b["recipe"] == "k16v8-f" and b["item_id"] in lost
        else b
        for b in bodies
    ]


MUTATIONS: list[tuple[Callable[[Bodies], Bodies], str]] = [
    (without_arm, "arm `k16v8-f` is missing"),
    (swapped_arms, "estimate"),
    (document_twice, "more than once"),
    (document_in_place_of_another, "more than once"),
    (shuffled_pairs, "losses"),
    (with_nan, "loss_nats[0]"),
    (cut_short, "lacks `document-015`"),
    (other_items, "different content"),
    (lost_answers, "losses"),
]


@pytest.mark.parametrize(("mutate", "said"), MUTATIONS, ids=[row[0].__name__ for row in MUTATIONS])
def test_changed_raw_records_are_found_and_pass_no_gate(
    run_dir: Path, mutate: Callable[[Bodies], Bodies], said: str
) -> None:
    rewrite(records(run_dir, QUALITY), mutate)
    found = files.differences(files.load(run_dir))
    (one,) = [d for d in found if d.stage == QUALITY]
    assert one.record == paths.RECORDS and one.field == "sha256" and one.recorded != one.derived
    assert {d.record for d in found if d.stage in ("certify", "direct")} == {paths.REQUEST}, "they read other bytes now"
    reseal(run_dir)
    assert not [d for d in files.differences(files.load(run_dir)) if d.stage == QUALITY], "the forger made it fit"
    forged = derived(run_dir)
    assert forged and any(said in d.line() for d in forged), [d.line() for d in forged][:5]
    passing = [d for d in forged if d.derived == "pass" and d.recorded != "pass"]
    assert not passing, "no verdict becomes a pass"


def test_a_torn_line_is_found(run_dir: Path) -> None:
    path = records(run_dir, QUALITY)
    path.write_bytes(path.read_bytes()[:-20])
    reseal(run_dir)
    (found,) = [d for d in files.differences(files.load(run_dir)) if d.stage == QUALITY]
    assert found.field == "line" and "the last line is torn" in found.recorded
    assert any("crashed" in d.derived and "torn" in d.derived for d in derived(run_dir))


def test_a_file_cut_in_its_middle_a_lost_file_and_added_ones_are_found(run_dir: Path) -> None:
    path = records(run_dir, "timing")
    path.write_bytes(path.read_bytes().replace(b'"pid"', b'"pi', 1))
    records(run_dir, "sweep").unlink()
    shutil.copytree(run_dir / "stages" / "direct", run_dir / "stages" / "direct-again")
    outcome = run_dir / "stages" / "direct" / paths.OUTCOME
    body = json.loads(outcome.read_bytes())
    del body["artifacts"]["records"]
    digest.write_json(outcome, body)
    told = [d.line() for d in files.differences(files.load(run_dir))]
    assert any(line.startswith("timing: records.jsonl: line: ") and "not a JSON object" in line for line in told)
    assert "sweep: records.jsonl: presence: recorded stated, derived no such file" in told
    assert "direct-again: directory: presence: recorded there, derived not planned" in told
    assert "direct: records.jsonl: presence: recorded there, derived not stated in the outcome" in told


# --- what was asked: seeds, limits, plans


def test_another_seed_in_a_request_is_found(run_dir: Path) -> None:
    request = run_dir / "stages" / QUALITY / paths.REQUEST
    body = json.loads(request.read_bytes())
    body["params"]["seed"] = 8
    digest.write_json(request, body)
    (found,) = files.differences(files.load(run_dir))
    assert found.line() == f"{QUALITY}: request.json: params.seed: recorded 8, derived 7"


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [(("seed",), 8, "seed"), (("gates", "loss", "limit"), 0.5, "margin"), (("alpha",), 0.05, "alpha")],
)
def test_a_study_that_was_edited_after_its_results_is_found(
    run_dir: Path, key: tuple[str, ...], value: Any, said: str
) -> None:
    study = copy.deepcopy(STUDY)
    holder = study
    for word in key[:-1]:
        holder = holder[word]
    holder[key[-1]] = value
    if key == ("alpha",):
        study["certificates"]["family_alpha"] = 0.2
    place = run_dir / paths.PLAN
    text = place.read_text(encoding="utf-8").replace(json.dumps(STUDY), json.dumps(study))
    before = json.loads(place.read_bytes())
    body = {**before, "config": {"study": study}}
    body["stages"] = [
        {**one, "params": {**one["params"], **({"study": study} if "study" in one["params"] else {})}}
        for one in before["stages"]
    ]
    assert text != "" and body != before
    digest.write_json(place, body)
    told = {(d.record, d.field) for d in files.differences(files.load(run_dir))}
    assert {(paths.PLAN, "hash"), (paths.PLAN, "protocol"), (paths.MANIFEST, "plan_hash")} <= told
    assert (paths.REQUEST, f"params.study.{'.'.join(key)}") in told
    plan = Plan.from_json(body)  # the forger makes plan and requests fit as well
    digest.write_json(place, plan.to_json())
    digest.write_json(run_dir / paths.MANIFEST, {"schema": "kassay.manifest/1", "plan_hash": plan.hash()})
    for stage in plan.stages:
        request = run_dir / "stages" / stage.name / paths.REQUEST
        digest.write_json(request, json.loads(request.read_bytes()) | {"params": stage.params})
    assert files.differences(files.load(run_dir)) == []
    assert {d.field for d in derived(run_dir)} >= {said}, "what was recorded is not what this study gives"


# --- what was concluded


def test_an_edited_bound_a_lost_and_an_added_verdict_are_found(run_dir: Path) -> None:
    def edited(bodies: Bodies) -> Bodies:
        first = bodies[0] | {"upper": bodies[0]["upper"] * (1 + 1e-8)}
        return [first, *bodies[1:-1], bodies[1] | {"gate": "invented"}]

    rewrite(records(run_dir, "certify"), edited)
    reseal(run_dir)
    told = [d.line() for d in derived(run_dir)]
    assert any("(model robust, candidate k16v8-f, control native, gate keys" in t and ": upper: " in t for t in told)
    assert any("kassay.qualification/1" in t and "recorded no such record, derived there" in t for t in told)
    assert any("gate invented" in t and "recorded there, derived no such record" in t for t in told)


def test_a_rejection_turned_into_a_pass_is_found(run_dir: Path) -> None:
    certificates = run_dir / "stages" / "certify" / "certificates.json"
    made = json.loads(certificates.read_bytes())
    digest.write_json(certificates, [one | {"verdict": "pass"} for one in made])
    outcome = run_dir / "stages" / "certify" / paths.OUTCOME
    digest.write_json(outcome, json.loads(outcome.read_bytes()) | {"metrics": {"certificates": 8, "as expected": 7}})
    reseal(run_dir)
    told = {(d.record, d.field) for d in derived(run_dir)}
    assert {("artifact certificates", "content"), (paths.OUTCOME, "metrics")} <= told


def test_edited_cells_and_sweeps_change_what_follows(run_dir: Path) -> None:
    rewrite(records(run_dir, "timing"), lambda bodies: [bodies[0] | {"ended_ns": [1, 12 * 10**9]}, *bodies[1:]])
    reseal(run_dir)
    run = files.load(run_dir)
    fields = {d.field for d in rederive.stage(run, run.plan.stage("contrast"))[1]}
    assert "ratios" in fields
