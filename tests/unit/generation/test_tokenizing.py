"""Prompts counted as engines count them, and what happens where that does not come through."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web

from forebay.generation import tokenizing
from forebay.generation.settings import PoolSettings
from forebay.generation.tokenizing import LocalCounter, PoolTokens, _pieces, open_tokens
from forebay.generation.vocabularies import of_file
from forebay.kernel.clock import Deadline, VirtualClock
from forebay.kernel.context import Principal, RequestContext
from forebay.kernel.errors import ConfigError
from forebay.kernel.stages import Message
from forebay.testing.embedding import WordCounter
from forebay.testing.loopback import LoopbackServer
from forebay.testing.tiny_model import write_tiny_model

MESSAGES = (Message("system", "Cite."), Message("user", "How long? \ud800"))


class Placed:
    pool = "p"
    replica = 0
    max_output_tokens = 16
    hedging = None

    def token(self) -> None: ...

    def unless_hung(self, leave: Callable[[], None] | None) -> None:
        pass

    def again(self) -> bool:
        return False


def context(clock: VirtualClock, *, left_s: float = 9.0) -> RequestContext:
    ctx = RequestContext(
        request_id="r", principal=Principal(), deadline=Deadline.after(left_s, clock), clock=clock
    )
    ctx.placement = Placed()
    return ctx


class Tokenizing(LoopbackServer):
    """POST /tokenize as vLLM answers it."""

    def __init__(self) -> None:
        super().__init__("/tokenize", self._answer)
        self.asked: list[dict[str, Any]] = []
        self.status = 200
        self.body: bytes | None = None

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(msgspec.json.decode(await request.read()))
        await self.gate.wait()
        if self.body is not None or self.status != 200:
            return web.Response(body=self.body or b"no", status=self.status)
        tokens = list(range(17))
        said = {"count": 17, "max_model_len": 4096, "tokens": tokens, "token_strs": None}
        return web.json_response(said)


@asynccontextmanager
async def tokens(url: str, tokenizer: str = "engine") -> AsyncIterator[PoolTokens]:
    pool = PoolSettings(name="p", base_urls=(url,), model="m", tokenizer=tokenizer)
    async with open_tokens((pool,), WordCounter()) as opened:
        assert opened is not None
        yield opened


async def test_the_engine_is_asked_once_a_prompt() -> None:
    ctx = context(VirtualClock())
    async with Tokenizing() as engine, tokens(engine.base_url) as counting:
        assert await counting.prompt(ctx, MESSAGES) == 17
        assert await counting.prompt(ctx, MESSAGES) == 17
        [asked] = engine.asked
        assert asked["model"] == "m"
        assert asked["add_generation_prompt"] is True
        assert asked["messages"][0] == {"role": "system", "content": "Cite."}
        assert counting.written("p", "some words") is None


@pytest.mark.parametrize(
    ("status", "body", "rest_s"),
    [(500, None, 1.0), (404, None, 300.0), (200, b"{}", 1.0), (200, b'{"count": "x"}', 1.0)],
)
async def test_an_engine_that_does_not_count_is_left_alone_for_a_while(
    status: int, body: bytes | None, rest_s: float, caplog: pytest.LogCaptureFixture
) -> None:
    clock = VirtualClock()
    ctx = context(clock, left_s=1e6)
    async with Tokenizing() as engine, tokens(engine.base_url) as counting:
        engine.status, engine.body = status, body
        with caplog.at_level(logging.WARNING):
            assert await counting.prompt(ctx, MESSAGES) is None
        assert "they are estimated" in caplog.text
        clock.advance(rest_s - 0.01)
        assert await counting.prompt(ctx, MESSAGES) is None
        assert len(engine.asked) == 1
        clock.advance(0.02)
        engine.status, engine.body = 200, None
        assert await counting.prompt(ctx, MESSAGES) == 17


async def test_a_slow_engine_a_huge_prompt_and_no_time_leave_the_estimate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tokenizing, "ENGINE_S", 0.02)
    clock = VirtualClock()
    async with Tokenizing() as engine, tokens(engine.base_url) as counting:
        huge = (Message("user", "x" * (tokenizing.ENGINE_BYTES + 1)),)
        assert await counting.prompt(context(clock), huge) is None
        quoted = (Message("user", '"' * (tokenizing.ENGINE_BYTES - 1000)),)
        assert await counting.prompt(context(clock), quoted) is None
        assert await counting.prompt(context(clock, left_s=0.01), MESSAGES) is None
        assert engine.asked == []
        engine.gate.clear()
        assert await counting.prompt(context(clock), MESSAGES) is None


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A token is a character."""
    return write_tiny_model(tmp_path_factory.mktemp("model")) / "tokenizer.json"


async def test_a_file_counts_prompts_and_cut_answers(tokenizer: Path) -> None:
    async with tokens("http://127.0.0.1:1/v1", str(tokenizer)) as counting:
        ctx = context(VirtualClock())
        characters = sum(len(one.content) + tokenizing.MESSAGE_TOKENS for one in MESSAGES)
        assert await counting.prompt(ctx, MESSAGES) == characters
        assert counting.written("p", "ten  days.") == 10
        assert counting.written("other", "ten days.") is None
        ctx.placement = None
        assert await counting.prompt(ctx, MESSAGES) is None


def test_long_texts_are_counted_by_their_beginning(tokenizer: Path) -> None:
    counter = LocalCounter(of_file(tokenizer), WordCounter())
    text = "abc " * 40_000
    assert counter.count(text) == pytest.approx(len(text), rel=0.01)
    assert counter.count_inline(text) == pytest.approx(len(text), rel=0.01)
    assert counter.count("") == 0


def test_pieces_are_bounded_and_whole() -> None:
    for text in ("", "word " * 1000, "字" * 5000, "x" * 1024, " " * 3000, "a\n" * 2000):
        pieces = _pieces(text)
        assert "".join(pieces) == text
        assert all(0 < len(piece) <= tokenizing.PIECE_CHARACTERS for piece in pieces)
    assert all(piece.startswith(" ") for piece in _pieces("word " * 1000)[1:])


async def test_a_file_that_cannot_be_read_is_told_at_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"tokenizer\.json"):
        async with tokens("http://127.0.0.1:1/v1", str(tmp_path / "tokenizer.json")):
            pass


async def test_without_the_setting_there_is_nothing() -> None:
    pool = PoolSettings(name="p", base_urls=("http://127.0.0.1:1/v1",), model="m")
    async with open_tokens((pool,), WordCounter()) as opened:
        assert opened is None
