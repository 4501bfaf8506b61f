"""Keys of chunks and the guard in whole servers: rights, what is gone, every process at once."""

from __future__ import annotations

import http.client
import json
import re
import uuid
from collections.abc import Iterator
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.integration.support import LEXICAL, Client, Served, served, until
from tests.integration.test_workers import Line, line_to, workers

KEYS = """
[[tenants]]
name = "acme"
knowledge = "*"
groups = ["staff", "hr"]

[[tenants.keys]]
name = "admin"
hash = "sha256:{admin}"
admin = true
groups = ["staff", "hr"]

[[tenants.keys]]
name = "staff"
hash = "sha256:{staff}"
groups = ["staff"]
"""
GUARD = re.compile(r'^forebay_guard_total\{result="(\w+)"\} (\S+)$', re.MULTILINE)
BOGUS = 2000


def long(*words: str) -> str:
    """A document of one section for each word, each a chunk of its own."""
    return "\n\n".join(f"# {word}\n\n" + f"{word} and more of it. " * 60 for word in words)


def keys_of(ask: Client, document_id: str) -> list[str]:
    reply = ask("GET", f"/v1/kb/kb/documents/{document_id}?keys=true")
    assert reply.status == 200, reply.body
    found: list[str] = reply.json["chunk_keys"]
    assert "chunk_keys" not in ask("GET", f"/v1/kb/kb/documents/{document_id}").json
    return found


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("keys"), LEXICAL) as running:
        running.ask.put("kb", "other.md", "# Other\n\nother\n")
        yield running


def chunk(server: Served, key: str) -> Any:
    return server.ask("GET", f"/v1/kb/kb/chunks/{key}")


def test_only_changed_chunks_have_new_keys_and_old_ones_stay_readable(server: Served) -> None:
    server.ask.put("kb", "d.md", long("first", "second", "third"), "?tags=static")
    before = keys_of(server.ask, "d.md")
    assert len(before) >= 3 and len(set(before)) == len(before)
    body = chunk(server, before[1]).json
    assert (body["key"], body["state"], body["document_id"]) == (before[1], "living", "d.md")
    assert "second" in body["text"] or "first" in body["text"]
    assert body["labels"] == {"domain": "kb", "tags": ["static"], "priority": "normal"}
    version = server.ask.put("kb", "d.md", long("first", "changed", "third")).json["kb_version"]
    after = keys_of(server.ask, "d.md")
    fresh = [key for key in after if key not in before]
    gone = [key for key in before if key not in after]
    assert fresh and gone and len(fresh) < len(after)
    assert all(key.endswith(f"-v{version}") for key in fresh)
    reply = chunk(server, gone[0])
    assert (reply.status, reply.json["state"], reply.json["successor"]) == (
        200,
        "superseded",
        fresh[0],
    )
    assert reply.headers["link"] == f'</v1/kb/kb/chunks/{fresh[0]}>; rel="successor-version"'
    assert 72 * 3600 - 600 < reply.json["ttl_s"] <= 72 * 3600


def test_what_was_removed_is_gone_at_once_and_says_where_to_look(server: Served) -> None:
    server.ask.put("kb", "e.md", long("removed"))
    [key, *_] = keys_of(server.ask, "e.md")
    server.ask.delete("kb", "e.md")
    reply = chunk(server, key)
    assert (reply.status, reply.json["error"]["code"]) == (410, "key_retired")
    assert reply.headers["link"] == '</v1/kb/kb/documents>; rel="collection"'
    for unknown in ("nonsense", f"doc-{'0' * 32}-chunk-0-v1"):
        assert chunk(server, unknown).status == 404


def test_the_api_description_has_keys(server: Served) -> None:
    paths = server.ask("GET", "/openapi.json").json["paths"]
    assert {"200", "404", "410"} <= paths["/v1/kb/{kb}/chunks/{key}"]["get"]["responses"].keys()
    assert server.ask("GET", "/v1/kb/kb/documents/other.md?keys=perhaps").status == 400


def test_heat_makes_a_chunk_live_longer(server: Served) -> None:
    server.ask.put("kb", "hot.md", "# Sluice\n\nThe sluice opens at noon.\n")
    [key] = keys_of(server.ask, "hot.md")
    cold = chunk(server, key).json
    for _ in range(3):
        assert server.ask.found("kb", "sluice opens at noon") == {"hot.md"}
    hot = chunk(server, key).json
    assert (cold["heat"], hot["heat"]) == (0, 3)
    assert hot["ttl_s"] == 4 * cold["ttl_s"]


def test_bogus_names_do_not_reach_the_record(server: Served) -> None:
    """F2.9: of 100 bogus ids 99.2 are stopped, while documents come in between."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)

    def get(path: str) -> int:
        connection.request("GET", path)
        answer = connection.getresponse()
        answer.read()
        return answer.status

    until(lambda: get(f"/v1/kb/kb/documents/{uuid.uuid4()}") and guard(server)["stopped"] > 0)
    before = guard(server)
    for number in range(BOGUS):
        if number % 100 == 0:
            assert server.ask.put("kb", f"n{number}.md", f"n{number}").status == 200
            assert get(f"/v1/kb/kb/documents/n{number}.md") == 200
        path = f"documents/{uuid.uuid4()}" if number % 2 else f"chunks/{bogus_key()}"
        assert get(f"/v1/kb/kb/{path}") == 404
    counted = {name: value - before[name] for name, value in guard(server).items()}
    assert counted["stopped"] >= 0.992 * BOGUS, counted
    assert counted["read"] <= BOGUS / 100 + 2
    connection.close()


def bogus_key() -> str:
    return f"doc-{uuid.uuid4().hex}-chunk-0-v3"


def guard(server: Served) -> dict[str, float]:
    found = GUARD.findall(server.ask("GET", "/metrics").body.decode())
    return {name: float(value) for name, value in found}


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, list[Line]]]:
    """A server of three processes, and a connection to each."""
    # A kept connection outlives the waiting for the others on a busy machine.
    config = LEXICAL + "[server.connections]\nkeep_alive_s = 300\n"
    with served(tmp_path_factory.mktemp("guarded"), config, "--workers", "3") as running:
        running.ask.put("kb", "first.md", "# First\n\nfirst\n")
        readers = until(lambda: found if len(found := workers(running)) == 2 else None)
        everyone = [psutil.Process(running.process.pid), *readers]
        lines = [line_to(running, [one for one in everyone if one != each]) for each in everyone]
        yield running, lines


def test_what_is_acknowledged_is_there_in_every_process(many: tuple[Served, list[Line]]) -> None:
    _, lines = many
    path = "/v1/kb/kb/documents"

    def stops(line: Line) -> bool:
        line("GET", f"{path}/{uuid.uuid4()}")
        return line.figure('forebay_guard_total{result="stopped"}') > 0

    for line in lines:
        until(partial(stops, line))
    for number in range(30):
        name = f"{path}/at-once-{number}.md"
        for line in lines:
            assert line("GET", name)[0] == 404
        assert lines[number % 3]("PUT", name, f"# Word{number}\n")[0] == 200
        for line in lines:
            status, body = line("GET", f"{name}?keys=true")
            assert (status, body.get("id")) == (200, f"at-once-{number}.md")
            [key] = body["chunk_keys"]
            assert line("GET", f"/v1/kb/kb/chunks/{key}")[0] == 200
        assert lines[(number + 1) % 3]("PUT", name, f"# Other{number}\n")[0] == 200
        for line in lines:
            status, body = line("GET", f"/v1/kb/kb/chunks/{key}")
            assert (status, body["state"]) == (200, "superseded")
            assert line("GET", f"/v1/kb/kb/chunks/{body['successor']}")[0] == 200
        assert lines[(number + 2) % 3]("DELETE", name)[0] == 200
        for line in lines:
            assert line("GET", name)[0] == 404
            assert line("GET", f"/v1/kb/kb/chunks/{key}")[0] == 410


def test_nothing_found_ends_with_the_document_that_would_be(
    many: tuple[Served, list[Line]],
) -> None:
    """Finding nothing is kept (F2.9), and no longer than it is true, in any process."""
    _, lines = many
    for number in range(10):
        word = f"penstock{'abcdefghij'[number]}x"
        for line in (*lines, *lines):
            assert line.found(word) == set()
        kept = [line.figure('forebay_cache_total{result="hit",tier="retrieval"}') for line in lines]
        assert min(kept) > 0
        name = f"/v1/kb/kb/documents/{word}.md"
        assert lines[number % 3]("PUT", name, f"# {word}\n")[0] == 200
        for line in lines:
            assert line.found(word) == {f"{word}.md"}


def test_rights_are_those_of_the_document(tmp_path: Path) -> None:
    hashes = {name: sha256(f"{name}-key".encode()).hexdigest() for name in ("admin", "staff")}
    with served(tmp_path / "rights", LEXICAL + KEYS.format(**hashes)) as server:
        admin = Client(server.port, {"authorization": "Bearer admin-key"})
        staff = Client(server.port, {"authorization": "Bearer staff-key"})
        admin.put("kb", "d.md", "# One\n\none\n", "?groups=staff,hr")
        [one] = keys_of(admin, "d.md")
        assert staff("GET", f"/v1/kb/kb/chunks/{one}").status == 200
        admin.put("kb", "d.md", "# Two\n\ntwo\n", "?groups=staff,hr")
        assert staff("GET", f"/v1/kb/kb/chunks/{one}").json["state"] == "superseded"
        admin.put("kb", "d.md", "# Three\n\nthree\n", "?groups=hr")
        [three] = keys_of(admin, "d.md")
        # The right is withdrawn: neither text nor trace, and the old text is gone for all.
        for key in (one, three):
            reply = staff("GET", f"/v1/kb/kb/chunks/{key}")
            assert (reply.status, json.loads(reply.body)["error"]["code"]) == (404, "not_found")
        assert admin("GET", f"/v1/kb/kb/chunks/{one}").status == 410
