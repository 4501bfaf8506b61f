"""The ladder of retrieval: ordered rungs of one protocol, left for the next and regained.

A rung needs parts (vectors, words); each part has a breaker. A rung is left when a part it needs
is out of order or turns it away, or when a part fails it on the way; the next one that can answers,
and the answer says so. A part that is out of order is tried by single probes in the background,
whose time no request pays for.

When a part proves to hang, those who wait for it are sent down at once: whatever the load, one
request pays the time-out.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Annotated

import msgspec
from msgspec import Meta

from forebay.kernel.clock import Clock, Deadline
from forebay.kernel.context import Principal, RequestContext
from forebay.kernel.errors import ForebayError, PartFailed, Unavailable
from forebay.kernel.stages import Retriever, SearchRequest, SearchResult
from forebay.policy.breaker import Breaker, BreakerSettings, Use

log = logging.getLogger("forebay.ladder")

STAGE = "retrieval"
_UNFORESEEN = "error"
_LEAST_SLEEP_S = 0.01
_PATIENCE = 10.0
"""So many times the time it is allowed a probe may take on a machine that has much else to do:
only the part's own time tells whether it is back."""


class VectorBreakerSettings(BreakerSettings, frozen=True, forbid_unknown_fields=True):
    """When retrieval does without vectors."""

    latency_ms: Annotated[
        float,
        Meta(
            description="Latency at which it is left, at the quantile below (F0.11: P99 over 300 "
            "ms); 0: none.",
            ge=0.0,
        ),
    ] = 300.0
    hit_rate: Annotated[
        float,
        Meta(
            description="Share of requests whose best word hit, where words are fairly sure, is "
            "among the first ten by vector, under which they are left (F0.11); 0: none.",
            ge=0.0,
            le=1.0,
        ),
    ] = 0.65
    max_in_flight: Annotated[
        int, Meta(description="Uses at once; what is over it is turned away.", ge=1)
    ] = 64


class WordsBreakerSettings(BreakerSettings, frozen=True, forbid_unknown_fields=True):
    """When retrieval does without BM25."""

    latency_ms: Annotated[
        float,
        Meta(
            description="Latency at which it is left, at the quantile below (F0.11: over 80 ms); "
            "0: none.",
            ge=0.0,
        ),
    ] = 80.0
    latency_quantile: Annotated[
        float, Meta(description="The quantile of recent latencies that is meant.", gt=0.0, lt=1.0)
    ] = 0.5
    max_per_s: Annotated[
        float,
        Meta(description="Uses a second; what is over it is turned away (F0.11). 0: any.", ge=0.0),
    ] = 5000.0


class LadderSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When retrieval goes down a rung."""

    vector: VectorBreakerSettings = VectorBreakerSettings()
    words: WordsBreakerSettings = WordsBreakerSettings()


class Rung(msgspec.Struct, frozen=True):
    """One way to answer, with the parts it needs.

    ``spare``: stands in for a part that is broken, and is no relief when one has too much to do.
    """

    name: str
    retriever: Retriever
    needs: tuple[str, ...] = ()
    spare: bool = False


class Part:
    """Something that several rungs need.

    ``probe`` finds something by it, and nothing else; the part is back when it worked no longer
    than ``probe_s`` for that.
    """

    def __init__(self, name: str, breaker: Breaker, probe: Retriever, probe_s: float) -> None:
        self.name = name
        self.breaker = breaker
        self.probe = probe
        self.probe_s = probe_s
        self.waiting: set[asyncio.Timeout] = set()
        self.asked: tuple[Principal, SearchRequest] | None = None
        self.left_at: float | None = None

    @property
    def why(self) -> str:
        """Why it is not used, as answers tell it."""
        return f"{self.name}_{self.breaker.why or 'load'}"


class LadderRetriever:
    """``Retriever`` over rungs, best first; ended by ``close``.

    ``sleep`` waits for the next probe.
    """

    def __init__(
        self,
        rungs: Sequence[Rung],
        parts: Sequence[Part],
        clock: Clock,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._parts = {part.name: part for part in parts}
        self._rungs = [(rung, tuple(self._parts[name] for name in rung.needs)) for rung in rungs]
        self._clock = clock
        self._sleep = sleep
        self._probing: dict[str, asyncio.Task[None]] = {}
        self._closed = False

    async def retrieve(self, ctx: RequestContext, request: SearchRequest) -> SearchResult:
        """Return what the first rung that can finds; steps down are told in the context.

        Raises what a rung raises for the request's own sake, ``Unavailable`` when none can answer.
        """
        left: list[str] = []
        broken = False
        for rung, parts in self._rungs:
            if rung.spare and not broken:
                continue
            try:
                result = await self._by(rung, parts, ctx, request)
            except _Left as why:
                left.append(why.reason)
                broken = broken or why.broken
                continue
            except ForebayError:
                # A deadline or a client's error is the request's own.
                raise
            # What nobody foresaw is the rung's, and the next one may know better.
            except Exception:
                log.exception("the rung %s failed", rung.name)
                left.append(_UNFORESEEN)
                broken = True
                continue
            if left and not result.sure:
                ctx.degrade(STAGE, result.rung, ", ".join(dict.fromkeys(left)))
            ctx.coverage = result.coverage
            return result
        raise Unavailable("Nothing can be searched at present; try again shortly.")

    def statistics(self) -> Mapping[str, Mapping[str, float]]:
        """Figures of every breaker, by part."""
        return {name: part.breaker.statistics() for name, part in self._parts.items()}

    def shortcomings(self) -> tuple[str, ...]:
        """Which parts are not used, in sentences."""
        now = self._clock.now()
        return tuple(
            f"{STAGE} does without {part.name} for {now - part.left_at:.0f} s ({part.breaker.why})"
            for part in self._parts.values()
            if part.left_at is not None
        )

    async def close(self) -> None:
        """End probing."""
        self._closed = True
        tasks = tuple(self._probing.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _by(
        self, rung: Rung, parts: tuple[Part, ...], ctx: RequestContext, request: SearchRequest
    ) -> SearchResult:
        """One rung's answer; ``_Left`` when it cannot give one."""
        if not parts:
            return await _alone(rung, ctx, request)
        uses = self._enter(parts, ctx, request)
        scope = asyncio.timeout(None)
        try:
            async with scope:
                result = await _unless_told(scope, parts, rung, ctx, request)
            self._report(parts, uses, result)
            return result
        except PartFailed as error:
            raise self._failed(parts, uses, error, (ctx.principal, request)) from error
        except TimeoutError:
            if not scope.expired():
                raise
            reason = next((part.why for part in parts if part.left_at is not None), parts[0].why)
            raise _Left(reason, broken=True) from None
        finally:
            now = self._clock.now()
            for use in uses:
                use.ignored(now)

    def _enter(
        self, parts: tuple[Part, ...], ctx: RequestContext, request: SearchRequest
    ) -> list[Use]:
        now, uses = self._clock.now(), list[Use]()
        for part in parts:
            use = part.breaker.enter(now)
            if isinstance(use, Use):
                uses.append(use)
                continue
            for taken in uses:
                taken.ignored(now)
            if use != "load":
                part.asked = (ctx.principal, request)
            raise _Left(f"{part.name}_{use}", broken=use not in ("load", "slow"))
        return uses

    def _report(self, parts: tuple[Part, ...], uses: Sequence[Use], result: SearchResult) -> None:
        now = self._clock.now()
        for part, use in zip(parts, uses, strict=True):
            for used in result.uses:
                if used.part == part.name:
                    use.succeeded(now, used.took_s, found=used.found)
                    self._look(part, now)

    def _failed(
        self,
        parts: tuple[Part, ...],
        uses: Sequence[Use],
        error: PartFailed,
        asked: tuple[Principal, SearchRequest],
    ) -> _Left:
        now = self._clock.now()
        for part, use in zip(parts, uses, strict=True):
            if part.name == error.part and (error.at_fault or error.busy):
                part.asked = asked
                if error.busy:
                    use.starved(now, error.late_s)
                elif error.late_s:
                    use.timed_out(now, error.late_s)
                else:
                    use.failed(now)
                self._look(part, now)
        return _Left(error.reason, broken=not error.busy)

    # Parts that are left, and regained.

    def _look(self, part: Part, now: float) -> None:
        """Act when a part has just been left."""
        if part.breaker.state == "closed" or part.left_at is not None:
            return
        part.left_at = now
        log.warning("%s does without %s (%s)", STAGE, part.name, part.breaker.why)
        if part.breaker.why == "silent":
            at = asyncio.get_running_loop().time()
            for scope in part.waiting:
                # One that another part has just told the same is on its way already.
                with suppress(RuntimeError):
                    scope.reschedule(at)
        if not self._closed:
            work = self._regain(part)
            self._probing[part.name] = asyncio.get_running_loop().create_task(work)

    async def _regain(self, part: Part) -> None:
        """Probe a part until it is back."""
        breaker = part.breaker
        while breaker.state != "closed":
            await self._sleep(max(_LEAST_SLEEP_S, breaker.rests_s(self._clock.now())))
            use = breaker.probe(self._clock.now())
            if use is None:
                continue
            try:
                await self._probe(part, use)
            finally:
                use.ignored(self._clock.now())
        left_at, part.left_at = part.left_at, None
        away_s = self._clock.now() - (left_at or 0.0)
        log.info("%s has %s again after %.1f s", STAGE, part.name, away_s)

    async def _probe(self, part: Part, use: Use) -> None:
        """Ask a part what was asked last; only what comes in good time is a success."""
        assert part.asked is not None
        principal, request = part.asked
        patience_s = _PATIENCE * part.probe_s
        ctx = RequestContext(
            request_id="probe",
            principal=principal,
            # A part may take up half of what is left: this leaves it its own time-out.
            deadline=Deadline.after(4 * patience_s, self._clock),
            clock=self._clock,
            no_cache=True,
        )
        began_at = self._clock.now()
        try:
            async with asyncio.timeout(patience_s):
                result = await part.probe.retrieve(ctx, request)
        except PartFailed as error:
            if error.at_fault:
                use.failed(self._clock.now())
            return
        # Whatever a probe raises, the part is not back; a bug in it must not end the probing.
        except Exception:
            use.failed(self._clock.now())
            return
        now = self._clock.now()
        own_s = [used.took_s for used in result.uses if used.part == part.name]
        took_s = max(own_s, default=now - began_at)
        if took_s <= part.probe_s:
            use.succeeded(now, took_s)
        else:
            use.failed(now)


class _Left(Exception):
    """A rung that could not answer; ``broken``: something does not work, as against too much."""

    def __init__(self, reason: str, *, broken: bool) -> None:
        super().__init__(reason)
        self.reason = reason
        self.broken = broken


async def _unless_told(
    scope: asyncio.Timeout,
    parts: tuple[Part, ...],
    rung: Rung,
    ctx: RequestContext,
    request: SearchRequest,
) -> SearchResult:
    """A rung's answer; whoever finds that one of its parts hangs may end ``scope`` before."""
    for part in parts:
        part.waiting.add(scope)
    try:
        return await rung.retriever.retrieve(ctx, request)
    finally:
        for part in parts:
            part.waiting.discard(scope)


async def _alone(rung: Rung, ctx: RequestContext, request: SearchRequest) -> SearchResult:
    try:
        return await rung.retriever.retrieve(ctx, request)
    except PartFailed as error:
        raise _Left(error.reason, broken=True) from error
