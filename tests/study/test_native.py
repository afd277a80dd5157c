"""Studies of the native workflow are of the strict form, and what its stages cannot do of one is said before a run."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kassay import paths
from kassay.config import compose, kconfig
from kassay.errors import ConfigError
from kassay.study import examine, native
from tests.study.test_mutations import change, drop

FOLDER = paths.ROOT / "workflows" / "native"
PROFILES = ("decode-native", "cartridge-native", "native-smoke")


def composed(profile: str, config: Path, overrides: list[str]) -> dict[str, Any]:
    """The study that a profile plans."""
    kconfig.load_profile(profile, {}, config)
    study = compose.compose(FOLDER, kconfig.load(config), overrides)["study"]
    assert isinstance(study, dict)
    return study


@pytest.mark.parametrize("profile", PROFILES)
def test_a_study_has_the_strict_form_and_its_stages_can_carry_it_out(profile: str, tmp_path: Path) -> None:
    study = composed(profile, tmp_path / ".config", [])
    found = examine(study)
    assert not found.wrong and not found.missing and found.study is not None
    assert native.faults(found.study) == {} and study["name"] == profile
    assert {path.stem for path in (FOLDER / "study").glob("*.yaml")} == set(PROFILES)


FAULTS: list[tuple[str, Callable[[dict[str, Any]], None], str, str]] = [
    ("decode-native", drop("fused"), "fused", "is not there, and workflow `native` needs it"),
    ("decode-native", drop("memory"), "memory", "is not there, and workflow `native` needs it"),
    ("decode-native", change("arms.k16v8-f.values", "fp16"), "arms.k16v8-f", "its values are `fp16`, and what it"),
    ("decode-native", change("arms.k16v8-f.scales", "dynamic"), "arms.k16v8-f", "its scales are `dynamic`, and those"),
    ("decode-native", change("fused.held.arms", ["k9"]), "fused.held.arms", "`k9` is no arm, allowed are native"),
    ("decode-native", change("fused.held.output_tokens", 8320), "fused.held.output_tokens", "is all of a sequence"),
    ("decode-native", change("sweep.largest_batch", 128), "fused.sweep.batches", "`sweep.largest_batch`, which is 128"),
    ("decode-native", change("fused.oracle.heads", [[32, 8, 128]]), "fused.oracle.heads", "has an entry that is not"),
    ("decode-native", change("fused.oracle.recipes", ["k9v9"]), "fused.oracle.recipes", "unknown recipe `k9v9`"),
    ("cartridge-native", change("fused.prefix.positions", 631), "fused.prefix.positions", "631 positions does not end"),
    ("cartridge-native", change("fused.prefix.page_tokens", 16), "fused.prefix.page_tokens", "`engine.page_tokens` is"),
    (
        "cartridge-native", change("fused.prefix.positions_at", [[888, 632]]), "fused.prefix.positions_at",
        "does not name each of `sweep.contexts_tokens`",
    ),
    (
        "cartridge-native", change("fused.prefix.positions_at", [[888, 888], [8448, 8192]]),
        "fused.prefix.positions_at", "a prefix that is all of its context",
    ),
    ("cartridge-native", change("memory.equal_slots_blocks", 9), "fused.prefix.arms", "in blocks of its own: null"),
    (
        "cartridge-native", change("timing.arms", ["copied-k16v8", "once-k16v16", "once-k16v8", "once-k16v8-all"]),
        "fused.prefix.arms.copied-k16v8.copied", "is timed, and a prompt behind a copy",
    ),
    (
        "cartridge-native", change("fused.prefix.arms.once-k16v8.prefix", "native"), "arms.once-k16v8",
        "its values are `e4m3fn`, and what it stores is fp16 or bf16",
    ),
    ("cartridge-native", drop("fused.prefix.arms.once-k16v8"), "arms.once-k16v8", "is no arm of `fused.prefix`"),
]  # fmt: skip


@pytest.mark.parametrize(("profile", "fault", "key", "said"), FAULTS)
def test_what_its_stages_cannot_do_is_told_at_its_key(
    profile: str, fault: Callable[[dict[str, Any]], None], key: str, said: str, tmp_path: Path
) -> None:
    body = copy.deepcopy(composed(profile, tmp_path / ".config", []))
    fault(body)
    found = examine(body)
    assert found.study is not None and not found.wrong, found.wrong
    assert said in native.faults(found.study)[key]


def test_a_value_of_another_kind_is_told_with_file_and_line(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"native/study/cartridge-native\.yaml:\d+: `study\.fused\.prefix\.positions`"
    ):
        composed("cartridge-native", tmp_path / ".config", ["study.fused.prefix.positions=some"])
    with pytest.raises(ConfigError, match=r"cartridge-native\.yaml:\d+: `study\.fused\.prefix\.positions`: .*631 pos"):
        composed("cartridge-native", tmp_path / ".config", ["study.fused.prefix.positions=631"])
