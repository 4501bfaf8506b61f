"""``forebay serve --workers 2``: two processes, one store, one port."""

from __future__ import annotations

import http.client
import json
import signal
import time
from collections.abc import Iterator
from statistics import median
from typing import Any

import psutil
import pytest

from tests.integration.support import LEXICAL, Served, descendants, served, until

SEEN_WITHIN_S = 0.5
"""The promise: each process sees a version this long after its acknowledgement at the latest."""
NOISE_S = 1.5
"""What a busy machine may add to one of them; the median keeps the promise without it."""
CHANGES = 10


def workers(server: Served) -> list[psutil.Process]:
    """The reader processes that run now."""
    return [child for child in descendants(server.process.pid) if _is_worker(child)]


def _is_worker(process: psutil.Process) -> bool:
    try:
        return "forebay.app.worker" in process.cmdline()
    except psutil.Error:
        return False


class Line:
    """A connection that stays with the process that accepted it."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)

    def __call__(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        text = body if isinstance(body, str) or body is None else json.dumps(body)
        data = text.encode() if text is not None else None
        self._connection.request(method, path, data)
        answer = self._connection.getresponse()
        content = answer.read()
        return answer.status, json.loads(content)

    def found(self, query: str) -> set[str]:
        status, found = self("POST", "/v1/search", {"kb": "kb", "query": query})
        return {hit["document_id"] for hit in found["hits"]} if status == 200 else set()


def line_to(server: Served, others: list[psutil.Process]) -> Line:
    """A connection to the one process that is not among ``others``, once it serves."""

    def connected() -> Line | None:
        for other in others:
            other.suspend()
        try:
            line = Line(server.port)
            return line if line("GET", "/readyz")[0] == 200 else None
        except TimeoutError:  # it does not accept yet; it may even need the others for that
            return None
        finally:
            for other in others:
                other.resume()

    return until(connected, within_s=60, every_s=0.2)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server and one worker that serves."""
    with served(tmp_path_factory.mktemp("workers"), LEXICAL, "--workers", "2") as running:
        running.ask.put("kb", "first.md", "# First\n\nfirst\n")
        until(lambda: workers(running))
        line_to(running, [psutil.Process(running.process.pid)])
        yield running


def seen(line: Line, word: str, documents: set[str]) -> float:
    """How long it took from now until a search through ``line`` finds just ``documents``."""
    began = time.monotonic()
    until(lambda: line.found(word) == documents, every_s=0.005)
    return time.monotonic() - began


def test_both_serve_and_each_sees_every_version_in_time(server: Served) -> None:
    lines = line_to(server, workers(server)), line_to(server, [psutil.Process(server.process.pid)])
    took: list[float] = []
    for number in range(CHANGES):
        to_change, to_look = lines[number % 2], lines[(number + 1) % 2]
        path, word = f"/v1/kb/kb/documents/{number}.md", f"word{number}"
        status, answer = to_change("PUT", path, f"# {word}\n")
        assert (status, answer["outcome"]) == (200, "indexed")
        took.append(seen(to_look, word, {f"{number}.md"}))
        status, answer = to_change("DELETE", path)
        assert (status, answer["outcome"]) == (200, "removed")
        took.append(seen(to_look, word, set()))
    assert median(took) < SEEN_WITHIN_S, took
    assert max(took) < SEEN_WITHIN_S + NOISE_S, took


def test_a_killed_worker_is_replaced(server: Served) -> None:
    parent = psutil.Process(server.process.pid)
    [worker] = workers(server)
    worker.kill()
    assert server.ask.found("kb", "first") == {"first.md"}
    until(lambda: [each for each in workers(server) if each.pid != worker.pid], within_s=30)
    assert line_to(server, [parent]).found("first") == {"first.md"}
    assert server.ask("GET", "/readyz").status == 200


def test_the_workers_end_with_their_parent_and_free_the_port(server: Served) -> None:
    everyone = descendants(server.process.pid)
    assert len(workers(server)) == 1
    server.process.send_signal(signal.SIGKILL)
    server.process.wait()
    _, alive = psutil.wait_procs(everyone, timeout=15)
    assert not alive, [each.cmdline() for each in alive]
    server.restart()
    assert server.ask.found("kb", "first") == {"first.md"}
