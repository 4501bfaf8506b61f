"""An OpenAI-compatible endpoint that is asked a bounded number of things at a time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import msgspec

from forebay.kernel.errors import (
    DeadlineExceeded,
    EngineError,
    EngineRefused,
    Unavailable,
)
from forebay.kernel.stages import Message
from forebay.lab.evaluate.judging.forms import Form

_MAX_BYTES = 4 * 1024 * 1024
_SAID_CHARACTERS = 200
_TRY_AGAIN = frozenset((408, 409, 425, 429, 500, 502, 503, 504, 529))
_NO_FORM = frozenset((400, 404, 422))
"""What an endpoint may answer that knows no ``response_format``, or not this one."""


class JudgeEndpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Where the judging model is, and how patiently it is asked."""

    url: str
    """Base address; ``/v1`` at its end may be left out."""
    model: str
    api_key: str = ""
    at_once: int = 4
    """Requests under way at a time."""
    timeout_s: float = 60.0
    """Of one attempt."""
    retries: int = 2
    """Further attempts after one that failed for a passing reason."""
    backoff_s: float = 0.5
    """Before the first of them, doubled each time, up to ``longest_backoff_s``."""
    longest_backoff_s: float = 8.0
    max_tokens: int = 1024


class _Message(msgspec.Struct, frozen=True):
    content: str | None = None


class _Choice(msgspec.Struct, frozen=True):
    message: _Message


class _Usage(msgspec.Struct, frozen=True):
    prompt_tokens: int = 0
    completion_tokens: int = 0


class _Completion(msgspec.Struct, frozen=True):
    choices: tuple[_Choice, ...]
    usage: _Usage | None = None


class Costs(msgspec.Struct):
    """What judging took."""

    calls: int = 0
    """Attempts, failed ones included."""
    retries: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    structured: bool = True
    """Replies are asked for in an exact form; false: the endpoint refuses that."""


@asynccontextmanager
async def open_endpoint(
    endpoint: JudgeEndpoint, chance: random.Random
) -> AsyncIterator[ChatEndpoint]:
    """Connections to the endpoint; ``chance`` spreads repeated attempts."""
    connector = aiohttp.TCPConnector(limit=endpoint.at_once)
    # Each attempt has its own bound.
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        yield ChatEndpoint(session, endpoint, chance)


class ChatEndpoint:
    """Completes chats; passing failures are tried again, a bounded number of times."""

    def __init__(
        self, session: aiohttp.ClientSession, endpoint: JudgeEndpoint, chance: random.Random
    ) -> None:
        self._session = session
        self._endpoint = endpoint
        self._chance = chance
        self._places = asyncio.Semaphore(endpoint.at_once)
        self.costs = Costs()

    async def complete(self, messages: Sequence[Message], form: Form | None = None) -> str:
        """The text of an answer; the last attempt's error when none succeeds.

        ``form`` is asked for as structured output. Where that is refused and the same request
        without it is not, it was the form, and this endpoint is sent none again.
        """
        if form is None or not self.costs.structured:
            return await self._persistently(messages, None)
        try:
            return await self._persistently(messages, form)
        except EngineRefused as error:
            if error.status not in _NO_FORM:
                raise
        said = await self._persistently(messages, None)
        self.costs.structured = False
        return said

    async def _persistently(self, messages: Sequence[Message], form: Form | None) -> str:
        endpoint = self._endpoint
        for attempt in range(endpoint.retries + 1):
            async with self._places:
                try:
                    return await self._attempt(messages, form)
                except EngineRefused as error:
                    if error.status not in _TRY_AGAIN or attempt == endpoint.retries:
                        raise
                except (DeadlineExceeded, Unavailable):
                    if attempt == endpoint.retries:
                        raise
            self.costs.retries += 1
            wait_s = min(endpoint.backoff_s * 2**attempt, endpoint.longest_backoff_s)
            await asyncio.sleep(wait_s * self._chance.uniform(0.5, 1.0))
        raise AssertionError("every attempt returns or raises")

    async def _attempt(self, messages: Sequence[Message], form: Form | None) -> str:
        endpoint = self._endpoint
        self.costs.calls += 1
        body: dict[str, Any] = {
            "model": endpoint.model,
            "messages": [{"role": one.role, "content": one.content} for one in messages],
            "temperature": 0,
            "max_tokens": endpoint.max_tokens,
        }
        if form is not None:
            body["response_format"] = form.response_format()
        headers = {"content-type": "application/json"}
        if endpoint.api_key:
            headers["authorization"] = f"Bearer {endpoint.api_key}"
        url = endpoint.url.rstrip("/").removesuffix("/v1") + "/v1/chat/completions"
        try:
            async with (
                asyncio.timeout(endpoint.timeout_s),
                self._session.post(url, data=msgspec.json.encode(body), headers=headers) as reply,
            ):
                said, status = await _whole(reply), reply.status
        except TimeoutError as error:
            raise DeadlineExceeded(
                f"the judge did not answer within {endpoint.timeout_s:g} s."
            ) from error
        except (aiohttp.ClientError, OSError) as error:
            raise Unavailable(f"the judge cannot be reached: {error}.") from error
        if status >= 400:
            text = said[:_SAID_CHARACTERS].decode("utf-8", "replace")
            raise EngineRefused(f"the judge answers {status}: {text}", status=status)
        return self._text(said)

    def _text(self, said: bytes) -> str:
        try:
            completion = msgspec.json.decode(said, type=_Completion)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise EngineError(
                f"the judge's endpoint does not speak the protocol: {error}."
            ) from error
        if completion.usage is not None:
            self.costs.prompt_tokens += completion.usage.prompt_tokens
            self.costs.completion_tokens += completion.usage.completion_tokens
        if not completion.choices:
            raise EngineError("the judge's answer has no choice.")
        return completion.choices[0].message.content or ""


async def _whole(reply: aiohttp.ClientResponse) -> bytes:
    """A body up to its bound; ``EngineError`` beyond."""
    parts: list[bytes] = []
    size = 0
    async for part in reply.content.iter_chunked(65_536):
        size += len(part)
        if size > _MAX_BYTES:
            raise EngineError("the judge's answer is too long.")
        parts.append(part)
    return b"".join(parts)
