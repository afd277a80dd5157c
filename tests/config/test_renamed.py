"""A .config of an older kassay: it is told what to write in place of a symbol that has other names now, and kept."""

from pathlib import Path

import pytest

from kassay.config import kconfig
from kassay.config.explain import explain
from kassay.config.renamed import RENAMED, lines, said
from kassay.config.tree import HINT_UNKNOWN, has_prompt, tree
from kassay.errors import ConfigError

OLD = "TIMING_THROTTLED_PERCENT"
NEW = ("TIMING_POWER_CAPPED_PERCENT", "TIMING_SLOWDOWN_PERCENT")


def test_every_new_name_exists_and_no_old_one_does(ours: Path) -> None:
    """A row goes stale in two ways: a new name is renamed again, an old one is taken for something else."""
    with tree() as kconf:
        for old, found in RENAMED.items():
            assert old not in kconf.syms or not kconf.syms[old].nodes, f"{old} is a symbol again"
            assert found.now and found.why and len(set(found.now)) == len(found.now)
            for new in found.now:
                assert kconf.syms[new].nodes and has_prompt(kconf.syms[new]), f"{new} is none that a user can set"


@pytest.fixture
def old_config(ours: Path) -> Path:
    """A .config that was written when one limit held for both, and 25 was chosen for it."""
    config = ours / ".config"
    kconfig.load_profile("decode-cpu", {}, config)
    kept = [line for line in config.read_text().splitlines() if not line.startswith(tuple(f"CONFIG_{n}=" for n in NEW))]
    at = next(number for number, line in enumerate(kept) if line.startswith("CONFIG_TIMING_FOREIGN_CPU_PERCENT="))
    kept.insert(at + 1, f"CONFIG_{OLD}=25")
    config.write_text("\n".join(kept) + "\n")
    return config


@pytest.mark.parametrize(
    "ask", [lambda path: kconfig.load(path), lambda path: kconfig.set_variables({"TIMING_BLOCKS": "6"}, path)]
)
def test_an_old_file_is_refused_with_what_to_write_and_stays_as_it_is(old_config: Path, ask: object) -> None:
    before = old_config.read_bytes()
    number = before.decode().splitlines().index(f"CONFIG_{OLD}=25") + 1
    with pytest.raises(ConfigError) as told:
        ask(old_config)  # type: ignore[operator]
    (message,) = told.value.messages
    assert message.endswith(
        f".config:{number}: unknown symbol `{OLD}`; it is `{NEW[0]}` and `{NEW[1]}` now: power caps and slowdowns are "
        "limits apart"
    )
    assert told.value.hint == f"write `CONFIG_{NEW[0]}=25` and `CONFIG_{NEW[1]}=25` in place of `CONFIG_{OLD}=25`"
    assert old_config.read_bytes() == before and not old_config.with_name(".config.old").exists()


def test_what_it_is_told_to_write_is_taken(old_config: Path) -> None:
    text = old_config.read_text().replace(f"CONFIG_{OLD}=25", "\n".join(f"CONFIG_{name}=25" for name in NEW))
    old_config.write_text(text)
    found = kconfig.load(old_config)
    assert [(found[name].value, found[name].origin) for name in NEW] == [(25, "user")] * 2


def test_the_command_line_and_the_help_say_it_too(ours: Path) -> None:
    config = ours / ".config"
    with pytest.raises(ConfigError) as told:
        kconfig.load_profile("decode-cpu", {OLD: "25"}, config)
    assert told.value.hint == f"write `{NEW[0]}=25` and `{NEW[1]}=25` in place of `{OLD}=25`"
    assert not config.exists()
    with tree() as kconf, pytest.raises(ConfigError, match=f"it is `{NEW[0]}` and `{NEW[1]}` now"):
        explain(kconf, OLD)


def test_a_profile_over_an_old_file_keeps_it_beside_and_says_what_it_held(old_config: Path) -> None:
    before = old_config.read_bytes()
    written = kconfig.load_profile("decode-cpu", {}, old_config)
    assert old_config.with_name(".config.old").read_bytes() == before
    assert any(f"`{OLD}=25`; it is `absent` now" in message for message in written.messages)


def test_other_unknown_symbols_are_told_with_it(old_config: Path) -> None:
    old_config.write_text(old_config.read_text() + "CONFIG_TIMNG_BLOCKS=8\n")
    with pytest.raises(ConfigError) as told:
        kconfig.load(old_config)
    assert len(told.value.messages) == 2 and "did you mean `TIMING_BLOCKS`?" in told.value.messages[1]
    assert told.value.hint == f"{lines(OLD, '25', '.config:1')}; {HINT_UNKNOWN}"


def test_a_name_that_never_was_one_is_no_renamed_one() -> None:
    assert said("TIMNG_BLOCKS") == ""
    with pytest.raises(KeyError):
        lines("TIMNG_BLOCKS", "8", ".config:3")
