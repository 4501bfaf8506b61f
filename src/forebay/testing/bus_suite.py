"""What every bus of change events keeps to; a test class inherits it, a fixture fills it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from typing import Any

from forebay.kernel.caching import ChangeBus, ChangeEvent, Delivery

WAIT_S = 15.0


def events_of(kb: str, count: int, first: int = 1) -> list[ChangeEvent]:
    """Changes of one kb, in the order of their versions."""
    return [
        ChangeEvent("documents", kb, version, (f"{kb}-{version}", "文档"), "origin")
        for version in range(first, first + count)
    ]


async def take(deliveries: AsyncIterator[Delivery], count: int) -> list[Delivery]:
    """The next deliveries; fails when they do not come."""
    async with asyncio.timeout(WAIT_S):
        return [await anext(deliveries) for _ in range(count)]


async def subscribed(bus: ChangeBus, after: str = "") -> tuple[Any, asyncio.Task[list[Delivery]]]:
    """A subscription that has begun to listen, and the task that waits for its first event."""
    deliveries = bus.subscribe(after)
    first = asyncio.get_running_loop().create_task(take(deliveries, 1))
    # From now on: whoever publishes before the subscription stands is not heard, so say
    # something until it is.
    while not first.done():
        await bus.publish(ChangeEvent("rules", origin="hello"))
        await asyncio.wait((first,), timeout=0.2)
    return deliveries, first


async def heard(deliveries: AsyncIterator[Delivery], wanted: Sequence[ChangeEvent]) -> list[str]:
    """Read until all of ``wanted`` have come in order, past greetings; their positions."""
    positions = []
    for event in wanted:
        while True:
            [delivery] = await take(deliveries, 1)
            assert not delivery.gap
            if delivery.event.origin != "hello":
                break
        assert delivery.event == event
        positions.append(delivery.position)
    return positions


class BusConformance:
    """Give it a fixture ``bus``: a bus that nobody used before."""

    async def test_events_come_whole_and_in_order(self, bus: ChangeBus) -> None:
        deliveries, _ = await subscribed(bus)
        async with aclosing(deliveries):
            sent = events_of("知识库", 50)
            for event in sent:
                await bus.publish(event)
            positions = await heard(deliveries, sent)
            assert len(set(positions)) == len(positions)

    async def test_every_subscriber_hears_everything(self, bus: ChangeBus) -> None:
        subscriptions = [(await subscribed(bus))[0] for _ in range(3)]
        sent = [
            one for pair in zip(events_of("a", 5), events_of("b", 5), strict=True) for one in pair
        ]
        for event in sent:
            await bus.publish(event)
        for deliveries in subscriptions:
            async with aclosing(deliveries):
                await heard(deliveries, sent)

    async def test_a_subscription_goes_on_from_a_position(self, bus: ChangeBus) -> None:
        deliveries, _ = await subscribed(bus)
        sent = events_of("k", 6)
        async with aclosing(deliveries):
            for event in sent[:3]:
                await bus.publish(event)
            positions = await heard(deliveries, sent[:3])
        for event in sent[3:]:
            await bus.publish(event)
        async with aclosing(bus.subscribe(positions[1])) as again:  # type: ignore[type-var]
            await heard(again, sent[2:])

    async def test_who_has_heard_all_hears_only_what_is_new(self, bus: ChangeBus) -> None:
        deliveries, _ = await subscribed(bus)
        [one, two] = events_of("k", 2)
        async with aclosing(deliveries):
            await bus.publish(one)
            [position] = await heard(deliveries, [one])
        async with aclosing(bus.subscribe(position)) as again:  # type: ignore[type-var]
            waiting = asyncio.get_running_loop().create_task(take(again, 1))
            await asyncio.wait((waiting,), timeout=0.1)
            assert not waiting.done()
            await bus.publish(two)
            [delivery] = await waiting
            assert (delivery.event, delivery.gap) == (two, False)
