"""Questions that are answered twice: without vectors of sentences, and with them."""

from __future__ import annotations

import argparse
import asyncio
import pickle
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Protocol

import msgspec


class Answer(Protocol):
    """Answers one item from what is known."""

    def __call__(self, item: Any, known: Any, *, by_sentences: bool) -> Any: ...


class Twice(msgspec.Struct, frozen=True):
    """What was asked and what came of it; whether constants are wanted."""

    items: list[Any]
    known: Any
    before: list[Any]
    after: list[Any]
    fit: bool


def ask_twice(
    description: str | None,
    gathering: Callable[[Path, Path], Coroutine[Any, Any, tuple[list[Any], Any]]],
    answer: Answer,
) -> Twice:
    """Read the command line, gather or read what is kept, and ask everything both ways."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "forebay-bench")
    parser.add_argument("--fit", action="store_true")
    parser.add_argument("--keep", type=Path)
    chosen = parser.parse_args()
    if chosen.keep is not None and chosen.keep.exists():
        items, known = pickle.loads(chosen.keep.read_bytes())
    else:
        items, known = asyncio.run(gathering(chosen.data, chosen.cache))
        if chosen.keep is not None:
            chosen.keep.write_bytes(pickle.dumps((items, known)))
    for item in items:  # each passage is analysed once, outside of what is timed
        answer(item, known, by_sentences=False)
    before = [answer(item, known, by_sentences=False) for item in items]
    after = [answer(item, known, by_sentences=True) for item in items]
    return Twice(items, known, before, after, chosen.fit)
