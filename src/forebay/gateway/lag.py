"""A watchdog that measures how late the event loop runs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from forebay.kernel.clock import Clock

log = logging.getLogger("forebay.gateway.lag")


async def watch_lag(
    clock: Clock,
    observe: Callable[[float], None],
    *,
    interval_s: float = 0.05,
    warn_above_s: float = 0.25,
) -> None:
    """Sleep ``interval_s`` again and again and observe by how much each sleep was late."""
    while True:
        due_at = clock.now() + interval_s
        await asyncio.sleep(interval_s)
        late_s = max(0.0, clock.now() - due_at)
        observe(late_s)
        if late_s > warn_above_s:
            log.warning("the event loop was blocked for %.0f ms", late_s * 1000)
