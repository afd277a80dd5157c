"""Planning a study: what is missing is told at once, and a user gives it by SET or by a file."""

from pathlib import Path

import pytest
import yaml

from kassay.study import examine
from tests.commandline import kassay
from tests.study.test_files import NAMES, RUNNABLE, content

GIVEN = {  # what dense-8k-b32 lacks
    "models.qwen3-8b.revision": "b968826d",
    "gates.nll.draws": "100000",
    "gates.nll.generator": "pcg64",
    "workloads.at-8k-b8.pool_gib": "40",
    "timing.pilot_blocks": "2",
    "timing.orders": "williams",
    "timing.interval_draws": "10000",
    "timing.warmups": "1",
    "timing.repetitions": "1",
}


def symbol(name: str) -> str:
    """The Kconfig word that chooses a study."""
    return f"STUDY_{name.upper().replace('-', '_')}=y"


@pytest.mark.parametrize("name", [name for name in NAMES if name not in RUNNABLE])
def test_a_plan_names_every_missing_value_its_meaning_and_why(tree: Path, name: str) -> None:
    assert kassay(tree, "defconfig", "decode-cpu", symbol(name)).returncode == 0
    done = kassay(tree, "plan")
    assert (done.returncode, done.stdout) == (2, "")
    lines = [line for line in done.stderr.splitlines() if "has no value" in line]
    body = content(name)
    assert len(lines) == len(body["unprinted"])
    for key, why in body["unprinted"].items():
        (line,) = [line for line in lines if f"`study.{key}`" in line]
        assert line.startswith(f"error: decode/study/{name}.yaml:") and line.endswith(f"No default: {why}")
    if body["carried_out_by"] == "decode":  # told is what its stages lack
        assert "workflow `decode` measures retrieval, arithmetic, nll, each under its own name" in done.stderr
        assert "`study.certificates.route`: workflow `decode` times what one of the objectives" in done.stderr
    else:
        assert "`study.carried_out_by`: no stage of workflow `decode` carries this study out" in done.stderr
    assert ("hint: make SET=" in done.stderr) == bool(lines)


def test_set_and_a_file_give_what_is_missing_and_nothing_else(tree: Path) -> None:
    assert kassay(tree, "defconfig", "decode-cpu", symbol("dense-8k-b32")).returncode == 0
    by_set = " ".join(f"study.{key}={value}" for key, value in GIVEN.items())
    done = kassay(tree, "freeze-protocol", SET=by_set)
    assert done.returncode == 0 and done.stderr.startswith("decode/dense-8k-b32 ") and "frozen" in done.stderr
    frozen = (tree / "protocol.json").read_text()

    fill = tree / "workflows" / "decode" / "fill" / "mine.yaml"
    gates = {"nll": {"draws": 100000, "generator": "pcg64"}}
    timing = {"pilot_blocks": 2, "orders": "williams", "interval_draws": 10000, "warmups": 1, "repetitions": 1}
    given = {"models": {"qwen3-8b": {"revision": "b968826d"}}, "gates": gates, "timing": timing}
    given["workloads"] = {"at-8k-b8": {"pool_gib": 40}}
    fill.write_text("# @package study\n" + yaml.safe_dump(given))
    done = kassay(tree, "freeze-protocol", "FILL=mine")
    assert done.returncode == 0 and "unchanged" in done.stderr, done.stderr
    assert (tree / "protocol.json").read_text() == frozen, "by SET or by a file, it is one protocol"

    fill.write_text("# @package study\nalpha: 0.01\n" + yaml.safe_dump(given))
    done = kassay(tree, "freeze-protocol", "FILL=mine")
    assert done.returncode == 2
    assert "decode/fill/mine.yaml:2: `fill.alpha`: has a value in decode/study/dense-8k-b32.yaml:" in done.stderr


def test_a_wrong_value_in_the_place_of_a_missing_one(tree: Path) -> None:
    assert kassay(tree, "defconfig", "decode-cpu", symbol("dense-8k-b32")).returncode == 0
    wrong = {**GIVEN, "timing.orders": "[[native,candidate]]", "timing.pilot_blocks": "-1"}
    done = kassay(tree, "freeze-protocol", SET=" ".join(f"study.{key}={value}" for key, value in wrong.items()))
    assert done.returncode == 2 and not (tree / "protocol.json").exists()
    assert "`study.timing.pilot_blocks`: is -1, allowed is at least 0" in done.stderr
    assert "`study.timing.orders`: has 1 orders for 10 blocks" in done.stderr


@pytest.mark.parametrize(
    ("override", "said"),
    [
        (
            "~study.gates.nll +study.gates.nll={statistic:value,endpoint:nll,at_least:null,at_most:3}",
            "gates.nll.statistic`: workflow `decode` computes gross-loss, net-change, relative-nll, nll-difference",
        ),
        ("study.gates.nll.generator=mt19937", "gates.nll.generator`: workflow `decode` draws with `pcg64`"),
        ("study.arms.k16v8-f.values=int8", "arms.k16v8-f`: its values are `int8`, and recipe `k16v8-f` stores e4m3fn"),
        ("study.arms.k16v8-f.scales=dynamic", "its scales are `dynamic`, and those of recipe `k16v8-f` are `fixed`"),
        ("+study.certificates.objectives.more=[nll]", "certificates.route`: workflow `decode` times what one of the"),
        ("~study.sweep", "`study.sweep`: is not there, and workflow `decode` needs it"),
    ],
)
def test_what_the_stages_cannot_carry_out_is_told_before_they_run(tree: Path, override: str, said: str) -> None:
    assert kassay(tree, "defconfig", "decode-cpu").returncode == 0
    done = kassay(tree, "plan", SET=override)
    assert done.returncode == 2 and said in done.stderr, done.stderr


def test_another_schema_is_refused(tree: Path) -> None:
    assert kassay(tree, "defconfig", "decode-cpu").returncode == 0
    done = kassay(tree, "plan", SET="study_schema=kassay.study/2")
    assert done.returncode == 2 and "is `kassay.study/2`, allowed is `kassay.study/1`" in done.stderr


def test_every_filled_study_is_whole() -> None:
    """A study whose missing values were given has no other fault: what stands beside them fits."""
    body = content("dense-8k-b32")
    for key, text in GIVEN.items():
        holder = body
        *folders, last = key.split(".")
        for word in folders:
            holder = holder[word]
        holder[last] = yaml.safe_load(text)
    found = examine(body)
    assert (found.wrong, found.missing) == ({}, {})
