"""Settings of what several processes or machines keep together."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta


class CoordinationSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where quotas are kept together, and what happens while that place does not answer."""

    redis_url: Annotated[
        str,
        Meta(
            description="Redis or Valkey that keeps the quotas of many machines: redis://, "
            "rediss:// or unix://; empty: the processes of one folder keep them themselves."
        ),
    ] = ""
    redis_prefix: Annotated[
        str, Meta(description="Begins every key in Redis; services with one prefix share quotas.")
    ] = "forebay"
    timeout_ms: Annotated[
        float,
        Meta(
            description="Longest wait of a request for shared quotas; then its process decides "
            "alone.",
            gt=0.0,
            le=10_000.0,
        ),
    ] = 20.0
    lease_ms: Annotated[
        float,
        Meta(
            description="Quotas are leased ahead for about so long; what nobody used goes back "
            "after it.",
            ge=10.0,
            le=60_000.0,
        ),
    ] = 500.0
    local_share: Annotated[
        float,
        Meta(
            description="Part of every limit that a process may use while it decides alone; 0: one "
            "divided by the processes seen lately.",
            ge=0.0,
            le=1.0,
        ),
    ] = 0.0
    version_lease_ms: Annotated[
        float,
        Meta(
            description="A process uses what is shared of a knowledge base for so long after it "
            "last spoke to Redis; a change waits so long for a process that does not answer.",
            ge=100.0,
            le=60_000.0,
        ),
    ] = 1000.0
    max_connections: Annotated[
        int, Meta(description="Calls for shared quotas under way at once.", ge=1, le=64)
    ] = 4
    bus: Annotated[
        Literal["auto", "memory", "redis", "nats", "kafka"],
        Meta(
            description="What carries change events between processes; auto: Redis where redis_url "
            "is set, else they stay in their process."
        ),
    ] = "auto"
    bus_url: Annotated[
        str,
        Meta(description="Where NATS (nats://host:port) or Kafka (host:port, host:port) is."),
    ] = ""
