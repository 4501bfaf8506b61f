"""The cache tiers in a whole server: what is spared, what is never served, who shares what."""

from __future__ import annotations

import asyncio
import json
import re
import urllib.request
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from redis import Redis as Valkey

from forebay.gateway.identity import hash_key
from forebay.kernel.context import RequestContext
from forebay.kernel.stages import SearchRequest, SearchResult
from forebay.lab.sim.serving.server import SimulationServer
from tests.integration.in_process import (
    QUESTION,
    Answer,
    Cutting,
    Gateway,
    engine_config,
    gateway,
    simulated,
    until,
)
from tests.integration.support import LEXICAL, Served, served
from tests.integration.support import until as reached
from tests.integration.test_shared_quotas import keeper
from tests.integration.test_simulate_serve import serving
from tests.integration.test_workers import Line, line_to, workers
from tests.ports import unused_ports

RULE = '\n[[cache.answers.rules]]\nname = "all"\n'
QUOTING = {"text": "quoted", "output_median_tokens": 8, "output_sigma": 0.0}
PATIENT = f"{LEXICAL}\n[server.connections]\nkeep_alive_s = 300\n"
DOCUMENT = "/v1/kb/kb/documents/docs%2Fdam.md"


class Held:
    """The retriever behind the tiers; what it has found is held back until it is let go."""

    def __init__(self, server: Gateway) -> None:
        self.bounded = server.service.answerer.retriever
        self.inner = self.bounded._retriever
        self.found = 0
        self.go = asyncio.Event()
        self.go.set()
        self.bounded._retriever = self

    async def retrieve(self, ctx: RequestContext, request: SearchRequest) -> SearchResult:
        result = await self.inner.retrieve(ctx, request)
        self.found += 1
        await self.go.wait()
        return result


@asynccontextmanager
async def cached(
    folder: Path, config: str = RULE
) -> AsyncIterator[tuple[Gateway, SimulationServer, Held]]:
    async with (
        simulated(**QUOTING) as engines,
        gateway(folder, engine_config(f"{engines.addresses.replicas[0]}/v1") + config) as server,
    ):
        yield server, engines, Held(server)


def generated(engines: SimulationServer) -> int:
    """Answers the engine has been asked for, but for the one that warmed it."""
    return sum(sum(one.figures.finished.values()) for one in engines.replicas) - 1


async def change(
    server: Gateway, method: str, text: str = "", path: str = DOCUMENT, key: str = ""
) -> None:
    """Change a document; acknowledged when this returns."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    data = text.encode()
    head = (
        f"{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n"
        f"authorization: Bearer {key}\r\n"
        f"content-type: text/markdown\r\ncontent-length: {len(data)}\r\n\r\n"
    )
    writer.write(head.encode() + data)
    answer = await reader.read()
    writer.close()
    assert b" 200 " in answer.partition(b"\r\n")[0] + b" ", answer[:300]


def told(answer: Answer) -> dict[str, str]:
    """What the tiers did, by the header."""
    pairs = answer.headers["x-forebay-cache"].split(", ")
    return dict(pair.split("=", 1) for pair in pairs)


def said(answer: Answer) -> str:
    return str(answer.json["choices"][0]["message"]["content"])


def cited(answer: Answer) -> set[str]:
    return {one["document_id"] for one in answer.json.get("citations", ())}


async def test_an_answer_is_made_once_and_comes_back_the_same(tmp_path: Path) -> None:
    async with cached(tmp_path) as (server, engines, _):
        first, second = await server.ask(), await server.ask()
        assert (told(first)["answer"], told(second)["answer"]) == ("miss", "hit")
        assert (said(second), cited(second)) == (said(first), cited(first))
        assert second.json["forebay"]["kb_version"] == first.json["forebay"]["kb_version"]
        assert generated(engines) == 1
        # The engine wrote nothing for it, and nobody pays for what was not written.
        assert second.json["usage"]["completion_tokens"] == 0


async def test_the_very_same_request_is_told_again_until_something_changes(tmp_path: Path) -> None:
    async with cached(tmp_path) as (server, engines, _):
        tiers = server.service.answerer.tiers

        def again() -> int:
            return int(tiers.statistics()["replay"]["told"])

        first, _, third, fourth = [await server.ask() for _ in range(4)]
        assert again() == 2
        assert told(third) == told(fourth) | {"answer": "hit"}
        for field in ("choices", "citations", "model"):
            assert third.json[field] == first.json[field]
        assert third.json["id"] != fourth.json["id"]
        # Another knowledge base is nothing to it; a change of what it rests on ends it.
        await change(server, "PUT", "# Other\n\nNothing of it.\n", "/v1/kb/other/documents/o.md")
        assert (told(await server.ask())["answer"], again()) == ("hit", 3)
        await change(server, "DELETE")
        gone = await server.ask()
        assert (told(gone)["answer"], cited(gone), again()) == ("miss", set(), 3)
        assert generated(engines) == 2
        assert tiers.purge() > 0
        assert tiers.statistics()["replay"]["bytes"] == 0


async def test_a_kept_answer_is_a_stream_too(tmp_path: Path) -> None:
    async with cached(tmp_path) as (server, _, _):
        whole = await server.ask()
        streamed = (await server.ask(stream=True)).body.decode()
        events = [line[6:] for line in streamed.splitlines() if line.startswith("data: ")]
        assert events[-1] == "[DONE]"
        chunks = [json.loads(event) for event in events[:-1]]
        text = "".join(
            choice["delta"].get("content") or "" for one in chunks for choice in one["choices"]
        )
        assert text == said(whole)
        assert [one["citations"] for one in chunks if one.get("citations")] == [
            whole.json["citations"]
        ]
        assert chunks[-1]["choices"][0]["finish_reason"] == "stop"


async def test_without_a_rule_only_what_was_found_is_kept(tmp_path: Path) -> None:
    async with cached(tmp_path, config="") as (server, engines, held):
        for _ in range(2):
            answer = await server.ask()
        assert told(answer) == {"embedding": "off", "retrieval": "hit", "answer": "off"}
        assert (generated(engines), held.found) == (2, 1)


async def test_who_wants_no_cache_gets_none(tmp_path: Path) -> None:
    async with cached(tmp_path) as (server, engines, held):
        await server.ask()
        answer = await server.ask(headers={"x-forebay-no-cache": "1"})
        assert (told(answer)["answer"], told(answer)["retrieval"]) == ("bypass", "bypass")
        assert (generated(engines), held.found) == (2, 2)


@pytest.mark.parametrize(
    "other",
    [
        {"max_tokens": 18},
        {"temperature": 0.0},
        {"stop": ["x"]},
        {"seed": 3},
        {"response_format": {"type": "json_object"}},
        {"tools": [{"type": "function", "function": {"name": "f"}}]},
        {"messages": [{"role": "user", "content": "How long is the spillway not?"}]},
        {
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": QUESTION},
            ]
        },
        {"forebay": {"top_k": 3}},
    ],
)
async def test_another_request_gets_an_answer_of_its_own(
    tmp_path: Path, other: dict[str, Any]
) -> None:
    async with cached(tmp_path) as (server, engines, _):
        await server.ask()
        await server.ask(**other)
        assert generated(engines) == 2


async def test_a_cut_answer_is_not_kept(tmp_path: Path) -> None:
    async with cached(tmp_path) as (server, engines, _):
        for _ in range(2):
            answer = await server.ask(max_tokens=3)
            assert answer.json["choices"][0]["finish_reason"] == "length"
        assert generated(engines) == 2


async def test_many_equal_cold_questions_cost_one_search_and_one_answer(tmp_path: Path) -> None:
    async with cached(tmp_path) as (server, engines, held):
        held.go.clear()
        asked = [asyncio.create_task(server.ask(stream=True)) for _ in range(200)]
        await until(lambda: held.found == 1 and server.held().get("requests") == 200)
        held.go.set()
        answers = await asyncio.gather(*asked)
        # Who is behind reads in larger pieces.
        texts = {b"".join(re.findall(rb'"content":"([^"]*)"', answer.body)) for answer in answers}
        assert {answer.status for answer in answers} == {200}
        assert len(texts) == 1
        assert (held.found, generated(engines)) == (1, 1)
        await server.nothing_held()


async def test_the_first_of_many_may_leave(tmp_path: Path) -> None:
    async with cached(tmp_path) as (server, engines, held):
        held.go.clear()
        async with Cutting(server.port, {"stream": True}) as first:
            await until(lambda: held.found == 1)
            others = [asyncio.create_task(server.ask(stream=True)) for _ in range(5)]
            await until(lambda: server.held().get("requests") == 6)
            first.leave()
            await until(lambda: server.held().get("requests") == 5)
        held.go.set()
        for answer in await asyncio.gather(*others):
            assert answer.body.rstrip().endswith(b"[DONE]")
        assert (held.found, generated(engines)) == (1, 1)
        await server.nothing_held()


async def test_when_all_have_left_everything_is_free(tmp_path: Path) -> None:
    async with cached(tmp_path) as (server, _, held):
        held.go.clear()
        asked = [asyncio.create_task(server.ask(stream=True)) for _ in range(5)]
        await until(lambda: server.held().get("requests") == 5)
        for one in asked:
            one.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
        await server.nothing_held()


async def test_a_removal_during_a_search_is_seen_by_all_who_ask_after_it(tmp_path: Path) -> None:
    """The version race: what began before is kept under the old version, and served to nobody."""
    async with cached(tmp_path) as (server, _, held):
        held.go.clear()
        before = asyncio.create_task(server.ask())
        await until(lambda: held.found == 1)
        await change(server, "DELETE")
        after = [asyncio.create_task(server.ask()) for _ in range(3)]
        await until(lambda: held.found == 2)
        held.go.set()
        # It began before the removal, and may say what it found then.
        assert cited(await before) == {"docs/dam.md"}
        for answer in [*await asyncio.gather(*after), await server.ask(), await server.ask()]:
            assert cited(answer) == set()
            assert "spillway is" not in said(answer)


async def test_an_update_during_a_search_is_seen_by_all_who_ask_after_it(tmp_path: Path) -> None:
    async with cached(tmp_path) as (server, _, held):
        held.go.clear()
        before = asyncio.create_task(server.ask())
        await until(lambda: held.found == 1)
        await change(server, "PUT", "# Dam\n\nThe spillway is 999 metres long.\n")
        after = asyncio.create_task(server.ask())
        await until(lambda: held.found == 2)
        held.go.set()
        assert "120" in said(await before)
        for answer in (await after, await server.ask(), await server.ask()):
            assert "999" in said(answer)
            assert "120" not in said(answer)
        assert told(await server.ask())["answer"] == "hit"


async def test_a_kept_answer_ends_with_a_document_it_rests_on_and_with_no_other(
    tmp_path: Path,
) -> None:
    async with cached(tmp_path) as (server, engines, _):
        for number in range(40):
            name = f"/v1/kb/kb/documents/filler{number}.md"
            await change(server, "PUT", f"# Note {number}\n\nTurbine {number} stands.\n", name)
        await server.ask()
        await change(server, "PUT", "# Gate\n\nRed paint dries.\n", "/v1/kb/kb/documents/gate.md")
        assert told(await server.ask())["answer"] == "hit"
        assert generated(engines) == 1
        await change(server, "DELETE")
        assert told(await server.ask())["answer"] == "miss"


def test_explaining_and_forgetting_on_a_running_server(tmp_path: Path) -> None:
    with served(tmp_path, LEXICAL) as server:
        server.ask.put("kb", "dam.md", "# Dam\n\nThe spillway is 120 metres long.\n")
        for _ in range(3):
            server.ask.search("kb", "How long is the spillway")
        explain = ("cache", "explain", "how long is the SPILLWAY?", "--kb", "kb", "--json")
        found = {one["tier"]: one["verdict"] for one in server.command(*explain).json}
        assert found == {"answer": "off", "retrieval": "hit", "embedding": "off"}
        figures = server.command("cache", "stats", "--json").json["retrieval"]
        assert (figures["hit"], figures["miss"], figures["entries"]) == (2, 1, 1)
        assert server.command("cache", "purge", "--json").json["entries"] == 1
        found = {one["tier"]: one["verdict"] for one in server.command(*explain).json}
        assert found["retrieval"] == "miss"
        misspelt = server.command("cache", "purge", "--kb", "kbb")
        assert (misspelt.status, "no knowledge base 'kbb'" in misspelt.err) == (1, True)
    ended = server.command("cache", "stats")
    assert (ended.status, "no server runs" in ended.err) == (1, True)


def lines_to(server: Served) -> list[Line]:
    """A connection to each of two processes."""
    reached(lambda: len(workers(server)) == 1)
    everyone = [psutil.Process(server.process.pid), *workers(server)]
    return [line_to(server, [each for each in everyone if each.pid != one.pid]) for one in everyone]


def test_every_process_forgets(tmp_path: Path) -> None:
    with served(tmp_path, PATIENT, "--workers", "2") as server:
        server.ask.put("kb", "dam.md", "# Dam\n\nThe spillway is 120 metres long.\n")
        for line in lines_to(server):
            assert line.found("How long is the spillway") == {"dam.md"}

        def entries() -> float:
            found: float = server.command("cache", "stats", "--json").json["retrieval"]["entries"]
            return found

        assert entries() == 2
        server.command("cache", "purge", "--kb", "kb")
        reached(lambda: entries() == 0)


def test_processes_share_through_redis_and_survive_what_is_poisoned(tmp_path: Path) -> None:
    with keeper() as redis:
        config = f'{PATIENT}[coordination]\nredis_url = "{redis.connection_url}"\n'
        config += "[cache.store]\ntimeout_ms = 5000\n"  # however busy this machine is
        with served(tmp_path, config, "--workers", "2") as server:
            server.ask.put("kb", "dam.md", "# Dam\n\nThe spillway is 120 metres long.\n")
            lines = lines_to(server)
            question = "How long is the spillway"
            assert lines[0].found(question) == {"dam.md"}
            values = Valkey(port=redis.port)
            kept = reached(lambda: list(values.scan_iter(match="forebay:cache:value:*")))
            assert lines[1].found(question) == {"dam.md"}
            figures = server.command("cache", "stats", "--json").json["retrieval"]
            assert (figures["miss"], figures["hit"]) == (1, 1)
            for number, key in enumerate(kept):
                values.set(key, [b"", b"\0" * 100, b"FB" + b"x" * 50][number % 3])
            server.command("cache", "purge")
            assert lines[0].found(question) == {"dam.md"}


def test_what_processes_share_is_forgotten_too_and_no_claim_outlives_its_answer(
    tmp_path: Path,
) -> None:
    rule = f"{RULE}min_ms = 100000\n"
    with keeper() as redis:
        config = f'{PATIENT}[coordination]\nredis_url = "{redis.connection_url}"\n'
        config += f"[cache.store]\ntimeout_ms = 5000\n{rule}"
        with served(tmp_path, config, "--workers", "2") as server:
            server.ask.put("kb", "dam.md", "# Dam\n\nThe spillway is 120 metres long.\n")
            values = Valkey(port=redis.port)

            def keys(kind: str) -> list[bytes]:
                return list(values.scan_iter(match=f"forebay:cache:{kind}:*"))

            messages = [{"role": "user", "content": QUESTION}]
            asked = {"model": "forebay/kb", "messages": messages}
            for line in lines_to(server):
                # Too quick to be kept: the other process must not wait for what will not come.
                assert line("POST", "/v1/chat/completions", asked)[0] == 200
                reached(lambda: keys("value") and not keys("claim"))
            server.command("cache", "purge", "--kb", "kb")
            assert not keys("value")


async def test_a_right_withdrawn_during_a_search_is_gone_for_all_who_ask_after_it(
    tmp_path: Path,
) -> None:
    """The document stays, but not for these: a change of groups is a change like any other."""
    tenant = '\n[[tenants]]\nname = "a"\nknowledge = ["kb"]\ngroups = ["staff", "hr"]\n'
    keys = "".join(
        f'[[tenants.keys]]\nhash = "{hash_key(name)}"\ngroups = ["{group}"]\nadmin = {admin}\n'
        for name, group, admin in (("sk-staff", "staff", "false"), ("sk-hr", "hr", "true"))
    )
    async with cached(tmp_path, RULE + tenant + keys) as (server, _, held):

        async def ask(key: str) -> Answer:
            return await server.ask(headers={"authorization": f"Bearer {key}"})

        held.go.clear()
        before = asyncio.create_task(ask("sk-staff"))
        await until(lambda: held.found == 1)
        await change(
            server,
            "PUT",
            "# Dam\n\nThe spillway is 120 metres long.\n",
            f"{DOCUMENT}?groups=hr",
            key="sk-hr",
        )
        held.go.set()
        await before
        for _ in range(2):
            answer = await ask("sk-staff")
            assert cited(answer) == set()
            assert "120" not in said(answer)
        assert cited(await ask("sk-hr")) == {"docs/dam.md"}


def asked_of(url: str) -> float:
    """Answers that an engine has ended."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=10) as page:
        lines = page.read().decode().splitlines()
    return sum(
        float(line.rsplit(" ", 1)[1])
        for line in lines
        if line.startswith("vllm:request_success_total")
    )


def whole_answer(port: int) -> str:
    """The question on a connection of its own, which any process may accept."""
    body = {"model": "forebay/kb", "messages": [{"role": "user", "content": QUESTION}]}
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/chat/completions",
        json.dumps(body).encode(),
        {"content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as reply:
        answer: str = json.loads(reply.read())["choices"][0]["message"]["content"]
    return answer


def test_a_group_of_processes_makes_an_answer_once(tmp_path: Path) -> None:
    options = [f"--set={name}={value}" for name, value in QUOTING.items()]
    with keeper() as redis, serving("--port", str(unused_ports()), *options) as (_, addresses):
        [url] = addresses["replicas"]
        # A busy machine must not be taken for a store that does not answer.
        config = (
            f'{PATIENT}[coordination]\nredis_url = "{redis.connection_url}"\n'
            f"[cache.store]\ntimeout_ms = 2000\n{engine_config(f'{url}/v1')}{RULE}"
        )
        with served(tmp_path, config, "--workers", "2") as server:
            server.ask.put("kb", "dam.md", "# Dam\n\nThe spillway is 120 metres long.\n")
            lines_to(server)
            warmed = asked_of(url)
            with ThreadPoolExecutor(40) as pool:
                answers = list(pool.map(lambda _: whole_answer(server.port), range(80)))
            assert len(set(answers)) == 1
            assert asked_of(url) - warmed == 1


@pytest.mark.slow
def test_that_a_vector_was_there_is_told_to_those_alone_who_had_it_made(tmp_path: Path) -> None:
    tenants = "".join(
        f'[[tenants]]\nname = "{name}"\nknowledge = "*"\n'
        f'[[tenants.keys]]\nhash = "{hash_key(name)}"\nadmin = true\n'
        for name in ("a", "b")
    )
    with served(tmp_path, f"{tenants}[retrieval]\nvector_timeout_ms = 5000\n") as server:
        keys = {name: {"authorization": f"Bearer {name}"} for name in ("a", "b")}
        path = "/v1/kb/kb/documents/dam.md?wait=embedded"
        assert server.ask("PUT", path, "# Dam\n\nIt is of stone.\n", keys["a"]).status == 200

        def embedding(name: str) -> str:
            asked = {"kb": "kb", "query": QUESTION}
            headers = {**keys[name], "x-forebay-no-cache": "1"}
            reply = server.ask("POST", "/v1/search", asked, headers)
            return reply.headers["x-forebay-cache"].partition(",")[0]

        told_ = [embedding(name) for name in "abba"]
        assert told_ == [f"embedding={result}" for result in ("miss", "miss", "hit", "hit")]
        figures = server.ask("GET", "/metrics", None, keys["a"]).body.decode()
        assert 'forebay_cache_total{result="hit",tier="embedding"} 3.0' in figures
