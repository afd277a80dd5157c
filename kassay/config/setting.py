"""A setting: the typed value of a Kconfig symbol with its provenance."""

from dataclasses import dataclass

Value = bool | int | str


@dataclass(frozen=True, kw_only=True)
class Setting:
    """The typed value of one symbol and where it came from."""

    value: Value
    origin: str  # default, profile, fragment, command line or user
    where: str  # file:line or command line, empty for a default
