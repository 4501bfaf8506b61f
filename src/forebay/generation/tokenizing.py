"""Prompts counted as the engines of a pool count them: by their vocabulary, or by asking them.

Either is bounded in text and time. Where it does not come through, the caller's estimate stands.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import msgspec

from forebay.generation.settings import BUNDLE, ENGINE_TOKENIZER, PoolSettings
from forebay.generation.vocabularies import Counting, of_bundle, of_file
from forebay.kernel.context import RequestContext
from forebay.kernel.stages import Message, TokenCounter

log = logging.getLogger("forebay.generation")
MESSAGE_TOKENS = 4
"""What a chat template adds to a message, about."""
PIECE_CHARACTERS = 1024
"""Encoded at once: the library holds the interpreter lock, 0.6 us a byte."""
INLINE_CHARACTERS = 1024
EXACT_CHARACTERS = 65_536
LOCAL_S = 0.25
ENGINE_S = 0.05
ENGINE_BYTES = 65_536
_MOST_BYTES = 4 * 1024 * 1024
_REST_S, _MOST_REST_S, _ABSENT_REST_S = 1.0, 30.0, 300.0
_ABSENT = frozenset({401, 403, 404, 405, 501})
_REMEMBERED = 512


class LocalCounter:
    """Counts in this process; a long text by its beginning and the estimate of the rest."""

    def __init__(self, counting: Counting, estimate: TokenCounter) -> None:
        self._counting = counting
        self._estimate = estimate

    def count(self, text: str) -> int:
        """Tokens in ``text``: at most 64 k characters are encoded, in pieces."""
        return self._count(text, EXACT_CHARACTERS)

    def count_inline(self, text: str) -> int:
        """The same in well under a millisecond: from the first thousand characters."""
        return self._count(text, INLINE_CHARACTERS)

    async def prompt(self, _ctx: RequestContext, messages: Sequence[Message]) -> int | None:
        """Tokens of a conversation with its template's marks; None when the threads are busy."""

        def work() -> int:
            return sum(self.count(one.content) + MESSAGE_TOKENS for one in messages)

        try:
            async with asyncio.timeout(LOCAL_S):
                return await asyncio.to_thread(work)
        except TimeoutError:
            return None

    async def close(self) -> None:
        """Nothing is held."""

    def _count(self, text: str, exact: int) -> int:
        head = text[:exact]
        counted = sum(
            self._counting(piece) for piece in _pieces(head.encode("utf-8", "replace").decode())
        )
        if len(text) <= exact:
            return counted
        estimated = max(1, self._estimate.count(head))
        return counted + round(self._estimate.count(text[exact:]) * counted / estimated)


class _Counted(msgspec.Struct):
    count: int


class EngineCounter:
    """Asks a pool's replicas: POST /tokenize as vLLM has it, the answers remembered by hash.

    After a failure it rests 1, 2, 4 … 30 s, five minutes where there is no such page.
    """

    def __init__(self, pool: PoolSettings) -> None:
        self._pool = pool
        self._urls = [url.rstrip("/").removesuffix("/v1") + "/tokenize" for url in pool.base_urls]
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit_per_host=16),
            cookie_jar=aiohttp.DummyCookieJar(),
        )
        self._known: OrderedDict[bytes, int] = OrderedDict()
        self._failures = 0
        self._rests_until = float("-inf")

    async def prompt(self, ctx: RequestContext, messages: Sequence[Message]) -> int | None:
        """Tokens of a conversation under the engine's template; None if it does not say in time."""
        if ctx.clock.now() < self._rests_until or ctx.deadline.remaining() < ENGINE_S:
            return None
        if sum(len(one.content) for one in messages) > ENGINE_BYTES:
            return None
        body = msgspec.json.encode(
            {
                "model": self._pool.model,
                "messages": [
                    {"role": one.role, "content": one.content.encode("utf-8", "replace").decode()}
                    for one in messages
                ],
                "add_generation_prompt": True,
            }
        )
        if len(body) > ENGINE_BYTES:
            return None
        key = hashlib.blake2b(body, digest_size=16).digest()
        known = self._known.get(key)
        if known is None:
            known = await self._ask(ctx, body)
            if known is None:
                return None
            if len(self._known) >= _REMEMBERED:
                self._known.popitem(last=False)
            self._known[key] = known
        self._known.move_to_end(key)
        return known

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()

    async def _ask(self, ctx: RequestContext, body: bytes) -> int | None:
        at = ctx.placement.replica if ctx.placement is not None else 0
        headers = {"Content-Type": "application/json"}
        if self._pool.api_key:
            headers["Authorization"] = f"Bearer {self._pool.api_key}"
        try:
            async with (
                asyncio.timeout(ENGINE_S),
                self._session.post(
                    self._urls[at], data=body, headers=headers, allow_redirects=False
                ) as answer,
            ):
                if answer.status != 200:
                    self._failed(ctx, f"HTTP {answer.status}", answer.status in _ABSENT)
                    return None
                said = msgspec.json.decode(await answer.content.read(_MOST_BYTES), type=_Counted)
        except (aiohttp.ClientError, OSError, msgspec.MsgspecError, RecursionError) as error:
            self._failed(ctx, str(error) or "no answer in time", absent=False)
            return None
        self._failures = 0
        return said.count if said.count > 0 else None

    def _failed(self, ctx: RequestContext, why: str, absent: bool) -> None:
        if not self._failures:
            log.warning(
                "pool %s does not count tokens (%s); they are estimated", self._pool.name, why
            )
        rest_s = min(_MOST_REST_S, _REST_S * 2 ** min(self._failures, 10))
        self._rests_until = ctx.clock.now() + (_ABSENT_REST_S if absent else rest_s)
        self._failures += 1


class PoolTokens:
    """The counters of the pools that have one."""

    def __init__(self, counters: Mapping[str, LocalCounter | EngineCounter]) -> None:
        self._counters = counters

    async def prompt(self, ctx: RequestContext, messages: Sequence[Message]) -> int | None:
        """Tokens of a prompt in the pool the request was put in; None: the estimate stands."""
        counter = self._counters.get(ctx.placement.pool) if ctx.placement is not None else None
        return None if counter is None else await counter.prompt(ctx, messages)

    def written(self, pool: str, text: str) -> int | None:
        """Tokens of a text the pool wrote, at once; None: the estimate stands."""
        counter = self._counters.get(pool)
        return counter.count_inline(text) if isinstance(counter, LocalCounter) else None


@asynccontextmanager
async def open_tokens(
    pools: Sequence[PoolSettings], estimate: TokenCounter
) -> AsyncIterator[PoolTokens | None]:
    """Counters for the pools that ask for one; None when none does."""
    counters: dict[str, LocalCounter | EngineCounter] = {}
    local: dict[str, LocalCounter] = {}
    try:
        for pool in pools:
            if pool.tokenizer == ENGINE_TOKENIZER:
                counters[pool.name] = EngineCounter(pool)
            elif pool.tokenizer:
                if pool.tokenizer not in local:
                    counting = await asyncio.to_thread(_counting, pool.tokenizer)
                    local[pool.tokenizer] = LocalCounter(counting, estimate)
                counters[pool.name] = local[pool.tokenizer]
        yield PoolTokens(counters) if counters else None
    finally:
        for counter in counters.values():
            await counter.close()


def _counting(tokenizer: str) -> Counting:
    if tokenizer.startswith(BUNDLE):
        return of_bundle(tokenizer.removeprefix(BUNDLE))
    return of_file(Path(tokenizer))


def _pieces(text: str) -> list[str]:
    """The text in pieces that end before white space where they can: tokens begin with it."""
    pieces, start = [], 0
    while len(text) - start > PIECE_CHARACTERS:
        end = start + PIECE_CHARACTERS
        space = max(text.rfind(" ", start + 1, end), text.rfind("\n", start + 1, end))
        if space > start + PIECE_CHARACTERS // 2:
            end = space
        pieces.append(text[start:end])
        start = end
    if start < len(text):
        pieces.append(text[start:])
    return pieces
