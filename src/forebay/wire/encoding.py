"""Values out as JSON, whatever text they carry."""

from __future__ import annotations

import re
from typing import Any

import msgspec

_ENCODER = msgspec.json.Encoder()
_SURROGATE = re.compile("[\ud800-\udfff]")


def encode_json(value: Any) -> bytes:
    """Encode a value; lone surrogates, which UTF-8 cannot carry, become replacement marks."""
    try:
        return _ENCODER.encode(value)
    except UnicodeEncodeError:
        return _ENCODER.encode(_clean(msgspec.to_builtins(value)))


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return _SURROGATE.sub("\ufffd", value)
    if isinstance(value, dict):
        return {_clean(key): _clean(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(item) for item in value]
    return value
