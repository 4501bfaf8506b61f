"""The words and fields that a place may have, for the sentence on what is none of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

import msgspec

_STEP = re.compile(r"\[[^\]]*\]|[^.\[\]]+")


def choices(kind: Any, place: str) -> tuple[str, ...]:
    """The words allowed at a place of ``kind``, named as msgspec does (``rules[0].dimension``).

    Empty where it takes other values than a few words.
    """
    found = [one for one in _at(kind, place) if one is not type(None)]
    if any(get_origin(one) is not Literal for one in found):
        return ()
    return tuple(str(word) for one in found for word in get_args(one))


def fields(kind: Any, place: str) -> tuple[str, ...]:
    """The fields of the objects at a place of ``kind``."""
    found = [one for one in _at(kind, place) if isinstance(one, type)]
    structs = [one for one in found if issubclass(one, msgspec.Struct)]
    return tuple(field.encode_name for one in structs for field in msgspec.structs.fields(one))


def _at(kind: Any, place: str) -> list[Any]:
    found = list(_members(kind))
    for step in _STEP.findall(place):
        found = [member for one in found for inner in _inside(one, step) for member in inner]
    return found


def _members(kind: Any) -> Iterator[Any]:
    """The type without ``Annotated``; of a union, each that may stand there."""
    while hasattr(kind, "__metadata__"):
        kind = get_args(kind)[0]
    if get_origin(kind) in (UnionType, Union):
        for one in get_args(kind):
            yield from _members(one)
    else:
        yield kind


def _inside(kind: Any, step: str) -> Iterator[Iterator[Any]]:
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        for field in msgspec.structs.fields(kind):
            if field.encode_name == step:
                yield _members(field.type)
        return
    origin, inner = get_origin(kind), get_args(kind)
    if not isinstance(origin, type) or not inner:
        return
    if issubclass(origin, Mapping):
        yield _members(inner[1])
    elif origin in (list, tuple):
        yield from (_members(one) for one in inner if one is not Ellipsis)
