"""What a command was told, by the names of its options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import msgspec


class Words(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a command's options: fields are named like the command's arguments."""

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Self:
        """Those of a command's arguments that belong here; the rest keep their defaults."""
        return cls(**{name: options[name] for name in cls.__struct_fields__ if name in options})
