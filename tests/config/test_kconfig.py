"""Strict loading: what a profile asks for is what it gets, or an error with file and line (O01 to O05 of the field)."""

from pathlib import Path

import pytest

from kassay import paths
from kassay.config import kconfig
from kassay.config.setting import Setting
from kassay.errors import ConfigError

TREE = """
mainmenu "test"
config PROFILE
	string "profile"
config FRAGMENTS
	string "fragments"
config COMMAND_LINE
	string "command line"
config BLOCKS
	int "blocks"
	range 2 64
	default 8
config REF
	string "ref"
	default "main"
config NOTE
	string "note"
	default ""
config SKIPS
	bool "skips"
	default y
config HELPER
	bool
	default y if SKIPS
choice
	prompt "kv"
	default KV_BF16
config KV_BF16
	bool "bf16"
config KV_FP8
	bool "fp8"
config KV_K16V8
	bool "k16v8"
endchoice
config SCALE
	int "scale"
	depends on KV_FP8
	default 3
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tree with the bug cases' symbols and an empty profile."""
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    monkeypatch.delenv(paths.OUTSIDE, raising=False)
    (tmp_path / "Kconfig").write_text(TREE)
    (tmp_path / "defconfigs" / "fragments").mkdir(parents=True)
    return tmp_path


def profile(root: Path, text: str | bytes, name: str = "p") -> Path:
    """Write a profile."""
    path = root / "defconfigs" / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def load(root: Path, text: str | bytes, **variables: str) -> dict[str, Setting]:
    """Profile -> .config -> settings."""
    profile(root, text)
    kconfig.load_profile("p", variables, root / ".config")
    return kconfig.load(root / ".config")


def lines(config: Path, name: str) -> list[bytes]:
    """The lines of a .config that set a symbol."""
    return [line for line in config.read_bytes().split(b"\n") if line.startswith(f"CONFIG_{name}=".encode())]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("CONFIG_BLOCKS=128", "would become `8`: allowed is 2 to 64"),
        ("CONFIG_BLOKCS=16", "unknown symbol `BLOKCS`; did you mean `BLOCKS`?"),
        ("CONFIG_HELPER=n", "no prompt"),
        ("CONFIG_SCALE=7", "depends on `KV_FP8`"),
        ("CONFIG_BLOCKS=64 # max", "is not of type `int`"),
        ("CONFIG_BLOCKS=abc", "is not of type `int`"),
        ("CONFIG_SKIPS=true", "is not of type `bool`"),
        ("CONFIG_NOTE=bare", "is not of type `string`"),
        ('CONFIG_NOTE="ends\\"', "is not of type `string`"),
        ("CONFIG_REF=7315208644e3", "is not of type `string`"),
        ("BLOCKS=16", "is no assignment"),
        ("CONFIG_KV_FP8=y\nCONFIG_KV_K16V8=y", "picks a second member of one choice"),
        ("CONFIG_KV_K16V8=y\nCONFIG_KV_FP8=y", "picks a second member of one choice"),
        ("CONFIG_KV_FP8=y\nCONFIG_KV_FP8=n", "p:2 says `y`"),
        ("CONFIG_BLOCKS=16\nCONFIG_BLOCKS=32", "p:2 says `16`"),
        ("CONFIG_BLOCKS=1_6", "is not of type `int`"),
        ("CONFIG_BLOCKS= 16", "is not of type `int`"),
        ("CONFIG_BLOCKS=１６", "is not of type `int`"),
        ("CONFIG_BLOCKS=", "is not of type `int`"),
        ("# CONFIG_BLOCKS is not set", "is not of type `int`"),
        (" CONFIG_BLOCKS=16", "is no assignment"),
        ('CONFIG_NOTE="bell\x07"', "the value of `NOTE` holds '\\x07'"),
        ("CONFIG_KV_BF16=n", "would become `y`"),
    ],
)
def test_what_does_not_take_effect_is_an_error(root: Path, line: str, said: str) -> None:
    profile(root, "# purpose: x\n" + line + "\n")
    before = root / ".config"
    before.write_text("# mine\n")
    stamp = before.stat().st_mtime_ns
    with pytest.raises(ConfigError) as caught:
        kconfig.load_profile("p", {}, before)
    assert said in str(caught.value) and "p:" in str(caught.value)
    assert (before.read_text(), before.stat().st_mtime_ns) == ("# mine\n", stamp)


def test_all_errors_at_once(root: Path) -> None:
    profile(root, "CONFIG_BLOCKS=128\nCONFIG_NOPE=1\nCONFIG_HELPER=n\n")
    with pytest.raises(ConfigError) as caught:
        kconfig.load_profile("p", {}, root / ".config")
    assert all(f"p:{line}" in str(caught.value) for line in (1, 2, 3))


def test_a_leading_zero_is_decimal(root: Path) -> None:
    assert load(root, "CONFIG_BLOCKS=016\n")["BLOCKS"].value == 16


AWKWARD = [
    'a\\b "q" $HOME #x',
    "tail\\",
    "",
    "café λ",
    "$(touch x)",
    "a=b;c",
    "  two  ",
    "a\u2028b\x85c",
    "tab\t",
    "`x`",
]


@pytest.mark.parametrize("value", AWKWARD)
def test_strings_survive(root: Path, value: str) -> None:
    from kassay.config.assignments import quoted

    settings = load(root, f"CONFIG_NOTE={quoted(value)}\n")
    assert settings["NOTE"].value == value
    first = lines(root / ".config", "NOTE")
    kconfig.set_variables({"NOTE": value}, root / ".config")
    assert lines(root / ".config", "NOTE") == first and len(first) == 1
    assert kconfig.load(root / ".config")["NOTE"] == Setting(value=value, origin="command line", where="")
    assert load(root, "", NOTE=value)["NOTE"].value == value


@pytest.mark.parametrize("ref", ["7315208644e3", "4419027", "0008812", "1e10", "y", "null"])
def test_a_ref_that_looks_like_a_number_stays_a_string(root: Path, ref: str) -> None:
    assert load(root, f'CONFIG_REF="{ref}"\n')["REF"].value == ref


@pytest.mark.parametrize("value", ["two\nCONFIG_BLOCKS=9", "a\rb", "nul\x00", "\udce9"])
def test_a_value_that_no_line_can_hold_is_refused_and_config_stays(root: Path, value: str) -> None:
    load(root, "CONFIG_BLOCKS=16\n")
    before = (root / ".config").read_bytes()
    with pytest.raises(ConfigError, match="the value of `NOTE` holds"):
        kconfig.set_variables({"NOTE": value}, root / ".config")
    assert (root / ".config").read_bytes() == before


def test_an_unset_mark_counts_also_with_space_behind_it(root: Path) -> None:
    assert load(root, "# CONFIG_SKIPS is not set  \n")["SKIPS"].value is False


def test_the_odd_escape_means_the_same_everywhere(root: Path) -> None:
    settings = load(root, 'CONFIG_NOTE="C:\\new\\x33"\n')
    assert settings["NOTE"].value == "C:newx33" and 'CONFIG_NOTE="C:newx33"\n' in (root / ".config").read_text()


def test_line_ends_and_a_missing_last_newline_change_nothing(root: Path) -> None:
    load(root, 'CONFIG_BLOCKS=16\nCONFIG_REF="dev"\n')
    plain = (root / ".config").read_bytes()
    for text in ('CONFIG_BLOCKS=16\r\nCONFIG_REF="dev"\r\n', 'CONFIG_BLOCKS=16\nCONFIG_REF="dev"'):
        assert load(root, text)["REF"].value == "dev"
        assert (root / ".config").read_bytes() == plain


def test_wrong_encodings_are_refused_by_line(root: Path) -> None:
    with pytest.raises(ConfigError, match="p:1: starts with a byte-order mark"):
        load(root, b"\xef\xbb\xbfCONFIG_BLOCKS=16\n")
    with pytest.raises(ConfigError, match="p:2: not UTF-8"):
        load(root, b'CONFIG_BLOCKS=16\nCONFIG_NOTE="caf\xe9"\n')


def test_a_fragment_may_override_the_profiles_choice(root: Path) -> None:
    profile(root, "CONFIG_KV_FP8=y\nCONFIG_BLOCKS=16\n")
    profile(root, "CONFIG_KV_K16V8=y\nCONFIG_BLOCKS=32\n", "fragments/f.config")
    done = kconfig.load_profile("p+f", {"REF": "dev"}, root / ".config")
    assert done.changed and [line.partition(": ")[2].partition(" of ")[0] for line in done.messages] == [
        "`KV_K16V8=y` overrides `KV_FP8=y`", "`BLOCKS=32` overrides `BLOCKS=16`",
    ]  # fmt: skip
    settings = kconfig.load(root / ".config")
    chosen = {name: settings[name].value for name in ("KV_BF16", "KV_FP8", "KV_K16V8", "BLOCKS", "REF", "FRAGMENTS")}
    assert chosen == {
        "KV_BF16": False, "KV_FP8": False, "KV_K16V8": True, "BLOCKS": 32, "REF": "dev", "FRAGMENTS": "f",
    }  # fmt: skip
    origins = {name: settings[name].origin for name in ("BLOCKS", "REF", "NOTE", "KV_K16V8")}
    assert origins == {"BLOCKS": "fragment", "REF": "command line", "NOTE": "default", "KV_K16V8": "fragment"}
    assert settings["BLOCKS"].where.endswith("f.config:2")


def test_an_edited_config_is_kept_and_loaded_strictly(root: Path) -> None:
    load(root, "CONFIG_BLOCKS=16\n")
    config = root / ".config"
    config.write_text(config.read_text().replace("BLOCKS=16", "BLOCKS=99"))
    with pytest.raises(ConfigError, match=r"\.config:\d+: `BLOCKS=99` would become"):
        kconfig.load(config)
    edited = config.read_bytes()
    load(root, "CONFIG_BLOCKS=16\n")
    assert (root / ".config.old").read_bytes() == edited


def test_a_command_line_choice_takes_what_it_hides_out_of_config(root: Path) -> None:
    load(root, "CONFIG_KV_FP8=y\nCONFIG_SCALE=7\n")
    kconfig.set_variables({"KV_BF16": "y"}, root / ".config")
    settings = kconfig.load(root / ".config")
    members = [settings[name].value for name in ("KV_BF16", "KV_FP8", "KV_K16V8")]
    assert members == [True, False, False] and "SCALE" not in (root / ".config").read_text()
    with pytest.raises(ConfigError, match="depends on `KV_FP8`"):
        kconfig.set_variables({"SCALE": "7"}, root / ".config")


def test_a_broken_config_is_not_repaired_by_a_variable(root: Path) -> None:
    load(root, "")
    config = root / ".config"
    config.write_text(config.read_text().replace("HELPER=y", "HELPER=n").replace("BLOCKS=8", "BLOCKS=99"))
    before = config.read_bytes()
    with pytest.raises(ConfigError) as caught:
        kconfig.set_variables({"REF": "dev"}, config)
    assert "BLOCKS=99" in str(caught.value) and "no prompt" in str(caught.value) and config.read_bytes() == before


def test_a_profile_with_a_dot_keeps_its_name(root: Path) -> None:
    profile(root, "", "qwen3-1.7b")
    with pytest.raises(ConfigError, match=r"unknown profile `qwen3-1\.8b`; did you mean `qwen3-1\.7b`"):
        kconfig.load_profile("qwen3-1.8b", {}, root / ".config")


@pytest.mark.parametrize("name", ["a/b", "../Kconfig", "", "p+", "p+../p", "fragments", ".hidden"])
def test_a_name_is_never_a_path(root: Path, name: str) -> None:
    profile(root, "")
    with pytest.raises(ConfigError, match=r"unknown (profile|fragment)"):
        kconfig.load_profile(name, {}, root / ".config")
    assert not (root / ".config").exists()


def test_names_that_do_not_exist(root: Path) -> None:
    profile(root, "")
    with pytest.raises(ConfigError, match="unknown profile `q`"):
        kconfig.load_profile("q", {}, root / ".config")
    with pytest.raises(ConfigError, match="unknown fragment `smok`"):
        kconfig.load_profile("p+smok", {}, root / ".config")
    with pytest.raises(ConfigError, match="does not exist"):
        kconfig.load(root / "nothing")
