"""Quotas of many machines in Redis or Valkey: one script call carries out one exchange.

All keys share one hash tag, as a script behind a cluster's proxy needs it, and end by themselves
when their bucket would be full.
"""

from __future__ import annotations

import hashlib
import math
from functools import partial
from importlib.resources import files
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import NoScriptError

from forebay.coordination.connections import Connections
from forebay.coordination.redis_client import OUTAGES, address_checked, client_options
from forebay.coordination.settings import CoordinationSettings
from forebay.kernel.clock import Clock, SystemClock
from forebay.kernel.errors import Unavailable
from forebay.kernel.quotas import LEASE_SHARE, PRESENCE_S, QuotaCall, QuotaReply
from forebay.kernel.sizing import Sizing

_ACQUIRE_SHARE = 0.5
"""Of the longest wait of a request: who has no connection by then is told so, in time."""
_SCRIPT = files("forebay.coordination").joinpath("redis_quota.lua").read_text(encoding="utf-8")
# What EVALSHA calls a script by; nothing is protected by it.
_SHA = hashlib.sha1(_SCRIPT.encode(), usedforsecurity=False).hexdigest()


_CLOCK = SystemClock()


class RedisAuthority:
    """See ``forebay.kernel.quotas.QuotaAuthority``.

    Waits are bounded by the caller, and shorter for a connection.
    """

    def __init__(
        self, settings: CoordinationSettings, sizing: Sizing | None = None, clock: Clock = _CLOCK
    ) -> None:
        most = connections_most(settings)
        make = partial(
            Redis.from_url,
            settings.redis_url,
            max_connections=1,
            **client_options(),
            decode_responses=True,
        )
        with address_checked():
            _ = make()
        self.connections = Connections(
            make,
            sizing or _KeepAll(most),
            clock,
            most=most,
            acquire_s=_ACQUIRE_SHARE * settings.timeout_ms / 1000,
        )
        self._tag = f"{{{settings.redis_prefix}:quota}}"

    async def exchange(self, call: QuotaCall) -> QuotaReply:
        """See ``QuotaAuthority``."""
        keys = [f"{self._tag}:{one.dimension}:{one.key}" for one in call.buckets]
        keys.append(f"{self._tag}:processes")
        keys += [f"{self._tag}:places:{one.key}" for one in call.places]
        words = (*keys, *_arguments(call))
        try:
            async with self.connections.use() as redis:
                try:
                    found = await redis.evalsha(_SHA, len(keys), *words)
                except NoScriptError:
                    # A restart or a failover forgot it; this call brings it again.
                    found = await redis.eval(_SCRIPT, len(keys), *words)
                # Here: a connection that answered something else is closed, not used again.
                return _reply(found, call)
        except OUTAGES as error:
            raise Unavailable("Redis does not keep the quotas at present.") from error

    async def close(self) -> None:
        """Close every connection."""
        await self.connections.close()


def connections_most(settings: CoordinationSettings) -> int:
    """Connections there may be: one a call, and one each for the beat and for places at work."""
    return settings.max_connections + 2


class _KeepAll:
    """Keeps whatever was opened."""

    def __init__(self, most: int) -> None:
        self._most = most

    def began(self, _now: float) -> None:
        """Nothing to learn."""

    def ended(self, _now: float) -> None:
        """Nothing to learn."""

    def kept(self, _now: float) -> int:
        """All there may be."""
        return self._most


def _arguments(call: QuotaCall) -> list[str | int | float]:
    words: list[str | int | float] = [len(call.buckets), LEASE_SHARE, PRESENCE_S]
    words += (call.process, call.number)
    for of in call.places:
        words += (of.most, of.held, of.wanted, of.extra)
    for one in call.buckets:
        words += (one.rate_per_s, one.burst, one.charge, one.extra, one.unit)
    for wanted in call.reservations:
        words.append(len(wanted))
        for index, amount in wanted:
            words += (index + 1, amount)
    return words


def _reply(found: Any, call: QuotaCall) -> QuotaReply:
    """What the script returned; ``ValueError`` and the like for what it never returns."""
    present, answer, refusals, places = found
    reply = QuotaReply(
        levels=tuple(map(float, answer[::3])),
        extras=tuple(map(float, answer[1::3])),
        untaken=tuple(map(float, answer[2::3])),
        refusals=tuple(
            None if worst == 0 else (range(len(call.buckets))[worst - 1], _seconds(wait_s))
            for worst, wait_s in zip(refusals[::2], refusals[1::2], strict=True)
        ),
        processes=int(present),
        places=tuple(zip(map(int, places[::2]), map(int, places[1::2]), strict=True)),
    )
    told = [len(reply.levels), len(reply.extras), len(reply.untaken)]
    told += [len(reply.refusals), len(reply.places)]
    if told != [len(call.buckets)] * 3 + [len(call.reservations), len(call.places)]:
        raise ValueError("the answer is to another call")
    if not all(map(math.isfinite, (*reply.levels, *reply.extras, *reply.untaken))):
        raise ValueError("no bucket holds that")
    return reply


def _seconds(text: str) -> float:
    """C libraries write infinity as ``inf`` or ``Infinity``; Python reads both."""
    seconds = float(text)
    return seconds if seconds >= 0 else math.inf
