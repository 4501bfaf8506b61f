"""Events over NATS and Kafka in a whole server: quick while the bus is well, always true."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.contract.test_change_bus import Nats
from tests.integration.support import Served, until
from tests.integration.test_leases import change_and_look, several, sharing
from tests.integration.test_shared_quotas import keeper
from tests.integration.test_workers import Line

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def nats(tmp_path: Path) -> Iterator[Nats]:
    server = Nats(tmp_path / "nats")
    try:
        yield server
    finally:
        os.kill(server.process.pid, signal.SIGCONT)
        server.stop()


def well(server: Served, lines: list[Line]) -> None:
    """Changes are acknowledged and seen everywhere at once."""
    change_and_look(server, lines, rounds=3)
    assert server.ask("GET", "/healthz", timeout_s=5).status == 200


def test_a_nats_that_freezes_dies_and_comes_back_costs_no_truth(tmp_path: Path, nats: Nats) -> None:
    with keeper() as redis:
        bus = f'bus = "nats"\nbus_url = "{nats.url}"\n'
        with several(tmp_path, sharing(redis) + bus) as (server, lines):
            well(server, lines)
            os.kill(nats.process.pid, signal.SIGSTOP)
            well(server, lines)
            os.kill(nats.process.pid, signal.SIGCONT)
            well(server, lines)
            nats.stop()
            well(server, lines)
            nats.start()
            well(server, lines)
            # Nobody is left behind: what every process answers is what the record says.
            until(lambda: server.ask("GET", "/readyz").json["status"] == "ready")
            version = server.ask.version("kb")
            until(lambda: all(line.found("first") == {"first.md"} for line in lines))
            assert server.ask.version("kb") == version


def test_a_kafka_that_goes_away_costs_no_truth(tmp_path: Path) -> None:
    cluster = Producer({"bootstrap.servers": "none", "test.mock.num.brokers": 1, "log_level": 0})
    [broker] = cluster.list_topics(timeout=10).brokers.values()
    with keeper() as redis:
        bus = f'bus = "kafka"\nbus_url = "{broker.host}:{broker.port}"\n'
        with several(tmp_path, sharing(redis) + bus) as (server, lines):
            well(server, lines)
            del cluster, broker  # the mock brokers end with their producer
            began = time.monotonic()
            well(server, lines)
            assert time.monotonic() - began < 60
