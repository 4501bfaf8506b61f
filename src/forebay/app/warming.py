"""One word from every engine before the service says it is ready, and again after idleness.

An engine's first answer after a start or a long pause takes far longer than its next (kernels are
compiled, weights read back, connections made): nobody should have to wait for it (F2.7, F1.14).
Warming gives way to everything else: a pool with work in it is left alone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Set
from contextlib import asynccontextmanager

from forebay.generation.openai import OpenAIGenerator
from forebay.generation.pools import Pool, Replica
from forebay.generation.settings import EngineSettings
from forebay.kernel.clock import Clock, Deadline
from forebay.kernel.context import Principal, RequestContext
from forebay.kernel.errors import DeadlineExceeded, ForebayError
from forebay.policy.admission import Admission

log = logging.getLogger("forebay.warming")
LOOK_S = 5.0
AGAIN_S = 10.0
LEAST_S = 10.0


class Warmer:
    """Keeps engines warm; ``busy`` says whether a pool has work of its own.

    ``resting`` names the replicas, by pool and number, that admission leaves alone: they are told
    by readiness and in the log, since nothing else tells an operator which engine to look at.
    The time a first answer may take is ``warm_timeout_s``; without waiting before ready, ten
    seconds.
    """

    def __init__(
        self,
        generator: OpenAIGenerator,
        busy: Callable[[str], bool],
        settings: EngineSettings,
        clock: Clock,
        resting: Callable[[], Set[tuple[str, int]]] = frozenset,
    ) -> None:
        self._generator = generator
        self._busy = busy
        self._resting = resting
        self._told: Set[tuple[str, int]] = frozenset()
        self._settings = settings
        self._clock = clock
        self._cold: dict[tuple[str, int], tuple[float, str]] = {}
        self._began_at = clock.now()
        self._done = asyncio.Event()
        if not settings.warm_timeout_s:
            self._done.set()

    def waiting(self) -> tuple[str, ...]:
        """What readiness still waits for."""
        return () if self._done.is_set() else ("warming the engines",)

    def shortcomings(self) -> tuple[str, ...]:
        """Engines that did not answer their first request or are left alone, in sentences."""
        cold = tuple(
            f"replica {number + 1} of pool {pool} failed when it was warmed: {why}"
            for (pool, number), (_, why) in self._cold.items()
        )
        alone = self._resting()
        resting = tuple(
            f"replica {number + 1} of pool {pool.settings.name} fails or hangs and is left alone"
            + _because(replica)
            for pool in self._generator.pools
            for number, replica in enumerate(pool.replicas)
            if (where := (pool.settings.name, number)) in alone and where not in self._cold
        )
        return cold + resting

    async def done(self) -> None:
        """Wait until every engine was warmed once, or had its time."""
        await self._done.wait()

    async def run(self) -> None:
        """Warm every engine once, then look after them until cancelled."""
        if not self._done.is_set():
            await self._all(lambda _pool, _number, _replica: True)
            self._done.set()
        while True:
            await asyncio.sleep(LOOK_S)
            await self.look()

    async def look(self) -> None:
        """Warm again what was idle for long, or did not answer the last time."""
        self._tell()
        await self._all(self._due)

    def _tell(self) -> None:
        """Log which engines are left alone now and which no longer."""
        resting = frozenset(self._resting())
        for pool in self._generator.pools:
            name = pool.settings.name
            for number, replica in enumerate(pool.replicas):
                before, now = (name, number) in self._told, (name, number) in resting
                if now and not before:
                    why = _because(replica)
                    log.warning(
                        "engine %s of pool %s fails or hangs%s: left alone", replica.url, name, why
                    )
                elif before and not now:
                    log.warning("engine %s of pool %s is used again", replica.url, name)
        self._told = resting

    def _due(self, pool: Pool, number: int, replica: Replica) -> bool:
        now, name = self._clock.now(), pool.settings.name
        if self._busy(name):
            return False
        cold = self._cold.get((name, number))
        if cold is not None:
            failed_at, _ = cold
            if replica.answered_at > failed_at:
                del self._cold[name, number]  # a client's request found it alive
                return False
            return now - failed_at >= AGAIN_S
        after_s = self._settings.warm_after_s
        return bool(after_s) and now - max(replica.answered_at, self._began_at) >= after_s

    async def _all(self, due: Callable[[Pool, int, Replica], bool]) -> None:
        async with asyncio.TaskGroup() as group:
            for pool in self._generator.pools:
                for number, replica in enumerate(pool.replicas):
                    if due(pool, number, replica):
                        group.create_task(self._warm(pool, number))

    async def _warm(self, pool: Pool, number: int) -> None:
        name, limit_s = pool.settings.name, self._settings.warm_timeout_s or LEAST_S
        ctx = RequestContext(
            request_id="warming",
            principal=Principal(),
            deadline=Deadline.after(limit_s, self._clock),
            clock=self._clock,
        )
        try:
            async with asyncio.timeout(limit_s):
                await self._generator.warm(ctx, pool, number)
        except (ForebayError, TimeoutError) as error:
            late = isinstance(error, TimeoutError | DeadlineExceeded)
            why = "no token in time" if late else str(error).rstrip(".")
            _, before = self._cold.get((name, number), (0.0, ""))
            if why != before:
                where = pool.replicas[number].url
                log.warning("engine %s of pool %s failed when warmed: %s", where, name, why)
            self._cold[name, number] = self._clock.now(), why
        else:
            self._cold.pop((name, number), None)


def _because(replica: Replica) -> str:
    return f" ({replica.failure.rstrip('.')})" if replica.failure else ""


@asynccontextmanager
async def open_warming(
    generator: object, admission: Admission, settings: EngineSettings, clock: Clock
) -> AsyncIterator[Warmer | None]:
    """Engines are kept warm while the block runs; None where there are none."""
    if not isinstance(generator, OpenAIGenerator):
        yield None
        return
    gates = admission.desk.gates

    def busy(pool: str) -> bool:
        gate = gates.get(pool)
        return gate is not None and bool(gate.queue or any(one.requests for one in gate.loads))

    def resting() -> frozenset[tuple[str, int]]:
        return frozenset(
            (pool.settings.name, number)
            for pool in generator.pools
            if pool.settings.name in gates
            for number, health in enumerate(gates[pool.settings.name].health)
            if health.state != "fit"
        )

    warmer = Warmer(generator, busy, settings, clock, resting)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(warmer.run())
        try:
            yield warmer
        finally:
            task.cancel()
