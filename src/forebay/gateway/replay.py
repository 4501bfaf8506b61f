"""Kept answers, for requests that are equal in every byte that counts.

A request whose headers, body and sender are those of one that was just answered from the answer
tier has the same principal, question, rule and key. What is left to do for it is asked anew each
time: whether the answer may be served now, what it costs, and the ids it is told under. All else,
and whatever is not so, goes the long way.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from forebay.kernel.context import Principal
from forebay.pipeline.recollection import Recollection

HeadKey = tuple[str, tuple[tuple[bytes, bytes], ...]]
Header = tuple[bytes, bytes]
_ANY = (b"x-request-id", b"traceparent")
"""Headers that name a request and change nothing about its answer."""
_ENTRY_BYTES = 2048


class Template:
    """Bytes with places for what differs from one telling to the next."""

    __slots__ = ("_places", "_texts", "size")

    def __init__(self, data: bytes, marks: Sequence[bytes]) -> None:
        """``marks`` stand in ``data`` where the values, in the same order, will."""
        self._texts: list[bytes] = []
        self._places: list[int] = []
        self.size = len(data)
        at = 0
        while found := _first(data, marks, at):
            start, mark = found
            self._texts.append(data[at:start])
            self._places.append(mark)
            at = start + len(marks[mark])
        self._texts.append(data[at:])

    def filled(self, values: Sequence[bytes]) -> bytes:
        """The bytes with ``values`` in place of the marks."""
        parts = [self._texts[0]]
        for text, place in zip(self._texts[1:], self._places, strict=True):
            parts.append(values[place])
            parts.append(text)
        return b"".join(parts)


def _first(data: bytes, marks: Sequence[bytes], at: int) -> tuple[int, int] | None:
    found = [(data.find(mark, at), number) for number, mark in enumerate(marks)]
    return min((one for one in found if one[0] >= 0), default=None)


class Telling(msgspec.Struct, frozen=True):
    """How an answer is told: body, headers, and what a report says of it.

    ``body`` has marks for the answer's id, its time and the request's id.
    """

    body: Template
    headers: tuple[Header, ...]
    kb: str
    model: str
    prompt_tokens: int
    streamed: bool


class Replay(msgspec.Struct, frozen=True):
    """A request that was answered from memory, and what it may be answered with again.

    ``valid_for`` are the tables its principal came from, by identity.
    """

    valid_for: tuple[object, ...]
    principal: Principal
    address: str
    recollection: Recollection
    telling: Telling


def head_of(scope: Mapping[str, Any]) -> HeadKey:
    """All of a request but its body: who sends it, and every header that may count."""
    client = scope.get("client")
    headers = tuple([one for one in scope["headers"] if one[0] not in _ANY])
    return client[0] if client else "", headers


class Replays:
    """A bounded memory of them, the longest unused going first."""

    def __init__(self, max_bytes: int, tables: Callable[[], tuple[object, ...]]) -> None:
        self._max_bytes = max_bytes
        self._tables = tables
        self._entries: OrderedDict[tuple[HeadKey, bytes], Replay] = OrderedDict()
        self._newest: Replay | None = None
        self._bytes = 0
        self.told = 0

    def find(self, head: HeadKey, message: Mapping[str, Any] | None) -> Replay | None:
        """What this very request was answered with, if its sender still is who he was.

        ``message`` is the first of its body; None, or with more to come: nobody can tell yet.
        """
        if message is None or message.get("more_body", False):
            return None
        body = message.get("body", b"")
        key = head, body
        found = self._entries.get(key)
        if found is None:
            return None
        for held, now in zip(found.valid_for, self._tables(), strict=True):
            if held is not now:
                self.forget(head, body)
                return None
        if found is not self._newest:
            self._entries.move_to_end(key)
            self._newest = found
        return found

    def keep(self, head: HeadKey, body: bytes, replay: Replay) -> None:
        """Remember an answer to this very request."""
        self.forget(head, body)
        size = _size(head, body, replay)
        if size > self._max_bytes // 4:
            return
        self._entries[head, body] = self._newest = replay
        self._bytes += size
        while self._bytes > self._max_bytes:
            (old_head, old_body), old = self._entries.popitem(last=False)
            self._bytes -= _size(old_head, old_body, old)

    def forget(self, head: HeadKey, body: bytes) -> None:
        """Remember it no more."""
        old = self._entries.pop((head, body), None)
        if old is not None:
            self._bytes -= _size(head, body, old)

    def clear(self) -> None:
        """Remember nothing."""
        self._entries.clear()
        self._newest = None
        self._bytes = 0

    def tables(self) -> tuple[object, ...]:
        """What principals come from, as it is now."""
        return self._tables()

    def statistics(self) -> dict[str, int]:
        """Requests remembered, their bytes, and answers told from here."""
        return {"entries": len(self._entries), "bytes": self._bytes, "told": self.told}


def _size(head: HeadKey, body: bytes, replay: Replay) -> int:
    headers = sum(len(name) + len(value) + 100 for name, value in head[1])
    return _ENTRY_BYTES + headers + len(body) + 2 * replay.telling.body.size
