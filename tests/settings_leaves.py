"""The settings below a struct, one by one, and the same struct with one of them changed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec


def leaves(struct: msgspec.Struct, under: str = "") -> Iterator[str]:
    """Dotted names of all that is no table itself."""
    for name in struct.__struct_fields__:
        value = getattr(struct, name)
        if isinstance(value, msgspec.Struct):
            yield from leaves(value, f"{under}{name}.")
        else:
            yield under + name


def replaced(struct: Any, key: str, value: Any) -> Any:
    """The struct with another value under a dotted name."""
    name, _, rest = key.partition(".")
    inner = replaced(getattr(struct, name), rest, value) if rest else value
    return msgspec.structs.replace(struct, **{name: inner})
