"""Handling of streamed stages: whoever stops reading frees what the stream holds."""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import TracebackType
from typing import Generic, TypeVar

T = TypeVar("T")


class _Closing(Generic[T]):
    """No generator itself: the loop keeps account of each of those, and a request has many."""

    __slots__ = ("_events",)

    def __init__(self, events: AsyncIterator[T]) -> None:
        self._events = events

    async def __aenter__(self) -> AsyncIterator[T]:
        return self._events

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        close = getattr(self._events, "aclose", None)
        if close is not None:
            await close()


def closing(events: AsyncIterator[T]) -> _Closing[T]:
    """Close an iterator's generator at the end of the block, so that it frees what it holds."""
    return _Closing(events)
