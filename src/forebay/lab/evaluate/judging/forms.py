"""The exact forms of a judge's three replies, as JSON schemas for ``response_format``.

Where shape and counts can be said in a schema they are: every passage is a key of its own, so none
is left out or named twice. That an order names each number once no schema of the common kind can
say; it is looked at when the reply is read.
"""

from __future__ import annotations

from typing import Any

import msgspec

_POINTS = {"type": "integer", "minimum": 0, "maximum": 10}


class Form(msgspec.Struct, frozen=True):
    """What a reply must look like."""

    name: str
    schema: dict[str, Any]

    def response_format(self) -> dict[str, Any]:
        """As a request to an OpenAI-compatible endpoint has it."""
        told = {"name": self.name, "strict": True, "schema": self.schema}
        return {"type": "json_schema", "json_schema": told}


def order_form(count: int) -> Form:
    """Of step one: numbers of passages, as many as there are."""
    number = {"type": "integer", "enum": list(range(1, count + 1))}
    order = {"type": "array", "items": number, "minItems": count, "maxItems": count}
    return Form("order", _object({"order": order}))


def score_form(count: int) -> Form:
    """Of step two: three scores of each passage."""
    row = _object(dict.fromkeys(("relevance", "information", "redundancy"), _POINTS))
    return Form("scores", _object({"scores": _each(count, row)}))


def check_form(count: int) -> Form:
    """Of step three: whether it was right, and the relevance of each passage."""
    parts = {"consistent": {"type": "boolean"}, "relevance": _each(count, _POINTS)}
    return Form("check", _object(parts))


def _each(count: int, of: dict[str, Any]) -> dict[str, Any]:
    return _object({str(number): of for number in range(1, count + 1)})


def _object(parts: dict[str, Any]) -> dict[str, Any]:
    """An object with these parts, all of them and no others."""
    return {
        "type": "object",
        "properties": parts,
        "required": list(parts),
        "additionalProperties": False,
    }
