"""Every study file passes the schema, says what it lacks, and keeps the figures of its source."""

import math
import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from kassay import paths
from kassay.config import compose, kconfig
from kassay.stats import certificate
from kassay.stats.blocks import VERDICTS_MEASURED, VERDICTS_UNMEASURED
from kassay.study import Examined, decode, examine, vocabulary
from kassay.study.reading import OPEN

FOLDER = paths.ROOT / "workflows" / "decode" / "study"
NAMES = sorted(path.stem for path in FOLDER.glob("*.yaml"))
RUNNABLE = ("small", "smoke")
ASKED = [  # of the sources' readers: designs 1 to 19
    *("reference-seven-arm", "actual-worker", "awq-8k-b32", "dense-8k-b32", "dense-1k-b32", "b32-matrix"),
    *("b32-bridge-8k", "awq-http-quality", "dense-http-serving", "d64-repair", "prebias-gate", "cartridge"),
    *("static-calibration", "sensitivity-screen", "speculation", "saturation", "offload", "october-b8"),
    *("april-b32", "july-serving-quality", "niah-multikey-32k", "hybrid-27b", "activation-72b", "precision-probes"),
    *("large-reference", "october16-repair", "install-check", *RUNNABLE),
]


def content(name: str) -> dict[str, Any]:
    """A study file as it stands, interpolations unresolved."""
    body = yaml.safe_load((FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))
    assert isinstance(body, dict)
    return body


def examined(name: str) -> Examined:
    """A study by its file; one that takes Kconfig symbols is composed."""
    return examine(composed(name) if name in RUNNABLE else content(name))


def composed(name: str) -> dict[str, Any]:
    """The study of a runnable profile, resolved."""
    study = compose.compose(FOLDER.parent, settings_of(name), [])["study"]
    assert isinstance(study, dict)
    return study


def settings_of(name: str) -> Any:
    """Settings of the profile that plans a study."""
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / ".config"
        kconfig.load_profile("decode-cpu", {f"STUDY_{name.upper().replace('-', '_')}": "y"}, config)
        return kconfig.load(config)


def test_every_design_has_its_file_and_kconfig_its_member() -> None:
    assert sorted(ASKED) == NAMES
    text = (paths.ROOT / "workflows" / "decode" / "Kconfig").read_text()
    for name in NAMES:
        symbol = f"STUDY_{name.upper().replace('-', '_')}"
        assert f"config {symbol}\n" in text and f'default "{name}" if {symbol}\n' in text


@pytest.mark.parametrize("name", NAMES)
def test_a_file_passes_and_each_missing_value_has_its_reason(name: str) -> None:
    found = examined(name)
    assert found.wrong == {}
    assert found.study is not None and found.study.name == name
    assert set(found.missing) == set(content(name)["unprinted"]), "`unprinted` and `???` are the same keys"
    assert all("has no value: " in text and " No default: " in text for text in found.missing.values())


@pytest.mark.parametrize("name", RUNNABLE)
def test_the_shipped_studies_lack_nothing_and_their_workflow_carries_them_out(name: str) -> None:
    found = examined(name)
    assert found.study is not None and found.missing == {} and decode.faults(found.study) == {}


def test_the_figures_of_the_sources() -> None:
    """A few of each design, so that an edit of a file is an edit of a test."""
    reference_study, worker = content("reference-seven-arm"), content("actual-worker")
    assert reference_study["alpha"] == 0.025 / 12 and worker["alpha"] == 0.025 / 4
    assert len(reference_study["arms"]) == 7 and reference_study["endpoints"]["loss-rows"]["cases"] == 2 * 2 * 64 * 7
    assert {made["items"] for made in worker["endpoints"].values() if "items" in made} == {1319, 200}
    assert (
        worker["engine"]["graph_batches"] == [1, 8, 32, 44, 45, 59, 60, 96] and worker["engine"]["open_files"] == 8192
    )
    assert (worker["memory"]["driver_period_ms"], worker["memory"]["longest_gap_ms"]) == (20, 500)
    for name, pool, blocks, family in (
        ("awq-8k-b32", 48, 10, 2),
        ("dense-8k-b32", 40, 10, 2),
        ("dense-1k-b32", 32, 12, 3),
    ):
        study = content(name)
        load = study["workloads"][study["timing"]["workloads"][0]]
        assert (load["pool_gib"], study["timing"]["blocks"], study["timing"]["family_size"]) == (pool, blocks, family)
        assert study["gates"]["nll"]["limit"] == math.log(1.01) and study["timing"]["screen_ratio"] == 1.01
    matrix = content("b32-matrix")
    assert [load["pool_gib"] for load in matrix["workloads"].values()] == [32, 32, 8, 8, 32, 32, 24, 32]
    assert matrix["timing"]["family_size"] == 24 and matrix["timing"]["family"] == "???"
    assert content("dense-http-serving")["workloads"]["at-8k-open"]["rate_per_s"] == 2.9
    gate = content("prebias-gate")["gates"]
    assert (gate["request-rate"]["at_least"], gate["latency"]["at_most"]) == (1.2, 1.25)
    assert content("d64-repair")["gates"]["error"]["at_most"] == 0.005
    assert content("sensitivity-screen")["gates"]["ratio"]["at_most"] == 3.0
    assert content("october-b8")["timing"]["blocks"] == 7


def test_what_the_sources_do_not_print_is_a_missing_value() -> None:
    """The list at the end of the specification of the designs."""
    asked = {
        "b32-matrix": ["gates.retrieval.native_floor", "gates.gsm8k.native_floor", "timing.family", "timing.orders"],
        "awq-8k-b32": ["timing.orders", "timing.pilot_blocks", "timing.interval_draws", "gates.nll.draws"],
        "dense-8k-b32": ["timing.orders", "timing.pilot_blocks", "gates.nll.generator"],
        "dense-http-serving": ["timing.blocks", "gates.failures.at_most", "timing.family"],
        "reference-seven-arm": ["contrasts.nll-1k.p_formula", "contrasts.gsm8k.sidedness", "arm_order"],
        "actual-worker": ["gates.nll-8k.generator"],
    }
    for name, keys in asked.items():
        assert set(keys) <= set(examined(name).missing), name


def test_verdict_words_are_those_of_the_statistics() -> None:
    known = set(vocabulary.VERDICTS)
    assert {*VERDICTS_MEASURED, *VERDICTS_UNMEASURED, "pass", "fails", "unestablished"} <= known
    assert set(certificate.VERDICTS) <= known


def test_every_forbidden_claim_and_kind_is_used_and_explained() -> None:
    used = {claim for name in NAMES for claim in content(name)["claims_forbidden"]}
    assert used == set(vocabulary.CLAIMS) and all(content(name)["claims_forbidden"] for name in NAMES)
    assert {content(name)["kind"] for name in NAMES} == set(vocabulary.KINDS)


def test_an_open_value_breaks_no_rule() -> None:
    found = examined("b32-matrix")
    assert found.study is not None and found.study.timing is not None and found.study.timing.family is OPEN
