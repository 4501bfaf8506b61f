"""Reads the JSON of a model that was asked for JSON, whatever it says around it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")
MAX_CHARACTERS = 100_000
_THOUGHT = re.compile(r"<think>.*?(?:</think>|\Z)", re.DOTALL)
_MAX_STARTS = 50


class MalformedReply(ValueError):
    """A model's reply holds nothing of the form that was asked for."""


def read_reply(text: str, kind: type[T]) -> T:
    """The first JSON object in a reply that is a ``kind``; ``MalformedReply`` says what is wrong.

    Prose and fences around it are passed over, and so is what a model thinks aloud.
    """
    wrong = "there is no JSON object in it"
    for value in _objects(_THOUGHT.sub("", text[:MAX_CHARACTERS])):
        try:
            return msgspec.convert(value, kind, strict=False)
        except (msgspec.ValidationError, OverflowError, RecursionError) as error:
            wrong = str(error)
    raise MalformedReply(f"the judge's reply cannot be read: {wrong}")


def _objects(text: str) -> Iterator[Any]:
    decoder = json.JSONDecoder()
    at = text.find("{")
    for _ in range(_MAX_STARTS):
        if at < 0:
            return
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            end = at + 1
        else:
            yield value
        at = text.find("{", end)
