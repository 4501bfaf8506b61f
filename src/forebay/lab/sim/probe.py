"""One streamed request to an OpenAI-compatible endpoint, and when its tokens came."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import aiohttp
import msgspec

from forebay.kernel.clock import Clock
from forebay.kernel.errors import (
    ConfigError,
    DeadlineExceeded,
    EngineError,
    EngineRefused,
    Unavailable,
)
from forebay.wire.sse import EventTooLong, SseDecoder

_MAX_BODY_BYTES = 4 << 20


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Where to ask, and as whom."""

    url: str
    """Base address; `/v1` at its end may be left out."""
    model: str = ""
    """Empty: the first that `/v1/models` lists."""
    api_key: str = ""
    timeout_s: float = 120.0
    """Of one request, its last token included."""
    ignore_eos: bool = True
    """Ask for all tokens whatever the model would write: vLLM, SGLang and llama.cpp know the
    field, most others pass over it, a few refuse it."""
    extra: dict[str, Any] = {}
    """Fields that every request's body gets besides."""

    def address(self, path: str) -> str:
        """The full address of a path below `/v1`."""
        return f"{self.root()}/v1/{path}"

    def root(self) -> str:
        """The address without `/v1`."""
        return self.url.rstrip("/").removesuffix("/v1")

    def headers(self) -> dict[str, str]:
        """What goes with every request."""
        return {"authorization": f"Bearer {self.api_key}"} if self.api_key else {}


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """One answer: times on the caller's clock, tokens as the endpoint counts them."""

    started_at: float
    arrivals: tuple[tuple[float, float], ...]
    """When a piece of text came, and how many tokens had come with it."""
    ended_at: float
    prompt_tokens: int
    output_tokens: int

    @property
    def first_at(self) -> float:
        """When the first token came; an earlier time than its piece's when that held several."""
        at, tokens = self.arrivals[0]
        last_at, total = self.arrivals[-1]
        if tokens <= 1 or total <= tokens:
            return at
        return at - (tokens - 1) * (last_at - at) / (total - tokens)

    @property
    def last_at(self) -> float:
        """When the last token came."""
        return self.arrivals[-1][0]

    @property
    def ttft_s(self) -> float:
        """From sending to the first token."""
        return self.first_at - self.started_at

    def between(self, begin: float, end: float) -> tuple[float, float, float]:
        """Seconds and tokens of what came from ``begin`` to ``end``, and those written half-way.

        From the first piece's end to the last one's; zeros when there are not two of them.
        """
        inside = [arrival for arrival in self.arrivals if begin <= arrival[0] <= end]
        if len(inside) < 2:
            return 0.0, 0.0, 0.0
        tokens = inside[-1][1] - inside[0][1]
        return inside[-1][0] - inside[0][0], tokens, inside[0][1] + tokens / 2


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None


class _Choice(msgspec.Struct):
    delta: _Delta | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int = 0
    completion_tokens: int = 0


class _Chunk(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: Any = None


async def ask(
    session: aiohttp.ClientSession,
    endpoint: Endpoint,
    clock: Clock,
    text: str,
    output_tokens: int,
    on_first: Callable[[], None] = lambda: None,
) -> Observation:
    """Send one question and take its streamed answer of ``output_tokens`` tokens.

    ``on_first`` is called when the first text comes. ``Unavailable`` when nobody answers,
    ``ConfigError`` for a refused key, address or model, ``DeadlineExceeded`` past the time-out,
    ``EngineRefused`` for another status, ``EngineError`` for anything that is no such stream.
    """
    body = {
        "model": endpoint.model,
        "messages": [{"role": "user", "content": text}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": output_tokens,
        "temperature": 0,
        **({"ignore_eos": True} if endpoint.ignore_eos else {}),
        **endpoint.extra,
    }
    started_at = clock.now()
    try:
        async with (
            asyncio.timeout(endpoint.timeout_s),
            session.post(
                endpoint.address("chat/completions"), json=body, headers=endpoint.headers()
            ) as response,
        ):
            await refuse(response, endpoint)
            if "text/event-stream" not in response.headers.get("content-type", ""):
                raise EngineError(
                    f"{endpoint.root()} does not stream its answers; calibration needs an "
                    "endpoint that does."
                )
            return await _read(response, clock, started_at, on_first)
    except TimeoutError as error:
        raise DeadlineExceeded(
            f"{endpoint.root()} took more than {endpoint.timeout_s:g} s for one answer; give "
            "more time, or shorter prompts."
        ) from error
    except aiohttp.ClientConnectorError as error:
        raise Unavailable(
            f"Nothing answers at {endpoint.root()}; start the endpoint or correct the address."
        ) from error
    except (aiohttp.ClientError, EventTooLong) as error:
        raise EngineError(f"{endpoint.root()} broke off in the middle of an answer.") from error


async def refuse(response: aiohttp.ClientResponse, endpoint: Endpoint) -> None:
    """Raise what a status that is no success means here."""
    status = response.status
    if status < 400:
        return
    if status in (401, 403):
        raise ConfigError(
            f"{endpoint.root()} wants another key (status {status}); give the right one."
        )
    if status == 404:
        raise ConfigError(
            f"{endpoint.root()} knows no such address or model (status 404); correct the address "
            f"or the model's name {endpoint.model!r}."
        )
    said = " ".join((await response.content.read(300)).decode("utf-8", "replace").split())
    raise EngineRefused(f"{endpoint.root()} answered with status {status}: {said}", status=status)


async def first_model(session: aiohttp.ClientSession, endpoint: Endpoint) -> str:
    """The first model that the endpoint lists."""
    try:
        async with (
            asyncio.timeout(endpoint.timeout_s),
            session.get(endpoint.address("models"), headers=endpoint.headers()) as response,
        ):
            await refuse(response, endpoint)
            listed = await response.content.read(_MAX_BODY_BYTES)
    except TimeoutError as error:
        raise DeadlineExceeded(f"{endpoint.root()} does not say which models it has.") from error
    except aiohttp.ClientConnectorError as error:
        raise Unavailable(
            f"Nothing answers at {endpoint.root()}; start the endpoint or correct the address."
        ) from error
    except aiohttp.ClientError as error:
        raise EngineError(f"{endpoint.root()} does not say which models it has.") from error
    try:
        found = msgspec.json.decode(listed, type=_Models).data
    except msgspec.DecodeError as error:
        raise EngineError(f"{endpoint.root()} does not say which models it has.") from error
    if not found:
        raise ConfigError(f"{endpoint.root()} lists no model; name one.")
    return found[0].id


class _Named(msgspec.Struct):
    id: str


class _Models(msgspec.Struct):
    data: list[_Named]


async def _read(
    response: aiohttp.ClientResponse,
    clock: Clock,
    started_at: float,
    on_first: Callable[[], None],
) -> Observation:
    pieces: list[tuple[float, int]] = []
    usage: _Usage | None = None
    events = SseDecoder(_MAX_BODY_BYTES)
    async for data in response.content.iter_any():
        at = clock.now()
        for event in events.feed(data):
            if event.data.strip() == "[DONE]":
                continue
            try:
                chunk = msgspec.json.decode(event.data, type=_Chunk)
            except msgspec.DecodeError as error:
                raise EngineError("The endpoint streams something else than answers.") from error
            if chunk.error is not None:
                raise EngineError("The endpoint reported an error in its answer.")
            usage = chunk.usage or usage
            for choice in chunk.choices or ():
                delta = choice.delta
                text = delta and (delta.content or delta.reasoning_content)
                if text:
                    if not pieces:
                        on_first()
                    pieces.append((at, len(text)))
    if usage is None:
        raise EngineError(
            "The endpoint does not tell the tokens it used (stream_options.include_usage), and "
            "without them no rate can be fitted."
        )
    if not pieces:
        raise EngineError("The endpoint's answer had no text.")
    return Observation(
        started_at=started_at,
        arrivals=_counted(pieces, usage.completion_tokens),
        ended_at=clock.now(),
        prompt_tokens=usage.prompt_tokens,
        output_tokens=usage.completion_tokens,
    )


def _counted(pieces: list[tuple[float, int]], tokens: int) -> tuple[tuple[float, float], ...]:
    """How many tokens had come with each piece.

    One each where there are as many pieces as tokens (a token or two may have no text); else the
    tokens are shared out by the pieces' lengths.
    """
    one_each = len(pieces) >= tokens - 2
    whole = len(pieces) if one_each else sum(length for _, length in pieces)
    arrivals: list[tuple[float, float]] = []
    sofar = 0
    for at, length in pieces:
        sofar += 1 if one_each else length
        tokens_now = sofar * (1.0 if one_each else tokens / whole)
        if arrivals and arrivals[-1][0] == at:
            arrivals.pop()
        arrivals.append((at, tokens_now))
    return tuple(arrivals)
