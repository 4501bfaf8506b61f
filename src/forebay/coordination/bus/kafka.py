"""Change events in one partition of a Kafka topic (extra ``kafka``).

One partition: all events are in one order, and there are few of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from forebay.coordination.bus.following import encode_event, following
from forebay.kernel.caching import ChangeEvent, Delivery
from forebay.kernel.errors import ConfigError, Unavailable

T = TypeVar("T")
READ_S = 0.5
CALL_S = 3.0
_PARTITION = 0


class KafkaBus:
    """See ``ChangeBus``; positions are offsets of the next event."""

    def __init__(self, servers: str, prefix: str = "forebay") -> None:
        self._servers = servers
        self._topic = f"{prefix}-events"
        self._threads = ThreadPoolExecutor(max_workers=4, thread_name_prefix="kafka")
        self._producer: Any = None
        self._ready = False
        self._opening = asyncio.Lock()

    async def publish(self, event: ChangeEvent) -> None:
        """See ``ChangeBus``."""
        await self._topic_made()
        failures: list[Any] = []
        data, key = encode_event(event), event.kb.encode()

        def work() -> int:
            self._producer.produce(
                self._topic,
                value=data,
                key=key,
                partition=_PARTITION,
                on_delivery=lambda error, _: failures.append(error) if error else None,
            )
            left: int = self._producer.flush(CALL_S)
            return left

        if await self._run(work) or failures:
            raise _lost()

    def subscribe(self, after: str = "") -> AsyncGenerator[Delivery, None]:
        """See ``ChangeBus``."""
        return following(self._reader, after)

    async def _reader(self, after: str) -> _PartitionReader:
        await self._topic_made()
        return await self._run(lambda: _PartitionReader(self, self._servers, self._topic, after))

    async def _topic_made(self) -> None:
        async with self._opening:
            if not self._ready:
                await self._run(self._make_topic)
                self._ready = True

    def _make_topic(self) -> None:
        from confluent_kafka import KafkaError, KafkaException, Producer
        from confluent_kafka.admin import AdminClient
        from confluent_kafka.cimpl import NewTopic

        if self._producer is None:
            settings = {
                **_settings(self._servers),
                "enable.idempotence": True,
                "message.timeout.ms": int(CALL_S * 1000),
            }
            self._producer = Producer(settings)
        admin = AdminClient(_settings(self._servers))
        # Brokers that make topics by themselves do so when asked for one.
        found = admin.list_topics(self._topic, timeout=CALL_S).topics.get(self._topic)
        if found is not None and found.error is None:
            return
        made = admin.create_topics([NewTopic(self._topic, num_partitions=1)])
        try:
            made[self._topic].result(CALL_S)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise

    async def run(self, work: Callable[[], T]) -> T:
        """Work that blocks, in a thread of this bus."""
        return await self._run(work)

    async def _run(self, work: Callable[[], T]) -> T:
        outages = _outages()
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        except outages as error:
            raise _lost() from error

    async def close(self) -> None:
        """See ``ChangeBus``."""
        await asyncio.to_thread(self._threads.shutdown, wait=True, cancel_futures=True)


class _PartitionReader:
    """See ``Reader``; made and used in the threads of its bus."""

    def __init__(self, bus: KafkaBus, servers: str, topic: str, after: str) -> None:
        from confluent_kafka import Consumer, TopicPartition

        self._bus = bus
        self._consumer = Consumer(
            {
                **_settings(servers),
                "group.id": "forebay",
                "enable.auto.commit": False,
                "enable.partition.eof": False,
                "auto.offset.reset": "error",
            }
        )
        try:
            place = TopicPartition(topic, _PARTITION)
            low, high = self._consumer.get_watermark_offsets(place, timeout=CALL_S)
            offset, self.gap = _place(after, low, high)
            self._consumer.assign([TopicPartition(topic, _PARTITION, offset)])
        except BaseException:
            self._consumer.close()
            raise
        self.position = str(offset)

    async def read(self) -> Sequence[tuple[str, bytes]]:
        """See ``Reader``."""
        found = await self._bus.run(self._poll)
        self.position = found[-1][0] if found else self.position
        return found

    def _poll(self) -> list[tuple[str, bytes]]:
        from confluent_kafka import KafkaException

        found = []
        for message in self._consumer.consume(256, timeout=READ_S):
            if message.error() is not None:
                raise KafkaException(message.error())
            found.append((str((message.offset() or 0) + 1), message.value() or b""))
        return found

    async def close(self) -> None:
        """See ``Reader``."""
        await asyncio.to_thread(self._consumer.close)


def _place(after: str, low: int, high: int) -> tuple[int, bool]:
    """Where to read on, and whether something before that is lost."""
    if not after:
        return high, False
    offset = int(after)
    if offset > high:
        return low, True
    return max(offset, low), offset < low


def _settings(servers: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": servers,
        "socket.timeout.ms": int(CALL_S * 1000),
        "log_level": 0,
    }


def _outages() -> tuple[type[BaseException], ...]:
    try:
        from confluent_kafka import KafkaException
    except ImportError as error:
        raise ConfigError(
            'coordination.bus = "kafka" needs the extra kafka: pip install "forebay[kafka]".',
            param="coordination.bus",
        ) from error
    return (KafkaException, BufferError, TimeoutError)


def _lost() -> Unavailable:
    return Unavailable("Kafka does not carry change events at present.")
