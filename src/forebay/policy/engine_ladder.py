"""The ladder of generation: the engines, a pool with a smaller model, quotations.

A rung is left only before its first token: what has begun goes on with whoever began it, or fails.
What speaks against a pool, and how it is tried again, is its gate's: a pool whose replicas have all
failed or hang is out, and single requests try them after each rest. So nobody waits for engines
that are known to be out, and nobody but those who try them pays.

Whoever was charged stays charged for what was used, on whichever rung.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Sequence, Set
from contextlib import AsyncExitStack
from typing import Annotated

import msgspec
from msgspec import Meta

from forebay.kernel.context import RequestContext
from forebay.kernel.errors import (
    AllInUse,
    ContextTooLong,
    DeadlineExceeded,
    EngineError,
    ForebayError,
    Overloaded,
)
from forebay.kernel.stages import Finished, GenerationRequest, Generator, TextDelta
from forebay.kernel.streams import closing
from forebay.policy.admission import Admission, Permit
from forebay.policy.admission.admission import engines_fault
from forebay.policy.gate import REASONS

log = logging.getLogger("forebay.ladder")

STAGE = "generation"
OUT = "overloaded_engines_out"
QUOTED = "extractive"
_LATE = "first_token_timeout"
_NONE_IN_TIME = "No engine began to answer in time."
_FULL = frozenset(f"overloaded_{reason}" for reason in REASONS)


class EngineLadderSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What answers when engines do not."""

    enabled: Annotated[
        bool,
        Meta(
            description="Answer from a smaller model or by quoting when engines fail before their "
            "first token; off: say that they failed."
        ),
    ] = True
    small_pool: Annotated[
        str,
        Meta(
            description="Pool with a smaller model that is kept for this; empty: quoting comes "
            "next."
        ),
    ] = ""
    when_busy: Annotated[
        bool,
        Meta(
            description="Go down when a pool is full, too; off: its callers are told to come again."
        ),
    ] = False
    reserve_s: Annotated[
        float,
        Meta(
            description="Seconds before the deadline at which a rung without a first token is "
            "left, so that the next can answer; at most half of the time that was left.",
            ge=0.0,
        ),
    ] = 1.0

    def spares(self, *, quotes: bool = True) -> frozenset[str]:
        """Refusals of a pool after which a request goes on without a place in it.

        ``quotes``: quotations are an answer to it.
        """
        if not self.enabled or not (quotes or self.small_pool):
            return frozenset()
        return _FULL if self.when_busy else frozenset({OUT})


class EngineLadder:
    """``Generator`` over the engines, the small pool and ``quoting``, best first.

    ``quoting`` None: whoever asks has another way of their own, and is told why no pool began.
    """

    def __init__(
        self,
        engines: Generator,
        quoting: Generator | None,
        admission: Admission,
        settings: EngineLadderSettings,
    ) -> None:
        self._engines = engines
        self._quoting = quoting
        self._admission = admission
        self._settings = settings

    async def generate(
        self, ctx: RequestContext, request: GenerationRequest
    ) -> AsyncGenerator[TextDelta | Finished, None]:
        """Yield what the first rung that begins writes; steps down are told in the context.

        Raises what the engines raise for the request's own sake, and whatever comes after the
        first token.
        """
        placement = ctx.placement
        permit = placement if isinstance(placement, Permit) else None
        async with AsyncExitStack() as stack:
            begun = await self._begin(ctx, request, permit, stack)
            yield begun.first
            async for event in begun.rest:
                if isinstance(event, Finished) and begun.permit is not None:
                    begun.permit.whole = True
                yield event

    async def _begin(
        self,
        ctx: RequestContext,
        request: GenerationRequest,
        permit: Permit | None,
        stack: AsyncExitStack,
    ) -> _Begun:
        """The first rung that begins; what it holds is ``stack``'s then."""
        left: list[_Left] = []
        below = self._quoting is not None or bool(self._settings.small_pool)
        if permit is None or permit.refused is None:
            try:
                return await self._first(ctx, request, stack, below=below)
            except _Left as why:
                left.append(why)
                if permit is not None:
                    permit.lose(why.late_since)
        else:
            left.append(_Left(permit.refused))
        if self._settings.small_pool and permit is not None:
            try:
                begun = await self._by_small(ctx, request, permit, stack)
            except _Left as why:
                left.append(why)
            else:
                ctx.degrade(STAGE, self._settings.small_pool, reasons(left))
                return begun
        ctx.placement = None
        if self._quoting is None:
            raise left[0].error
        ctx.degrade(STAGE, QUOTED, reasons(left))
        events = await stack.enter_async_context(closing(self._quoting.generate(ctx, request)))
        return _Begun(await anext(events), events)

    async def _by_small(
        self, ctx: RequestContext, request: GenerationRequest, permit: Permit, stack: AsyncExitStack
    ) -> _Begun:
        """The small pool's answer, in a place there; what it costs is charged to ``permit``."""
        ask = msgspec.structs.replace(
            permit.entry.ask,
            pool=self._settings.small_pool,
            whole=permit.entry,
            input_tokens=request.prompt_tokens,
            passages=0,
            spares=frozenset(),
        )
        async with AsyncExitStack() as own:
            try:
                small = await own.enter_async_context(self._admission.admit(ask))
            except (Overloaded, ContextTooLong) as refused:
                raise _Left(refused) from refused
            ctx.placement = small
            small.asked()
            try:
                begun = await self._first(ctx, request, own, below=self._quoting is not None)
            except _Left as why:
                small.lose(why.late_since)
                raise
            stack.push_async_exit(own.pop_all())
        return _Begun(begun.first, begun.rest, small)

    async def _first(
        self, ctx: RequestContext, request: GenerationRequest, stack: AsyncExitStack, *, below: bool
    ) -> _Begun:
        """An answer whose first token has come; ``_Left`` when it does not.

        ``below``: another rung needs some of the time.
        """
        async with AsyncExitStack() as own:
            events = await own.enter_async_context(closing(self._engines.generate(ctx, request)))
            since = ctx.clock.now()
            left_s = ctx.deadline.remaining()
            within_s = left_s - below * min(self._settings.reserve_s, left_s / 2)
            try:
                async with asyncio.timeout(within_s):
                    first = await anext(events)
            except TimeoutError as late:
                raise _Left(DeadlineExceeded(_NONE_IN_TIME), since) from late
            # Whatever an engine's adapter raises, another rung can answer.
            except Exception as error:
                if _own(error):
                    raise
                if not isinstance(error, ForebayError):
                    log.exception("generation failed before its first token")
                raise _Left(error) from error
            stack.push_async_exit(own.pop_all())
        return _Begun(first, events)


class _Begun(msgspec.Struct, frozen=True):
    """An answer that has begun; ``permit``: the place it holds beside the request's own."""

    first: TextDelta | Finished
    rest: AsyncIterator[TextDelta | Finished]
    permit: Permit | None = None


class _Left(Exception):
    """A rung that did not begin, and why; ``late_since``: it was waited for from then on."""

    def __init__(self, error: Exception, late_since: float | None = None) -> None:
        super().__init__(str(error))
        self.error = error
        self.late_since = late_since


def reasons(left: Sequence[_Left | Exception]) -> str:
    """Why rungs were left, in short stable words, each once."""
    errors = [one.error if isinstance(one, _Left) else one for one in left]
    return ", ".join(dict.fromkeys(_word(error) for error in errors))


def others_may(error: Exception, spares: Set[str]) -> bool:
    """Whether something else may answer what engines did not begin.

    Not where it is the request's own: refused for what it is, or its pools just full, unless those
    who find them so go down, too (``spares``).
    """
    if isinstance(error, Overloaded) and error.code in _FULL:
        return error.code in spares
    return isinstance(error, DeadlineExceeded) or not _own(error)


def _own(error: Exception) -> bool:
    """Whether it is the request's own: refused for what it is, too late, or its pool just full."""
    if isinstance(error, EngineError):
        return not engines_fault(error)
    if isinstance(error, Overloaded):
        return isinstance(error, AllInUse)
    return isinstance(error, ForebayError)


def _word(error: Exception) -> str:
    if isinstance(error, DeadlineExceeded):
        return _LATE
    return error.code.removeprefix("overloaded_") if isinstance(error, ForebayError) else "error"
