"""What stands around hits is read from the record beside the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from forebay.app.runtime import Reading
from forebay.context import ContextSettings, Surroundings
from forebay.kernel.context import RequestContext
from forebay.kernel.documents import Hit
from forebay.kernel.errors import DeadlineExceeded


def open_widening(reading: Reading, settings: ContextSettings) -> Widened | None:
    """The ``Widening`` of a process; None: switched off."""
    if not settings.surrounding_tokens:
        return None
    return Widened(reading, Surroundings(reading.reader, settings))


class Widened:
    """``Widening`` in the process's pool for blocking work."""

    def __init__(self, reading: Reading, surroundings: Surroundings) -> None:
        self._threads = reading.threads
        self._surroundings = surroundings

    async def widen(self, ctx: RequestContext, kb: str, hits: Sequence[Hit]) -> Sequence[Hit]:
        """See ``Widening``; ``DeadlineExceeded`` when the request's deadline passes."""
        try:
            async with asyncio.timeout(ctx.deadline.remaining()):
                return await self._threads.run(partial(self._surroundings.widen, kb, hits))
        except TimeoutError as error:
            raise DeadlineExceeded("The request's deadline passed before its prompt.") from error
