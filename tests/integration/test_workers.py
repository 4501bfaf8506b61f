"""``forebay serve --workers 2``: two processes, one store, one port."""

from __future__ import annotations

import http.client
import json
import re
import select
import signal
import socket
import time
from collections.abc import Iterator
from statistics import median
from typing import Any

import psutil
import pytest

from forebay.gateway.settings import ServerSettings
from tests.integration.support import LEXICAL, Served, descendants, served, until

SEEN_WITHIN_S = 0.5
"""The promise: each process sees a version this long after its acknowledgement at the latest."""
NOISE_S = 5.0
"""What a busy machine may add to one of them; the median keeps the promise without it."""
CHANGES = 10
# A connection must outlive the finding of the others.
PATIENT = f"{LEXICAL}\n[server.connections]\nkeep_alive_s = 300\n"
SEARCH = b'{"kb": "kb", "query": "first"}'


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

    def ask(self) -> socket.socket:
        """Send a question; its socket has something to read when it is answered."""
        self._connection.request("GET", "/readyz")
        return self._connection.sock

    def answered(self) -> bool:
        """Read the answer to that; who accepted this is waited for longer from now on."""
        answer = self._connection.getresponse()
        answer.read()
        self._connection.sock.settimeout(60)
        return answer.status == 200

    def close(self) -> None:
        """Leave."""
        self._connection.close()

    def __call__(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        text = body if isinstance(body, str) or body is None else json.dumps(body)
        status, content = self._answer(method, path, text.encode() if text is not None else None)
        return status, json.loads(content)

    def figure(self, name: str) -> float:
        """One line of the metrics page."""
        status, content = self._answer("GET", "/metrics")
        assert status == 200
        found = re.search(rf"^{re.escape(name)} (\S+)$", content.decode(), re.MULTILINE)
        return float(found[1]) if found else 0.0

    def begin(self) -> None:
        """A search without the last character of its body."""
        self._connection.putrequest("POST", "/v1/search")
        self._connection.putheader("content-length", str(len(SEARCH)))
        self._connection.endheaders(SEARCH[:-1])

    def end(self) -> int:
        """That character, and the status of the answer."""
        self._connection.send(SEARCH[-1:])
        return self._connection.getresponse().status

    def _answer(self, method: str, path: str, data: bytes | None = None) -> tuple[int, bytes]:
        self._connection.request(method, path, data)
        answer = self._connection.getresponse()
        return answer.status, answer.read()

    def found(self, query: str) -> set[str]:
        status, found = self("POST", "/v1/search", {"kb": "kb", "query": query})
        return {hit["document_id"] for hit in found["hits"]} if status == 200 else set()


def line_to(server: Served, others: list[psutil.Process]) -> Line:
    """A connection to the one process that is not among ``others``, once it serves."""

    def connected() -> Line | None:
        for other in others:
            other.suspend()
        try:
            # The system chooses who is to accept each of them, also among those that cannot.
            lines = [Line(server.port) for _ in range(8)]
            asked = {line.ask(): line for line in lines}
            answered, _, _ = select.select(list(asked), [], [], 2.0)
            found = next((asked[one] for one in answered if asked[one].answered()), None)
        finally:
            for other in others:
                other.resume()
        for line in lines:
            if line is not found:
                line.close()
        return found

    return until(connected, within_s=60, every_s=0.2)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server and one worker that serves."""
    folder = tmp_path_factory.mktemp("workers")
    with served(folder, PATIENT, "--workers", "2", apart=True) as running:
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


KEYS = f"""
[[tenants]]
name = "acme"
knowledge = "*"
[[tenants.keys]]
hash = "sha256:{"0" * 64}"
"""
SEARCHES = 'forebay_tenant_requests_total{outcome="ok",tenant="default"}'


def test_each_answers_with_the_figures_of_both(server: Served) -> None:
    parent = psutil.Process(server.process.pid)
    to_parent, to_worker = line_to(server, workers(server)), line_to(server, [parent])
    before = to_parent.figure(SEARCHES)
    assert to_worker.figure(SEARCHES) == before > 0
    for line in (to_parent, to_worker, to_worker):
        assert line.found("first") == {"first.md"}
    assert to_parent.figure(SEARCHES) == to_worker.figure(SEARCHES) == before + 3
    limits = {line.figure("forebay_requests_in_flight_limit") for line in (to_parent, to_worker)}
    assert limits == {2 * ServerSettings().max_in_flight}
    [worker] = workers(server)
    worker.suspend()
    try:
        began = time.monotonic()
        assert to_parent.figure("forebay_metrics_missing_processes") == 1
        assert time.monotonic() - began < 2.0 + NOISE_S
        assert to_parent.figure(SEARCHES) == before + 3
    finally:
        worker.resume()
    until(lambda: to_parent.figure("forebay_metrics_missing_processes") == 0, within_s=60)
    worker.kill()
    until(lambda: [each for each in workers(server) if each.pid != worker.pid], within_s=60)
    assert line_to(server, [parent]).figure(SEARCHES) >= before + 3


def test_a_killed_worker_is_replaced(server: Served) -> None:
    parent = psutil.Process(server.process.pid)
    [worker] = workers(server)
    worker.kill()
    assert server.ask.found("kb", "first") == {"first.md"}
    until(lambda: [each for each in workers(server) if each.pid != worker.pid], within_s=60)
    assert line_to(server, [parent]).found("first") == {"first.md"}
    assert server.ask("GET", "/readyz").status == 200


def test_all_drain_together_and_nothing_is_cut(server: Served) -> None:
    parent, [worker] = psutil.Process(server.process.pid), workers(server)
    lines = line_to(server, [worker]), line_to(server, [parent])
    for line in lines:
        line.begin()
    server.process.send_signal(signal.SIGTERM)
    until(lambda: not server.ask.ready())
    # Terminals and service managers tell everybody; told twice, a worker would end at once.
    worker.send_signal(signal.SIGTERM)
    assert lines[0].end() == 200
    # The parent is idle now, and waits for whom the worker still answers.
    time.sleep(0.5)
    assert lines[1].end() == 200
    assert server.process.wait(45) == 0
    server.restart()
    until(lambda: workers(server))


def test_reloaded_keys_are_in_force_in_both(server: Served) -> None:
    parent = psutil.Process(server.process.pid)
    lines = line_to(server, workers(server)), line_to(server, [parent])
    assert [line("GET", "/v1/models")[0] for line in lines] == [200, 200]
    server.configure(PATIENT + KEYS)
    try:
        server.process.send_signal(signal.SIGHUP)
        until(lambda: [line("GET", "/v1/models")[0] for line in lines] == [401, 401])
    finally:
        server.configure(PATIENT)  # for the next start: a running server keeps its last key


def test_the_workers_end_with_their_parent_and_free_the_port(server: Served) -> None:
    everyone = descendants(server.process.pid)
    assert len(workers(server)) == 1
    server.process.send_signal(signal.SIGKILL)
    server.process.wait()
    _, alive = psutil.wait_procs(everyone, timeout=30)
    assert not alive, [each.cmdline() for each in alive]
    server.restart()
    assert server.ask.found("kb", "first") == {"first.md"}
