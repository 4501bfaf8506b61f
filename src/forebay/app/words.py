"""What a command was told, by the names of its options."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any, Self, TypeVar

import msgspec

from forebay.kernel.errors import ConfigError

T = TypeVar("T", bound=msgspec.Struct)


class Words(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a command's options: fields are named like the command's arguments."""

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Self:
        """Those of a command's arguments that belong here; the rest keep their defaults."""
        return cls(**{name: options[name] for name in cls.__struct_fields__ if name in options})


def settings_of(
    kind: type[T], values: Mapping[str, Any], pairs: list[str] | None, option: str
) -> T:
    """A struct from values and ``name=value`` words; ``ConfigError`` names what is wrong."""
    known = kind.__struct_fields__
    given = dict(values)
    for pair in pairs or []:
        name, equals, value = pair.partition("=")
        name = name.strip().replace("-", "_")
        if not equals:
            raise ConfigError(
                f"{option} takes name=value, not {pair!r}; names: {', '.join(known)}."
            )
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f" (did you mean {near[0]}?)" if near else ""
            raise ConfigError(f"{option} knows no {name}{hint}; names: {', '.join(known)}.")
        given[name] = value.strip()
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{option} cannot be read: {error}.") from error


def setting_flags(pairs: list[str] | None) -> dict[str, Any]:
    """Settings from ``section.key=value`` words; ``ConfigError`` for one that is none."""
    flags = {}
    for pair in pairs or []:
        name, equals, value = pair.partition("=")
        if not equals or "." not in name:
            raise ConfigError(f"--set takes section.key=value, not {pair!r}.")
        flags[name.strip()] = value.strip()
    return flags
