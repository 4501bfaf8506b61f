"""Two replicas for one answer until the first token; then one, and the other is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import TypeVar

from forebay.kernel.context import HedgeOutcome, Hedging

T = TypeVar("T")
Events = AsyncGenerator[T, None]


async def hedged(
    hedging: Hedging | None, first: Events[T], another: Callable[[int], Events[T]]
) -> Events[T]:
    """``first``, or ``another`` replica's events if those begin before it.

    Raises what ``first`` raised when both fail before they said anything.
    """
    after_s = hedging.after_s() if hedging is not None else None
    events, said = first, None
    if hedging is not None and after_s is not None:
        events, said = await _race(hedging, first, another, after_s)
    async with aclosing(events):
        if isinstance(said, Exception):
            raise said
        if said is not None:
            yield said
        async for event in events:
            yield event


async def _race(
    hedging: Hedging, first: Events[T], another: Callable[[int], Events[T]], after_s: float
) -> tuple[Events[T], T | Exception]:
    """Who goes on, and its first event, or what kept it from one."""
    goes_on: Events[T] | None = None
    second: Events[T] | None = None
    try:
        async with asyncio.TaskGroup() as group:
            one = group.create_task(_begin(first))
            await asyncio.wait({one}, timeout=after_s)
            number = None if one.done() else hedging.begin()
            if number is None:
                said = await one
                goes_on = first
                return first, said
            outcome: HedgeOutcome = "lost"
            try:
                second = another(number)
                two = group.create_task(_begin(second))
                outcome = await _decided(one, two)
            finally:
                hedging.ended(number, outcome)
            if outcome in ("won", "alone"):
                one.cancel()
                said, goes_on = two.result(), second
            else:
                two.cancel()
                said, goes_on = one.result(), first
    finally:
        for events in (first, second):
            if events is not None and events is not goes_on:
                await events.aclose()
    return goes_on, said


async def _decided(
    one: asyncio.Task[T | Exception], two: asyncio.Task[T | Exception]
) -> HedgeOutcome:
    """Bounded by the time-outs of the attempts themselves."""
    await asyncio.wait({one, two}, return_when=asyncio.FIRST_COMPLETED)
    if one.done():
        if not isinstance(one.result(), Exception):
            return "failed" if two.done() and isinstance(two.result(), Exception) else "lost"
        await asyncio.wait({two})
        return "failed" if isinstance(two.result(), Exception) else "alone"
    if not isinstance(two.result(), Exception):
        return "won"
    await asyncio.wait({one})
    return "failed"


async def _begin(events: Events[T]) -> T | Exception:
    try:
        return await anext(events)
    except Exception as error:
        # Kept for whoever waits: raised here it would end the race for the other one, too.
        return error
