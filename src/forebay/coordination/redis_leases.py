"""Versions and leases of many machines in Redis or Valkey: one script call is one exchange.

All keys share one hash tag, as a script behind a cluster's proxy needs it. The server's clock
decides when leases end. Setting it back, or forwards by more than some seconds, is noticed: for one
lease changes are then acknowledged by their writer's own clock. A smaller step forwards is not, and
should be slewed: leases would end by the server's clock before their holders'.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from importlib.resources import files
from typing import Any

from redis.asyncio import BlockingConnectionPool, Redis
from redis.exceptions import NoScriptError

from forebay.coordination.redis_client import CONNECT_S, OUTAGES, address_checked, client_options
from forebay.coordination.settings import CoordinationSettings
from forebay.kernel.errors import Unavailable
from forebay.kernel.leases import Grant, LeaseCall, LeaseReply, Seat

_CONNECTIONS = 8
_KEPT_S = 7 * 24 * 3600
_SCRIPT = files("forebay.coordination").joinpath("redis_leases.lua").read_text(encoding="utf-8")
# What EVALSHA calls a script by; nothing is protected by it.
_SHA = hashlib.sha1(_SCRIPT.encode(), usedforsecurity=False).hexdigest()


class RedisVersions:
    """See ``forebay.kernel.leases.VersionAuthority``.

    Waits are bounded by the caller. A connection whose call was cut off is closed, since its
    answer may still come; the next call opens another.
    """

    def __init__(self, settings: CoordinationSettings) -> None:
        with address_checked():
            pool = BlockingConnectionPool.from_url(
                settings.redis_url,
                max_connections=_CONNECTIONS,
                timeout=CONNECT_S,
                **client_options(),
                decode_responses=True,
            )
        self._redis: Redis = Redis(connection_pool=pool)
        self._tag = f"{{{settings.redis_prefix}:versions}}"

    async def exchange(self, call: LeaseCall) -> LeaseReply:
        """See ``VersionAuthority``."""
        keys, words = self._words(call)
        try:
            try:
                found = await self._redis.evalsha(_SHA, len(keys), *keys, *words)
            except NoScriptError:
                # A restart or a failover forgot it; this call brings it again.
                found = await self._redis.eval(_SCRIPT, len(keys), *keys, *words)
            return _reply(found)
        except OUTAGES as error:
            # Of a connection that answered something else nobody knows what it answers next.
            with suppress(*OUTAGES):
                await self._redis.connection_pool.disconnect(inuse_connections=False)
            raise Unavailable("Redis does not keep the versions at present.") from error

    def _words(self, call: LeaseCall) -> tuple[list[str], list[str | int | float]]:
        places: dict[str, int] = {}

        def place(kb: str) -> int:
            return places.setdefault(kb, len(places) + 1)

        words: list[str | int | float] = [call.holder, call.lease_s, int(call.leaves), _KEPT_S]
        words.append(len(call.claims))
        for claim in call.claims:
            words += (place(claim.kb), claim.store, claim.version, claim.mark, int(claim.held))
        for pending in (call.begun, call.done):
            words.append(len(pending))
            for one in pending:
                words += (place(one.kb), one.version, one.change, one.mark)
        words.append(len(call.confirmed))
        for kb, version in call.confirmed:
            words += (place(kb), version)
        words += (len(call.asked), *map(place, call.asked))
        return [self.key(kb) for kb in places], words

    def key(self, kb: str) -> str:
        """Where all that is known of ``kb`` is kept."""
        return f"{self._tag}:{kb}"

    async def close(self) -> None:
        """Close every connection."""
        await self._redis.aclose(close_connection_pool=True)


def _reply(found: Any) -> LeaseReply:
    granted, lowest, seats = found
    triples = zip(granted[::3], granted[1::3], granted[2::3], strict=True)
    grants = tuple(Grant(float(s), int(float(version)), change) for s, version, change in triples)
    triples = zip(seats[::3], seats[1::3], seats[2::3], strict=True)
    seated = tuple(Seat(refusal, int(float(version)), mark) for refusal, version, mark in triples)
    return LeaseReply(grants, tuple(int(float(each)) for each in lowest), seated)
