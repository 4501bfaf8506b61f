"""The cheap histogram says what the library's says."""

from __future__ import annotations

import random

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.exposition import generate_latest

from forebay.telemetry.times import Times

BOUNDS = (0.005, 0.1, 1.0, 8.0)


def said(registry: CollectorRegistry) -> list[str]:
    """Its lines, but for when it was made, which only the library's tells."""
    lines = generate_latest(registry).decode().splitlines()
    return [line for line in lines if "_created" not in line]


def test_it_reads_like_the_library_s() -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    times = Times("forebay_some_seconds", "Some.", BOUNDS)
    ours.register(times)
    usual = Histogram("forebay_some_seconds", "Some.", buckets=BOUNDS, registry=theirs)
    assert said(ours) == said(theirs)
    chance = random.Random(3)
    for _ in range(500):
        seconds = chance.choice([*BOUNDS, chance.expovariate(1.0), 0.0, 100.0])
        times.observe(seconds)
        usual.observe(seconds)
    assert said(ours) == said(theirs)
