"""Clients that leave, at every stage, streamed or not: what is freed, and what is paid.

One request is let in at a time, so whatever somebody who left still holds keeps the next one out.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest

from forebay.generation.tokenizing import MESSAGE_TOKENS
from forebay.kernel.context import RequestContext
from forebay.kernel.stages import Retriever, SearchRequest, SearchResult
from forebay.policy.admission import Entry
from forebay.policy.quota import Refusal, Reservation
from forebay.testing.engine_server import EngineServer
from forebay.testing.rerank_server import RerankServer
from forebay.testing.tiny_model import write_tiny_model
from tests.integration.in_process import (
    Cutting,
    Gateway,
    engine_config,
    gateway,
    simulated,
    until,
)
from tests.stopwatch import Stopwatch

BURST = 100_000.0
FREED_S = 0.2
"""The promise: a client that leaves frees everything within this."""
ADMISSION = """
[admission]
passage_tokens = 40
prompt_tokens = 60
[admission.limits.tenant]
rate_per_s = 0.001
burst = 100000.0
[admission.retrieval.limit]
initial = 1
least = 1
most = 1
"""
ONE = "[admission.pools.pool.gate.limit]\ninitial = 1\nleast = 1\nmost = 1\n"
RERANK = """
[retrieval]
early_exit_confidence = 2.0
[rerank]
backend = "cascade"
timeout_ms = 20000
dear_timeout_ms = 20000
[rerank.cascade]
floor = 0.0
sure_from = 1.0
[rerank.dear]
backend = "endpoint"
[rerank.dear.endpoint]
base_url = "{}"
"""


class HeldRetriever:
    """The server's own retriever, held back while ``gate`` is clear."""

    def __init__(self, inner: Retriever) -> None:
        self._inner = inner
        self.gate = asyncio.Event()
        self.gate.set()
        self.asked = self.working = 0

    async def retrieve(self, ctx: RequestContext, request: SearchRequest) -> SearchResult:
        self.asked += 1
        self.working += 1
        try:
            await self.gate.wait()
            return await self._inner.retrieve(ctx, request)
        finally:
            self.working -= 1


class SlowRetriever:
    """Takes up to 20 ms more than the server's own, so that clients leave there, too."""

    def __init__(self, inner: Retriever, chance: Random) -> None:
        self._inner = inner
        self._chance = chance

    async def retrieve(self, ctx: RequestContext, request: SearchRequest) -> SearchResult:
        await asyncio.sleep(self._chance.uniform(0, 0.02))
        return await self._inner.retrieve(ctx, request)


class Place:
    """A gateway with room for one request, its engine, and its retriever."""

    def __init__(self, made: Gateway, engine: EngineServer) -> None:
        self.gateway = made
        self.engine = engine
        self.entries: list[Entry] = []
        self._take = made.desk.take
        made.desk.take = self._taken  # type: ignore[method-assign]
        bounded = made.service.answerer.retriever
        self.retriever = HeldRetriever(bounded._retriever)
        bounded._retriever = self.retriever

    def _taken(self, entry: Entry, got: Reservation | Refusal | None) -> Entry:
        self.entries.append(entry)
        return self._take(entry, got)

    def written(self) -> int:
        """Tokens that came from the engine for the request let in last."""
        return self.entries[-1].completion_tokens if self.entries else 0

    def asked_tokens(self) -> int:
        """What the engine was sent last, in its own tokens: characters."""
        messages = self.engine.requests[-1]["messages"]
        return sum(len(self.tokenised(message["content"])) + MESSAGE_TOKENS for message in messages)

    @staticmethod
    def tokenised(text: str) -> str:
        """The text as the tiny tokenizer sees it: a run of line ends is one token."""
        while "\n\n" in text:
            text = text.replace("\n\n", "\n")
        return text

    async def used(self, cut: Stopwatch) -> float:
        """Tokens paid so far, once everything was freed; within 200 ms of ``cut``."""
        await self.gateway.nothing_held(FREED_S - cut.now())
        return BURST - self.gateway.level()


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    model = write_tiny_model(tmp_path / "model")
    async with EngineServer(list("0123456789")) as engine:
        tokenizer = str(model / "tokenizer.json")
        config = engine_config(engine.base_url, tokenizer=tokenizer) + ADMISSION + ONE
        config += "[generation.engine]\nwarm_timeout_s = 0\n"
        async with gateway(tmp_path, config) as made:
            yield Place(made, engine)


def asking(place: Place, *, stream: bool) -> Cutting:
    return Cutting(place.gateway.port, {"stream": stream})


@pytest.mark.parametrize("stream", [True, False])
async def test_cut_after_five_tokens_they_and_the_prompt_are_paid(
    place: Place, stream: bool
) -> None:
    place.engine.hold_after = 5
    async with asking(place, stream=stream) as client:
        if stream:
            await client.read_until(b"3")  # the last character waits for its citations
        await until(lambda: place.written() == 5)
        cut = Stopwatch()
    await until(place.engine.gone.is_set, FREED_S - cut.now())
    assert await place.used(cut) == pytest.approx(place.asked_tokens() + 5, abs=0.1)


async def test_an_engine_that_breaks_is_paid_for_what_came(place: Place) -> None:
    place.engine.break_after = 5
    async with asking(place, stream=True) as client:
        answer = await client.answer()
        ended = Stopwatch()
    assert b'"engine_error"' in answer.body
    came = "".join(re.findall(r'"content":"(\d*)"', answer.body.decode()))
    assert 0 < len(came) <= 5
    assert await place.used(ended) == pytest.approx(place.asked_tokens() + len(came), abs=0.1)


@pytest.mark.parametrize("status", [400, 429, 500, 503])
async def test_what_no_engine_began_costs_nothing(tmp_path: Path, status: int) -> None:
    async with EngineServer() as engine:
        config = engine_config(engine.base_url) + ADMISSION + ONE
        config += "[generation.engine]\nwarm_timeout_s = 0\n[generation.ladder]\nenabled = false\n"
        async with gateway(tmp_path, config) as made:
            engine.status = status
            answer = await made.ask()
            assert answer.status == {400: 400, 500: 502}.get(status, 503)
            assert len(engine.requests) == 1
            await made.nothing_held()
            assert made.level() == pytest.approx(BURST, abs=0.1)


@pytest.mark.parametrize("stream", [True, False])
async def test_cut_before_the_first_token_the_prompt_is_paid(place: Place, stream: bool) -> None:
    place.engine.gate.clear()
    async with asking(place, stream=stream):
        await until(lambda: place.engine.active == 1)
        cut = Stopwatch()
    await until(place.engine.gone.is_set, FREED_S - cut.now())
    assert await place.used(cut) == pytest.approx(place.asked_tokens(), abs=0.1)


@pytest.mark.parametrize("stream", [True, False])
async def test_cut_in_retrieval_nothing_is_paid_and_no_engine_is_asked(
    place: Place, stream: bool
) -> None:
    place.retriever.gate.clear()
    async with asking(place, stream=stream):
        await until(lambda: place.retriever.working == 1)
        assert place.gateway.level() < BURST
        cut = Stopwatch()
    assert await place.used(cut) == pytest.approx(0, abs=0.1)
    assert place.retriever.working == 0
    assert place.engine.requests == []


async def test_cut_in_rerank_nothing_is_paid_and_the_endpoint_is_told(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "gate.md").write_text("# Gate\n\nThe spillway gate is new.\n")
    async with EngineServer(["yes"]) as engine, RerankServer() as dear:
        config = engine_config(engine.base_url) + ADMISSION + ONE + RERANK.format(dear.base_url)
        async with gateway(tmp_path, config, embedding="") as made:
            await until(lambda: made.service.answerer.process.reading.embedded_share() == 1.0)
            dear.gate.clear()
            warmed = len(engine.requests)
            for cuts, stream in enumerate([True, False], 1):
                # Another question each time, so that nothing is found before.
                asked = [{"role": "user", "content": f"How long is spillway {cuts}?"}]
                async with Cutting(made.port, {"stream": stream, "messages": asked}):
                    await until(lambda cuts=cuts: len(dear.requests) == cuts)  # type: ignore[misc]
                    assert made.level() < BURST
                    cut = Stopwatch()
                await until(lambda cuts=cuts: dear.cancelled == cuts, FREED_S - cut.now())  # type: ignore[misc]
                await made.nothing_held(FREED_S - cut.now())
                assert made.level() == pytest.approx(BURST, abs=0.1)
            assert len(engine.requests) == warmed
            dear.gate.set()
            assert (await made.ask()).status == 200


@pytest.mark.parametrize("stream", [True, False])
async def test_cut_in_the_line_of_retrieval_nothing_is_paid(place: Place, stream: bool) -> None:
    place.retriever.gate.clear()
    search = {"kb": "kb", "query": "spillway"}
    async with Cutting(place.gateway.port, dict(search), "/v1/search") as before:
        await until(lambda: place.retriever.working == 1)
        charged = BURST - place.gateway.level()
        async with asking(place, stream=stream):
            await until(lambda: place.gateway.held().get("retrieval.queue_waiting") == 1)
            left = Stopwatch()
        await until(lambda: "in_work" not in place.gateway.held(), FREED_S - left.now())
        assert BURST - place.gateway.level() == pytest.approx(charged, abs=0.1)
        place.retriever.gate.set()
        assert (await before.answer()).status == 200
    assert place.retriever.asked == 1
    await place.gateway.nothing_held()


@pytest.mark.parametrize("stream", [True, False])
async def test_cut_in_the_queue_nothing_is_paid_and_the_place_is_free(
    place: Place, stream: bool
) -> None:
    place.engine.gate.clear()
    async with asking(place, stream=False) as before:
        await until(lambda: place.engine.active == 1)
        charged = BURST - place.gateway.level()
        async with asking(place, stream=stream):
            await until(lambda: place.gateway.held().get("pool.queue_waiting") == 1)
            assert BURST - place.gateway.level() > charged
            left = Stopwatch()
        await until(lambda: place.gateway.held().get("in_work") == 1, FREED_S - left.now())
        assert BURST - place.gateway.level() == pytest.approx(charged, abs=0.1)
        place.engine.gate.set()
        assert (await before.answer()).status == 200
    assert len(place.engine.requests) == 1
    await place.gateway.nothing_held()


@pytest.mark.parametrize("stream", [True, False])
async def test_who_was_cut_keeps_nobody_out(place: Place, stream: bool) -> None:
    place.engine.hold_after = 5
    for _ in range(3):
        async with asking(place, stream=stream):
            await until(lambda: place.written() == 5)
        place.entries.clear()
        await place.gateway.nothing_held(FREED_S)
    place.engine.hold_after = None
    answer = await place.gateway.ask()
    assert answer.status == 200
    assert answer.json["choices"][0]["message"]["content"] == "0123456789"


SOME = "[admission.pools.pool.gate.limit]\ninitial = 4\nleast = 4\nmost = 4\n"


async def test_a_thousand_cuts_leave_every_gauge_at_zero(tmp_path: Path) -> None:
    chance = Random(11)
    paid: list[float] = []
    ends = {"answered": 0, "cut": 0}
    async with simulated() as engines:
        [url] = engines.addresses.replicas
        config = engine_config(f"{url}/v1") + ADMISSION + SOME
        async with gateway(tmp_path, config) as made:
            leave = made.desk.leave

            def left(entry: Entry, ok: bool | None) -> None:
                if entry.prompt_tokens:
                    paid.append(entry.weights.cost(entry.prompt_tokens, entry.completion_tokens))
                leave(entry, ok)

            made.desk.leave = left  # type: ignore[method-assign]
            bounded = made.service.answerer.retriever
            bounded._retriever = SlowRetriever(bounded._retriever, chance)

            async def cut() -> None:
                more = {"stream": chance.random() < 0.5, "max_tokens": 200}
                async with Cutting(made.port, more) as client:
                    try:
                        async with asyncio.timeout(chance.expovariate(1 / 0.1)):
                            await client.reader.read()
                    except TimeoutError:
                        ends["cut"] += 1
                    else:
                        ends["answered"] += 1

            while ends["cut"] < 1000:
                await asyncio.gather(*(cut() for _ in range(40)))
            await made.nothing_held()
            assert 200 < len(paid) < ends["cut"] + ends["answered"], "all were cut at one place"
            assert made.level() == pytest.approx(BURST - sum(paid), abs=1)
            page = await made.figures()
            for gauge in GAUGES:
                samples = [value for name, value in page.items() if name.split("{")[0] == gauge]
                assert samples and not any(samples), gauge
            [replica] = engines.replicas
            await until(lambda: not replica.engine.statistics().running, FREED_S)


GAUGES = (
    "forebay_requests_in_flight",
    "forebay_pool_waiting",
    "forebay_pool_waiting_tokens",
    "forebay_pool_in_flight",
    "forebay_pool_in_flight_tokens",
    "forebay_pool_connections",
    "forebay_pool_ejected",
)
