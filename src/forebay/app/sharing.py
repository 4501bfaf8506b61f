"""Which quotas a process charges: its own, those of its folder's writer, or those in Redis."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from forebay.coordination.redis_quota import RedisAuthority, connections_most
from forebay.coordination.settings import CoordinationSettings
from forebay.kernel.clock import Clock, Deadline
from forebay.kernel.errors import ForebayError, Unavailable
from forebay.kernel.quotas import QuotaAuthority, QuotaCall, QuotaReply
from forebay.policy.connections import ConnectionSettings, ConnectionSizer
from forebay.policy.quota import (
    LeasedLedger,
    LedgerAuthority,
    QuotaLedger,
    Quotas,
    SharedQuotas,
    SharingSettings,
)
from forebay.store.remote import Emit, Handler, WriterClient

log = logging.getLogger("forebay.admission")
OPERATION = "quota"
CALL_S = 5.0
LEAVE_S = 1.0
LEAST_CONNECTIONS = 4
"""Kept however little is asked, while they are used now and then (F0.3: bounds 4 to 12)."""


class SocketAuthority:
    """The writer of a folder as the authority of its reader processes."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self._client = WriterClient(folder)
        self._clock = clock

    async def exchange(self, call: QuotaCall) -> QuotaReply:
        """See ``QuotaAuthority``."""
        deadline = Deadline.after(CALL_S, self._clock)
        try:
            value = await self._client.call(OPERATION, call, deadline=deadline)
            return msgspec.convert(value, QuotaReply)
        except (ForebayError, msgspec.ValidationError) as error:
            raise Unavailable("the writer does not keep the quotas at present.") from error

    async def close(self) -> None:
        """Nothing is held: a call is a connection."""


def handlers(quotas: Quotas, clock: Clock) -> Mapping[str, Handler]:
    """What a writer does for the quotas of other processes; nothing where Redis keeps them."""
    if not isinstance(quotas, QuotaLedger):
        return {}
    authority = LedgerAuthority(quotas, clock, itself=1)

    async def exchange(payload: Any, _emit: Emit) -> QuotaReply:
        return authority.carry_out(msgspec.convert(payload, QuotaCall))

    return {OPERATION: exchange}


def authority_of(
    settings: CoordinationSettings, folder: Path, clock: Clock, *, writes: bool
) -> QuotaAuthority | None:
    """Who keeps the quotas; None: this process itself."""
    if settings.redis_url:
        most = connections_most(settings)
        bounds = ConnectionSettings(least=min(LEAST_CONNECTIONS, most), most=most)
        return RedisAuthority(settings, ConnectionSizer(bounds), clock)
    return None if writes else SocketAuthority(folder, clock)


@asynccontextmanager
async def open_sharing(
    settings: CoordinationSettings, authority: QuotaAuthority, clock: Clock, max_buckets: int
) -> AsyncIterator[SharedQuotas]:
    """Quotas kept by ``authority`` while the block runs; unused leases go back at its end."""
    ledger = LeasedLedger(settings.lease_ms / 1000, settings.local_share, max_buckets)
    bounds = SharingSettings(settings.timeout_ms / 1000, settings.max_connections)
    shared = SharedQuotas(ledger, authority, clock, bounds, secrets.token_hex(8))
    shared.told = _told
    try:
        await shared.start()
        async with asyncio.TaskGroup() as group:
            task = group.create_task(shared.run())
            try:
                yield shared
            finally:
                task.cancel()
        async with asyncio.timeout(LEAVE_S):
            await shared.leave()
    except TimeoutError:
        log.warning("leases of quotas were not given back in time; they return with the refill")
    finally:
        await authority.close()


def shortcomings(shared: SharedQuotas | None) -> tuple[str, ...]:
    """What works at less than its best, in sentences."""
    if shared is None or not shared.alone:
        return ()
    return ("quotas are decided by each process alone, on its share: their keeper does not answer",)


def _told(lost: Exception | None) -> None:
    if lost is None:
        log.info("the keeper of the quotas answers again")
        return
    why = "it takes too long" if isinstance(lost, TimeoutError) else lost.__cause__ or lost
    log.warning("the keeper of the quotas does not answer; deciding alone on a share: %s", why)
