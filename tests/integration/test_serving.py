"""A served store from outside: readiness, changes, removals, races, signals, a full disk."""

from __future__ import annotations

import io
import os
import random
import signal
import socket
import subprocess
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from statistics import median

import pytest

from forebay.gateway.identity import hash_key
from tests.integration.support import LEXICAL, Client, Reply, Served, served, until

BUSY_UPKEEP = LEXICAL + "[store]\nmaintenance_s = 0.3\n"
WORDS = "valve rotor stator gasket flange bearing shaft nozzle sluice penstock".split()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Without an embedding model, so every version comes from a change."""
    with served(tmp_path_factory.mktemp("lexical"), BUSY_UPKEEP, apart=True) as running:
        yield running


@pytest.fixture(scope="module")
def meaning(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """With the built-in embedding model."""
    with served(tmp_path_factory.mktemp("meaning"), "[store]\nmaintenance_s = 0.5\n") as running:
        yield running


def in_threads(work: list[Callable[[], Reply]], threads: int) -> list[Reply]:
    with ThreadPoolExecutor(threads) as pool:
        return [future.result() for future in [pool.submit(each) for each in work]]


# --- readiness -----------------------------------------------------------------------------------


def test_ready_comes_once_and_only_when_everything_is_found(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    for number in range(200):
        text = f"# Note {number}\n\n" + f"The {WORDS[number % 10]} number{number}. " * 20
        (notes / f"{number:03}.md").write_text(text)
    config = LEXICAL + f'[knowledge.notes]\npaths = ["{notes}"]\n'
    running = Served(tmp_path, config)
    try:
        seen: list[str] = []

        def look() -> bool:
            assert running.process.poll() is None, running.log()
            try:
                reply = running.ask("GET", "/readyz")
            except OSError:
                return False
            assert running.ask("GET", "/healthz").status == 200
            if reply.json["status"] not in seen:
                seen.append(reply.json["status"])
            if reply.status == 503:
                assert reply.json["reasons"] and reply.headers["retry-after"] == "1"
            return reply.status == 200

        until(look, within_s=60, every_s=0.005)
        assert running.ask.found("notes", "number199", 1) == {"notes/199.md"}
        assert running.ask("GET", "/v1/kb/notes").json["documents"] == 200
        assert seen == ["starting", "ready"]
    finally:
        assert running.stop() == 0


# --- changes -------------------------------------------------------------------------------------


def test_a_put_is_found_by_words_at_once_and_by_meaning_later(meaning: Served) -> None:
    ask = meaning.ask
    reply = ask.put("cars", "car.md", "# Fleet\n\nThe company's automobile is parked outside.\n")
    assert reply.status == 200
    assert (reply.json["outcome"], reply.json["embedded"]) == ("indexed", False)
    assert ask.found("cars", "automobile") == {"car.md"}

    def embedded() -> bool:
        return bool(ask("GET", "/v1/kb/cars/documents/car.md").json["embedded"])

    until(embedded)
    assert ask.version("cars") == reply.json["kb_version"] + 1
    until(lambda: ask.found("cars", "公司的汽车停在哪里") == {"car.md"}, within_s=5)


def test_wait_embedded_returns_with_vectors(meaning: Served) -> None:
    reply = meaning.ask.put("cars", "bus.md", "# Bus\n\n班车七点发车。\n", "?wait=embedded")
    assert reply.status == 200 and reply.json["embedded"] is True
    assert meaning.ask("GET", "/v1/kb/cars/documents/bus.md").json["embedded"] is True


def test_a_delete_leaves_nothing(meaning: Served) -> None:
    ask, secret = meaning.ask, "Xylopharamond"
    for number in range(5):
        ask.put("vault", f"other{number}.md", f"# Other {number}\n\n{WORDS[number]} text\n")
    text = f"# Vault\n\nThe pass phrase is {secret}, 暗号是九霄龙吟.\n"
    assert ask.put("vault", "vault.md", text, "?wait=embedded").json["embedded"] is True
    assert ask.found("vault", secret, 1) == {"vault.md"}
    reply = ask.delete("vault", "vault.md")
    assert reply.status == 200 and reply.json["outcome"] == "removed"
    assert "vault.md" not in ask.found("vault", secret)
    assert "vault.md" not in ask.found("vault", "pass phrase of the vault")
    assert ask("GET", "/v1/kb/vault/documents/vault.md").status == 404
    assert ask.delete("vault", "vault.md").status == 404
    listed = ask("GET", "/v1/kb/vault/documents").json["data"]
    assert len(listed) == 5 and all(each["id"] != "vault.md" for each in listed)

    def traces() -> list[Path]:
        needles = (secret.encode(), secret.lower().encode(), "九霄龙吟".encode())
        files = [path for path in meaning.store.rglob("*") if path.is_file()]
        return [path for path in files if any(each in _bytes(path) for each in needles)]

    until(lambda: not traces(), within_s=30, every_s=0.2)
    assert secret not in meaning.log()


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # removed by a merge meanwhile
        return b""


def test_the_same_bytes_at_once_make_one_document(server: Served) -> None:
    text = "# Twin\n\nThe twin gasket.\n"
    replies = in_threads([lambda: server.ask.put("twins", "twin.md", text)] * 8, 8)
    assert [reply.status for reply in replies] == [200] * 8
    assert sorted(reply.json["outcome"] for reply in replies) == ["indexed"] + ["unchanged"] * 7
    info = server.ask("GET", "/v1/kb/twins").json
    assert (info["documents"], info["kb_version"]) == (1, 1)
    assert len(server.ask.search("twins", "gasket")) == 1


def test_concurrent_puts_raise_the_version_by_one_each_commit(server: Served) -> None:
    server.ask.put("many", "first.md", "# First\n\nflange\n")
    before = server.ask.version("many")

    def put(number: int) -> Callable[[], Reply]:
        return lambda: server.ask.put("many", f"{number}.md", f"# {number}\n\nrotor n{number}\n")

    replies = in_threads([put(number) for number in range(40)], 8)
    assert {reply.status for reply in replies} == {200}
    versions = {reply.json["kb_version"] for reply in replies}
    after = server.ask.version("many")
    assert versions == set(range(before + 1, after + 1))
    assert server.ask("GET", "/v1/kb/many").json["documents"] == 41
    assert server.ask.found("many", "n39", 1) == {"39.md"}


def test_a_replaced_document_answers_with_its_new_text_only(server: Served) -> None:
    server.ask.put("edit", "a.md", "# A\n\nOld word marmalade.\n")
    reply = server.ask.put("edit", "a.md", "# A\n\nNew word chutney.\n")
    assert reply.json["outcome"] == "replaced"
    assert server.ask.found("edit", "chutney") == {"a.md"}
    assert server.ask.search("edit", "marmalade") == []


# --- races ---------------------------------------------------------------------------------------


class Race:
    """Documents come and go while searches run; notes what no search may see."""

    def __init__(self, ask: Client, kb: str) -> None:
        self.ask = ask
        self.kb = kb
        self.deleted_at: dict[str, float] = {}
        self.failures: list[str] = []
        self.searches = 0
        self.stop = threading.Event()

    def change(self, seed: int) -> None:
        rng = random.Random(seed)
        living: list[str] = []
        number = 0
        while not self.stop.is_set():
            if len(living) > 12 or (living and rng.random() < 0.4):
                document_id = living.pop(rng.randrange(len(living)))
                reply = self.ask.delete(self.kb, document_id)
                self.deleted_at[document_id] = time.monotonic()
            else:
                document_id = f"{seed}-{number}.md"
                number += 1
                text = f"# {document_id}\n\n" + " ".join(rng.choices(WORDS, k=60)) + "\n"
                reply = self.ask.put(self.kb, document_id, text)
                living.append(document_id)
            self.note(reply, document_id)

    def search(self, seed: int) -> None:
        rng = random.Random(seed)
        while not self.stop.is_set():
            began = time.monotonic()
            body = {"kb": self.kb, "query": " ".join(rng.sample(WORDS, 2)), "top_k": 50}
            reply = self.ask("POST", "/v1/search", body)
            self.searches += 1
            if self.note(reply, "search"):
                for hit in reply.json["hits"]:
                    gone = self.deleted_at.get(hit["document_id"], began)
                    if gone < began:
                        self.failures.append(f"{hit['document_id']} came back after its delete")

    def note(self, reply: Reply, what: str) -> bool:
        if reply.status != 200:
            self.failures.append(f"{what}: {reply.status} {reply.body[:200]!r}")
        return reply.status == 200


def test_searches_race_changes_ingest_and_merges(server: Served) -> None:
    files = server.folder / "bulk"
    files.mkdir()
    for number in range(150):
        (files / f"{number}.md").write_text(f"# Bulk {number}\n\n{WORDS[number % 10]} bulk\n")
    assert server.ask.put("race", "first.md", "# First\n\nvalve\n").status == 200
    race = Race(server.ask, "race")
    work = [lambda: race.change(1), lambda: race.change(2)]
    work += [lambda: race.search(3), lambda: race.search(4)]
    threads = [threading.Thread(target=each) for each in work]
    for thread in threads:
        thread.start()
    try:
        ingested = server.command("ingest", files, "--kb", "race", "--json")
        until(lambda: race.searches > 100 and len(race.deleted_at) > 20, within_s=40)
    finally:
        race.stop.set()
        for thread in threads:
            thread.join()
    assert not race.failures, race.failures[:5]
    assert ingested.status == 0 and ingested.json["summary"]["outcomes"] == {"indexed": 150}
    assert not race.deleted_at.keys() & server.ask.found("race", " ".join(WORDS), 100)


# --- rude input ----------------------------------------------------------------------------------


@pytest.mark.parametrize("letter", ["x", "水"])
def test_a_huge_prompt_is_refused_while_searches_go_on(meaning: Served, letter: str) -> None:
    ask = meaning.ask
    ask.put("cars", "calm.md", "# Calm\n\nThe calm search.\n")
    prompt = letter * (2_000_000 // len(letter.encode()))
    message = {"role": "user", "content": prompt}
    refused: list[Reply] = []

    def send() -> None:
        body = {"model": "forebay/cars", "messages": [message]}
        refused.append(ask("POST", "/v1/chat/completions", body))

    def took() -> float:
        began = time.monotonic()
        assert ask.found("cars", "calm search")
        return time.monotonic() - began

    alone = [took() for _ in range(10)]
    sender = threading.Thread(target=send)
    sender.start()
    beside = [took() for _ in range(10)]
    while sender.is_alive():
        beside.append(took())
    sender.join()
    [reply] = refused
    assert reply.status == 400, reply.body[:200]
    assert reply.json["error"]["code"] == "context_length_exceeded"
    # A frozen interpreter would hold every search for more than a second.
    assert max(beside) < 1.0 + max(alone), (alone, beside)
    assert median(beside) < 0.3 + 2 * median(alone), (alone, beside)


def bomb() -> bytes:
    """A Word document that unpacks to 400 MB."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("[Content_Types].xml", "<Types/>")
        with archive.open("word/document.xml", "w", force_zip64=True) as part:
            for _ in range(400):
                part.write(b" " * 1_000_000)
    return packed.getvalue()


def test_an_upload_beyond_the_bound_is_refused_before_its_bytes(server: Served) -> None:
    with closing(socket.create_connection(("127.0.0.1", server.port), timeout=20)) as upload:
        head = "PUT /v1/kb/safe/documents/huge.txt HTTP/1.1\r\nhost: localhost\r\n"
        upload.sendall(f"{head}content-length: 5000000\r\n\r\n".encode())
        assert upload.recv(65536).startswith(b"HTTP/1.1 413")
    # A client that sends it all the same still gets to read why it was refused.
    keep = {"connection": "keep-alive"}
    reply = server.ask("PUT", "/v1/kb/safe/documents/huge.txt", b"a" * 5_000_000, keep)
    assert reply.status == 413


def test_a_hostile_upload_costs_one_error(server: Served) -> None:
    server.ask.put("safe", "good.md", "# Good\n\nThe good sluice.\n")
    for name, data, status in (
        ("bomb.docx", bomb(), 422),
        ("broken.pdf", b"%PDF-1.7\n" + os.urandom(2000), 422),
        ("picture.md", b"\x89PNG\r\n\x1a\n" + os.urandom(500), 422),
        ("empty.md", b"", 422),
    ):
        reply = server.ask.put("safe", name, data)
        assert reply.status == status, (name, reply)
        assert reply.json["error"]["message"]
        assert "/" not in reply.json["error"]["message"].replace("n/a", "")
    assert server.ask.found("safe", "sluice") == {"good.md"}
    assert server.ask("GET", "/v1/kb/safe").json["documents"] == 1


# --- signals -------------------------------------------------------------------------------------


def tenants(**keys: str) -> str:
    entries = [
        f'[[tenants]]\nname = "{name}"\nknowledge = "*"\n'
        f'[[tenants.keys]]\nhash = "{hash_key(key)}"\nadmin = true\n'
        for name, key in keys.items()
    ]
    return LEXICAL + "\n".join(entries)


def status_of(server: Served, key: str) -> int:
    return server.ask("GET", "/v1/models", None, {"authorization": f"Bearer {key}"}).status


def refused_more_often_than(server: Served, before: int) -> bool:
    return server.log().count("nothing was reloaded") > before


def test_hangup_reloads_keys_and_a_wrong_file_keeps_the_old_ones(tmp_path: Path) -> None:
    with served(tmp_path, tenants(old="first-key")) as server:
        assert (status_of(server, "first-key"), status_of(server, "second-key")) == (200, 401)
        server.configure(tenants(old="first-key", new="second-key"))
        server.process.send_signal(signal.SIGHUP)
        until(lambda: status_of(server, "second-key") == 200)
        server.configure(tenants(new="second-key"))
        server.process.send_signal(signal.SIGHUP)
        until(lambda: status_of(server, "first-key") == 401)
        for wrong in ("not toml", LEXICAL, "[server]\nprot = 1\n"):
            before = server.log().count("nothing was reloaded")
            server.configure(wrong)
            server.process.send_signal(signal.SIGHUP)
            until(partial(refused_more_often_than, server, before))
            assert status_of(server, "second-key") == 200
        assert "second-key" not in server.log()


def test_sigterm_lets_a_running_upload_finish(tmp_path: Path) -> None:
    text = b"# Late\n\nThe late penstock.\n" * 100
    with served(tmp_path) as server, closing(socket.socket()) as upload:
        upload.settimeout(20)
        upload.connect(("127.0.0.1", server.port))
        head = "PUT /v1/kb/late/documents/late.md HTTP/1.1\r\nhost: localhost\r\n"
        head += f"content-length: {len(text)}\r\n\r\n"
        upload.sendall(head.encode() + text[:500])
        until(lambda: server.ask("GET", "/healthz").status == 200)
        server.process.send_signal(signal.SIGTERM)
        until(lambda: "draining" in server.log())

        def refused() -> bool:
            try:
                socket.create_connection(("127.0.0.1", server.port), timeout=2).close()
            except ConnectionRefusedError:
                return True
            return False

        until(refused)
        upload.sendall(text[500:])
        answer = b""
        while piece := upload.recv(65536):
            answer += piece
        assert answer.startswith(b"HTTP/1.1 200"), answer
        assert server.process.wait(20) == 0
        server.restart()
        assert server.ask.found("late", "penstock") == {"late.md"}


# --- a full disk ---------------------------------------------------------------------------------


def fill(server: Served) -> Reply:
    """Upload until a change is refused; return that reply."""
    rng = random.Random(5)
    for number in range(400):
        letters = "".join(rng.choices("abcdefghijklmnopqrstuvwxyz     ", k=40_000))
        reply = server.ask.put("full", f"{number}.txt", letters)
        if reply.status != 200:
            return reply
    raise AssertionError("the store took everything")


def goes_on(server: Served, refused: Reply) -> None:
    """The change was refused honestly, searches go on, and room makes changes possible again."""
    assert refused.status == 507, refused
    assert refused.json["error"]["code"] == "store_full"
    assert server.ask.found("full", "anchor") == {"anchor.md"}
    assert server.ask("GET", "/healthz").status == 200
    documents = server.ask("GET", "/v1/kb/full").json["documents"]
    assert documents > 1
    listed = server.ask("GET", "/v1/kb/full/documents?limit=1000").json["data"]
    assert len(listed) == documents


def makes_room(server: Served, removals: int) -> None:
    """Removals are taken on a full store, and after upkeep changes are again."""
    for number in range(removals):
        assert server.ask.delete("full", f"{number}.txt").status == 200
    # Upkeep comes when it comes on a machine that is busy.
    put = partial(server.ask.put, "full", "new.md", "# New\n\ncapstan\n")
    until(lambda: put().status == 200, within_s=60.0)
    assert server.ask.found("full", "capstan") == {"new.md"}


def test_a_record_at_its_bound_refuses_changes_and_goes_on(tmp_path: Path) -> None:
    config = LEXICAL + "[store.record]\nmax_bytes = 2000000\n"
    with served(tmp_path, config) as server:
        server.ask.put("full", "anchor.md", "# Anchor\n\nThe anchor.\n")
        goes_on(server, fill(server))
        makes_room(server, 6)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 24 MB; needs the right to mount one."""
    place = tmp_path / "disk"
    place.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(place)]
    try:
        mounted = subprocess.run(words, check=False, capture_output=True)
    except OSError:
        pytest.skip("there is no mount command")
    if mounted.returncode:
        pytest.skip("mounting a small file system is not allowed here")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def test_a_full_disk_refuses_changes_and_goes_on(small_disk: Path, tmp_path: Path) -> None:
    (tmp_path / "store").symlink_to(small_disk)
    config = LEXICAL + "[store]\nreserve_bytes = 12000000\nmaintenance_s = 0.5\n"
    with served(tmp_path, config) as server:
        server.ask.put("full", "anchor.md", "# Anchor\n\nThe anchor.\n")
        goes_on(server, fill(server))
        server.process.kill()
        server.process.wait()
        server.restart()
        assert server.ask.found("full", "anchor") == {"anchor.md"}
        makes_room(server, 30)
