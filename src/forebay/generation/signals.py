"""What engines show of themselves: whether they live, how many wait inside, how full the cache is.

Reads vLLM's metric names, and those of SGLang and llama.cpp where they say the same. An engine that
shows nothing is only asked whether it answers at all.
"""

from __future__ import annotations

import asyncio
import re

import aiohttp
import msgspec

_LINE = re.compile(rb"^([a-zA-Z_:][\w:]*)(?:\{[^}\n]*\})?[ \t]+([0-9.eE+-]+)", re.MULTILINE)
_WAITING = frozenset(
    {b"vllm:num_requests_waiting", b"sglang:num_queue_reqs", b"llamacpp:requests_deferred"}
)
_KV_USE = frozenset(
    {b"vllm:kv_cache_usage_perc", b"vllm:gpu_cache_usage_perc", b"sglang:token_usage",
     b"llamacpp:kv_cache_usage_ratio"}
)  # fmt: skip
_MOST_BYTES = 4 * 1024 * 1024
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
            if not alive or root in self._mute:
                return EngineSignal(alive)
            return await self._figures(root)
        except (aiohttp.ClientError, OSError, TimeoutError):
            return EngineSignal(False)

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
            return read_signal(await answer.content.read(_MOST_BYTES))


def read_signal(page: bytes) -> EngineSignal:
    """What a metrics page says; several engines behind one address are added up."""
    waiting: int | None = None
    kv_use: float | None = None
    for name, text in _LINE.findall(page):
        if name in _WAITING:
            waiting = (waiting or 0) + int(float(text))
        elif name in _KV_USE:
            kv_use = max(kv_use or 0.0, float(text))
    return EngineSignal(True, waiting, kv_use)


async def look_at_all(eye: EngineEye, urls: tuple[str, ...]) -> list[EngineSignal]:
    """One look at each, side by side."""
    return list(await asyncio.gather(*(eye.look(url) for url in urls)))
