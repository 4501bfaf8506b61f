"""What a process does with change events, and what it tells."""

from __future__ import annotations

import asyncio
from typing import Literal

import pytest

from forebay.app.caching import Tiers
from forebay.app.eventing import QUEUE_EVENTS, Events, open_bus, open_events
from forebay.cache.memory import MemorySettings, MemoryTier
from forebay.coordination.bus.memory import MemoryBus
from forebay.coordination.bus.redis_streams import RedisBus
from forebay.coordination.settings import CoordinationSettings
from forebay.kernel.caching import ChangeEvent
from forebay.kernel.clock import SystemClock
from forebay.kernel.errors import ConfigError, Unavailable


class Side:
    """A process with a kept value in two tiers."""

    def __init__(self, bus: MemoryBus) -> None:
        self.memory: dict[str, MemoryTier[bytes]] = {
            name: MemoryTier(MemorySettings(1 << 20), SystemClock())
            for name in ("embedding", "answer")
        }
        self.tiers = Tiers(self.memory, {})
        self.pokes = 0
        self.events = Events(bus, self.tiers, self.poke)
        self.keep()

    def poke(self) -> None:
        self.pokes += 1

    def keep(self) -> None:
        for tier in self.memory.values():
            tier.put(b"k", b"v", 60.0)

    @property
    def kept(self) -> set[str]:
        return {name for name, tier in self.memory.items() if tier.peek(b"k") is not None}


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("kind", "left"),
    [
        ("rules", {"embedding"}),
        ("template", {"embedding"}),
        ("model", {"embedding"}),
        ("purge", set()),
    ],
)
async def test_the_others_forget_and_who_told_them_does_not(kind: str, left: set[str]) -> None:
    bus = MemoryBus()
    one, other = Side(bus), Side(bus)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(side.events.run()) for side in (one, other)]
        await settle()
        one.events.tell(kind)
        await settle()
        for task in tasks:
            task.cancel()
    assert (one.kept, other.kept) == ({"embedding", "answer"}, left)


async def test_changed_documents_have_the_others_look_for_versions() -> None:
    bus = MemoryBus()
    one, other = Side(bus), Side(bus)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(side.events.run()) for side in (one, other)]
        await settle()
        one.events.tell("documents", "k", 3)
        await settle()
        for task in tasks:
            task.cancel()
    assert (one.pokes, other.pokes) == (0, 1)
    assert other.kept == {"embedding", "answer"}


async def test_missed_events_mean_forgetting_everything() -> None:
    bus = MemoryBus(log_events=2)
    side = Side(bus)
    deliveries = side.events
    for _ in range(5):
        await bus.publish(ChangeEvent("rules"))
    subscription = bus.subscribe("1")
    delivery = await anext(subscription)
    assert delivery.gap
    deliveries._hear(delivery)
    await subscription.aclose()
    assert not side.kept
    assert side.pokes == 1
    assert side.events.statistics()["gaps"] == 1


async def test_a_bus_that_is_down_costs_events_and_nothing_else() -> None:
    class Down(MemoryBus):
        async def publish(self, event: object) -> None:
            raise Unavailable("no")

    side = Side(Down())
    async with asyncio.TaskGroup() as group:
        task = group.create_task(side.events.run())
        side.events.tell("rules")
        await settle()
        task.cancel()
    assert side.events.statistics()["lost"] == 1


async def test_events_that_wait_are_bounded() -> None:
    side = Side(MemoryBus())
    for _ in range(QUEUE_EVENTS + 7):
        side.events.tell("rules")
    assert side.events.statistics()["lost"] == 7


async def test_the_carrier_is_the_one_that_was_set() -> None:
    assert isinstance(open_bus(CoordinationSettings()), MemoryBus)
    redis = open_bus(CoordinationSettings(redis_url="redis://127.0.0.1:1"))
    assert isinstance(redis, RedisBus)
    await redis.close()
    for settings in (
        CoordinationSettings(bus="redis"),
        CoordinationSettings(bus="nats"),
        CoordinationSettings(bus="kafka"),
    ):
        with pytest.raises(ConfigError):
            open_bus(settings)


@pytest.mark.parametrize(
    ("bus", "url", "good"),
    [
        ("nats", "nats://127.0.0.1:4222", True),
        ("nats", "nats://user:secret@bus.example:4222", True),
        ("nats", "nats://", False),
        ("nats", "nats://h:notaport", False),
        ("nats", "127.0.0.1:4222", False),
        ("kafka", "a:9092,b:9092", True),
        ("kafka", "a:9092, b:9092", True),
        ("kafka", "kafka://a:9092", False),
        ("kafka", "a", False),
    ],
)
async def test_an_address_that_nothing_can_listen_at_is_told_at_the_start(
    bus: Literal["nats", "kafka"], url: str, *, good: bool
) -> None:
    settings = CoordinationSettings(bus=bus, bus_url=url)
    if good:
        await open_bus(settings).close()
        return
    with pytest.raises(ConfigError, match="bus_url"):
        open_bus(settings)


async def test_a_client_that_is_not_installed_is_told_at_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(ConfigError, match="make setup-buses"):
        open_bus(CoordinationSettings(bus="nats", bus_url="nats://127.0.0.1:4222"))


async def test_it_ends_with_its_block() -> None:
    side = Side(MemoryBus())
    async with open_events(CoordinationSettings(), side.tiers, side.poke) as events:
        events.tell("purge")
        await settle()
        assert events.statistics()["sent"] == 1
