"""A process that takes places of a tenant at work and holds them until it is killed.

``python place_process.py KEEPER MOST COUNT``: KEEPER is a Redis address or the folder of a writer.
It asks COUNT times for one of MOST places and prints how many it got.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from forebay.app.sharing import SocketAuthority, open_sharing
from forebay.coordination.redis_quota import RedisAuthority
from forebay.coordination.settings import CoordinationSettings
from forebay.kernel.clock import SystemClock


async def main(keeper: str, most: int, count: int) -> None:
    clock = SystemClock()
    # Patient, so that a slow machine does not let a process decide alone.
    settings = CoordinationSettings(redis_url=keeper, timeout_ms=5000.0)
    redis = keeper.startswith("redis://")
    authority = RedisAuthority(settings) if redis else SocketAuthority(Path(keeper), clock)
    async with open_sharing(settings, authority, clock, 1000) as shared:
        got = sum([await shared.places.enter("t", most) for _ in range(count)])
        sys.stdout.write(f"{got}\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    keeper, most, count = sys.argv[1:]
    asyncio.run(main(keeper, int(most), int(count)))
