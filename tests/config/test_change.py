"""Saving, refreshing, comparing and drawing configurations; 300 random ones survive the way to a profile and back."""

import hashlib
from pathlib import Path

import pytest

from kassay import paths, plan
from kassay.config import change, compose, explain, kconfig, profiles
from kassay.config.tree import tree
from kassay.errors import ConfigError, KassayError

SEEDS = range(300)
STRINGS = ["", "plain", 'a\\b "q" $HOME #x', "tail\\", "café λ", "$(touch x)", "'", "=y", " two ", "0008812", "null"]


def planned(config: Path) -> plan.Plan:
    """The plan of a .config."""
    settings = kconfig.load(config)
    workflow = str(settings["WORKFLOW"].value)
    return plan.build("custom", workflow, compose.compose(paths.place(f"{paths.WORKFLOWS}/{workflow}"), settings, []))


@pytest.mark.parametrize("block", range(0, len(SEEDS), 50))
def test_random_configurations_survive_the_way_to_a_profile_and_back(ours: Path, block: int) -> None:
    config, seen, works = ours / ".config", set(), 0
    for seed in SEEDS[block : block + 50]:
        change.randomize(seed, config)
        kconfig.set_variables({"RESULTS": STRINGS[seed % len(STRINGS)]}, config)
        drawn = change.values_of(str(config))
        change.save_profile("drawn", config)
        kconfig.load_profile("drawn", {}, config)
        first = config.read_bytes()
        assert change.values_of(str(config)) == drawn
        _, written = change.save_profile("drawn", config)
        assert not written, "saved again, the profile is the same"
        assert not kconfig.load_profile("drawn", {}, config).changed and config.read_bytes() == first
        seen.add(hashlib.sha256(first).digest())
        try:
            assert planned(config).stages
            works += 1
        except KassayError as error:
            assert error.messages and all("Traceback" not in message for message in error.messages)
    assert len(seen) == 50 and works >= 25


def test_the_same_seed_gives_the_same_and_another_another(ours: Path) -> None:
    config = ours / ".config"
    change.randomize(1, config)
    first = config.read_bytes()
    change.randomize(2, config)
    assert config.read_bytes() != first
    change.randomize(1, config)
    assert config.read_bytes() == first


SHIPPED = [
    name for profile in profiles.profiles() for name in (profile, *(f"{profile}+{one}" for one in profiles.fragments()))
]


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_profile_saved_means_the_same(ours: Path, name: str) -> None:
    config = ours / ".config"
    try:
        kconfig.load_profile(name, {}, config)
    except ConfigError as error:
        assert name.endswith("+smoke") and "depends on `WORKFLOW_DECODE`" in str(error)
        return
    before = change.values_of(str(config))
    change.save_profile("saved", config)
    assert change.values_of("saved") == before and change.differences("saved", name) == []
    kconfig.load_profile("saved", {}, config)
    first = config.read_bytes()
    change.save_profile("saved", config)
    assert not kconfig.load_profile("saved", {}, config).changed and config.read_bytes() == first


def test_a_saved_profile_keeps_its_comment_head_and_holds_only_differences(ours: Path) -> None:
    config = ours / ".config"
    kconfig.load_profile("decode-cpu", {"TIMING_BLOCKS": "12"}, config)
    path, written = change.save_profile("mine", config)
    assert written and path == ours / "defconfigs" / "mine"
    assert path.read_text() == (
        "# purpose: made from decode-cpu; hardware: any, two cores; time: 7 minutes\nCONFIG_TIMING_BLOCKS=12\n"
    )
    path.write_text("# purpose: my own; hardware: any; time: 1 h\n# more about it\nCONFIG_TIMING_BLOCKS=12\n")
    kconfig.load_profile("mine", {"TIMING_BLOCKS": "18"}, config)
    change.save_profile("mine", config)
    assert path.read_text() == (
        "# purpose: my own; hardware: any; time: 1 h\n# more about it\nCONFIG_TIMING_BLOCKS=18\n"
    )
    for name in ("a/b", "../x", "", ".hidden", "a+b"):
        with pytest.raises(ConfigError, match="is no name of a profile"):
            change.save_profile(name, config)


def test_an_older_config_is_brought_up_to_date_and_nothing_is_dropped_unsaid(ours: Path) -> None:
    config = ours / ".config"
    kconfig.load_profile("decode-cpu", {"TIMING_BLOCKS": "12"}, config)
    whole = config.read_bytes()
    older = whole.replace(b"CONFIG_SWEEP_REPETITIONS=5\n", b"") + b"CONFIG_GONE=y\n# CONFIG_GONE_TOO is not set\n"
    config.write_bytes(older)
    assert change.list_new(config) == ["SWEEP_REPETITIONS=5"] and config.read_bytes() == older
    changed, messages = change.refresh(config, ask=False)
    assert changed and config.read_bytes() == whole
    assert [message.partition(": ")[2] for message in messages[:2]] == [
        "`GONE=y` is dropped: no Kconfig file has this symbol",
        "`GONE_TOO=n` is dropped: no Kconfig file has this symbol",
    ]
    assert messages[2:] == ["new: `SWEEP_REPETITIONS=5`, Measurements of each cell, after one warm-up"]
    assert change.refresh(config, ask=False) == (False, [])
    config.write_bytes(
        whole.replace(b"# CONFIG_STUDY_SMOKE is not set\n", b"").replace(b'CONFIG_STACK_PYTHON=""\n', b"")
    )
    assert change.list_new(config) == ["STUDY_SMOKE=n", 'STACK_PYTHON=""'], "a choice with a new member is told, too"


def test_a_value_that_does_not_hold_any_more_stays_an_error(ours: Path) -> None:
    config = ours / ".config"
    kconfig.load_profile("decode-cpu", {}, config)
    config.write_bytes(config.read_bytes().replace(b"TIMING_BLOCKS=6", b"TIMING_BLOCKS=600"))
    before = config.read_bytes()
    with pytest.raises(ConfigError, match=r"TIMING_BLOCKS=600` would become `6`: allowed is 1 to 64"):
        change.refresh(config, ask=False)
    assert config.read_bytes() == before


def test_differences_are_told_by_name_and_by_file(ours: Path) -> None:
    config = ours / ".config"
    kconfig.load_profile("decode-cpu", {"TIMING_BLOCKS": "12"}, config)
    both = ["TIMING_BLOCKS 6 -> 12", "TIMING_VALID_BLOCKS 6 -> 12"]  # the second's default is the first
    assert change.differences("decode-cpu", str(config)) == both
    assert "STUDY_SMOKE n -> y" in change.differences("decode-cpu", "decode-cpu+smoke")
    with pytest.raises(ConfigError, match="unknown profile `nothing`"):
        change.differences("nothing", "decode-cpu")


def test_edits_that_a_profile_replaces_are_kept_and_told(ours: Path) -> None:
    config = ours / ".config"
    kconfig.load_profile("decode-cpu", {}, config)
    assert kconfig.load_profile("decode-cpu+smoke", {}, config).messages[-1].count("overrides"), "nothing was edited"
    config.write_bytes(config.read_bytes().replace(b"TIMING_BLOCKS=2", b"TIMING_BLOCKS=9"))
    edited = config.read_bytes()
    told = kconfig.load_profile("decode-cpu", {}, config).messages
    assert [line.partition(" keeps ")[2] for line in told] == ["`TIMING_BLOCKS=9`; it is `6` now"]
    assert (ours / ".config.old").read_bytes() == edited
    config.write_bytes(b"CONFIG_NONSENSE\n")
    told = kconfig.load_profile("decode-cpu", {}, config).messages
    assert len(told) == 1 and "no longer valid" in told[0]
    assert (ours / ".config.old").read_bytes() == b"CONFIG_NONSENSE\n"


def test_where_a_value_came_from(ours: Path) -> None:
    config = ours / ".config"
    kconfig.load_profile("decode-cpu+smoke", {"MEMORY_BATCH": "8"}, config)
    kconfig.set_variables({"TIMING_WARMUPS": "2"}, config)
    config.write_bytes(config.read_bytes().replace(b"ORACLE_BATCH=2", b"ORACLE_BATCH=3"))
    found = {name: (setting.value, setting.origin) for name, setting in kconfig.load(config).items()}
    assert found["TIMING_BLOCKS"] == (2, "fragment") and found["STACK_CPU"] == (True, "profile")
    assert found["MEMORY_BATCH"] == (8, "command line") and found["TIMING_WARMUPS"] == (2, "command line")
    assert found["ORACLE_BATCH"] == (3, "user") and found["TIMING_REPETITIONS"] == (3, "default")
    config.write_bytes(config.read_bytes().replace(b"CONFIG_MEMORY_BATCH=8", b"CONFIG_MEMORY_BATCH=9"))
    assert kconfig.load(config)["MEMORY_BATCH"].origin == "user", "edited after the command line set it"


def test_every_symbol_is_explained(ours: Path) -> None:
    with tree() as kconf:
        for symbol in kconf.unique_defined_syms:
            facts = explain.explain(kconf, symbol.name)
            assert facts.defined and (facts.prompt or facts.help), f"{symbol.name} says nothing about itself"
            assert facts.used or symbol.name in kconfig.BOOKKEEPING, f"nothing uses {symbol.name}"
        facts = explain.explain(kconf, "TIMING_BLOCKS")
        assert (facts.kind, facts.bounds, facts.default) == ("int", "1 to 64", "6")
        assert facts.menu == "Decode study > Timing blocks" and facts.defined[0].startswith("stages/Kconfig.timing:")
        assert any(place.startswith("workflows/decode/study/small.yaml:") for place in facts.used)
        with pytest.raises(ConfigError, match="did you mean `TIMING_BLOCKS`"):
            explain.explain(kconf, "TIMNG_BLOCKS")
