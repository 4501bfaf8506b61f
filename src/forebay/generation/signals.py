"""What engines show of themselves: whether they live, how many wait inside, how full the cache is.

Reads vLLM's metric names, and those of SGLang and llama.cpp where they say the same. An engine that
shows nothing is only asked whether it answers at all.
"""

from __future__ import annotations

import asyncio
import math
import re

import aiohttp
import msgspec

_WAITING = frozenset(
    {b"vllm:num_requests_waiting", b"sglang:num_queue_reqs", b"llamacpp:requests_deferred"}
)
_KV_USE = frozenset(
    {b"vllm:kv_cache_usage_perc", b"vllm:gpu_cache_usage_perc", b"sglang:token_usage",
     b"llamacpp:kv_cache_usage_ratio"}
)  # fmt: skip
_LINE = re.compile(
    rb"^(%s)(?:\{[^}\n]*\})?[ \t]+([0-9.eE+-]+)" % b"|".join(sorted(_WAITING | _KV_USE)),
    re.MULTILINE,
)
_MOST_BYTES = 4 * 1024 * 1024
_MOST_WAITING = 1e9
_ABSENT = frozenset({401, 403, 404, 405, 501})


class EngineSignal(msgspec.Struct, frozen=True):
    """One look at an engine; None where it does not say."""

    alive: bool
    waiting: int | None = None
    kv_use: float | None = None


class EngineEye:
    """Looks at engines over HTTP; one connection each, ended by ``close``."""

    def __init__(self, timeout_s: float) -> None:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit_per_host=1),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=timeout_s),
        )
        self._mute: set[str] = set()

    async def look(self, base_url: str) -> EngineSignal:
        """Ask one engine; never raises for what it answers or does not."""
        root = base_url.rstrip("/").removesuffix("/v1")
        try:
            alive = await self._alive(root)
        except (aiohttp.ClientError, OSError, TimeoutError):
            return EngineSignal(False)
        if not alive or root in self._mute:
            return EngineSignal(alive)
        try:
            return await self._figures(root)
        except (aiohttp.ClientError, OSError, TimeoutError):
            # A page of figures that is late or broken says nothing about answers.
            return EngineSignal(True)

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()

    async def _alive(self, root: str) -> bool:
        async with self._session.get(f"{root}/health", allow_redirects=False) as answer:
            # Who has no such page lives too.
            return answer.status < 400 or answer.status in _ABSENT

    async def _figures(self, root: str) -> EngineSignal:
        async with self._session.get(f"{root}/metrics", allow_redirects=False) as answer:
            if answer.status != 200:
                self._mute.add(root)
                return EngineSignal(True)
            return read_signal(await _beginning(answer.content))


async def _beginning(content: aiohttp.StreamReader) -> bytes:
    """The page, or as much of it as is read: one read gives what has arrived, not all."""
    page = bytearray()
    while len(page) < _MOST_BYTES and (piece := await content.read(_MOST_BYTES - len(page))):
        page += piece
    return bytes(page)


def read_signal(page: bytes) -> EngineSignal:
    """What a metrics page says; several engines behind one address are added up.

    What cannot be, such as a share of memory over 1, is as if it were not there.
    """
    waiting: int | None = None
    kv_use: float | None = None
    for name, text in _LINE.findall(page):
        if name in _WAITING:
            if (requests := _number(text, _MOST_WAITING)) is not None:
                waiting = (waiting or 0) + int(requests)
        elif name in _KV_USE and (share := _number(text, 1.0)) is not None:
            kv_use = max(kv_use or 0.0, share)
    return EngineSignal(True, waiting, kv_use)


def _number(text: bytes, most: float) -> float | None:
    """A number from 0 to ``most``; None for anything else."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) and 0 <= number <= most else None


async def look_at_all(eye: EngineEye, urls: tuple[str, ...]) -> list[EngineSignal]:
    """One look at each, side by side."""
    return list(await asyncio.gather(*(eye.look(url) for url in urls)))
