"""Vectors of single sentences: made when chunks have theirs, beside serving; nobody waits for them.

A passage's vector says what it is about and little of its sentences; words do not meet where a
question uses others, or another language. Sentences' own vectors are kept, so that a question costs
no embedding.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Annotated, Any, Protocol

import msgspec

from forebay.kernel.context import RequestContext
from forebay.kernel.documents import Vectors
from forebay.kernel.errors import EngineRefused, ForebayError, NotFound, Overloaded
from forebay.kernel.sentences import LackingSentences, SentenceText
from forebay.kernel.stages import Embedder, GenerationRequest

log = logging.getLogger("forebay.sentences")
_FIRST_RETRY_S = 1.0
_AT_ONCE = 32
"""Chunks whose sentences are read, and kept, in one go."""
_PROBE = "ok"
"""What an embedder that works can embed."""


class SentenceSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whether sentences get vectors of their own, and how many."""

    enabled: Annotated[
        bool | None,
        msgspec.Meta(
            description="Sentences get vectors of their own, by which quotations are chosen and "
            "judged; unset: yes, but not where embedding.backend is openai, whose tokens may cost."
        ),
    ] = None
    max_chunks: Annotated[
        int,
        msgspec.Meta(
            ge=0,
            description="Chunks of one knowledge base whose sentences have vectors at most; a "
            "sentence takes 0.4 kB on disk with the built-in embedder.",
        ),
    ] = 50_000
    max_retry_s: Annotated[
        float, msgspec.Meta(gt=0, description="Longest wait after a failure; starts at 1 s.")
    ] = 60.0


class SentenceRecord(Protocol):
    """What is kept, for one embedder; called from the writer's own thread only."""

    def lacking(self, kb: str, after: tuple[int, int], limit: int) -> LackingSentences:
        """Chunks that have a vector, and whose sentences should and do not; see the kernel's."""
        ...

    def keep(self, kb: str, made: Mapping[int, tuple[SentenceText, Vectors]]) -> int:
        """Keep vectors by chunk; chunks that vanished are skipped."""
        ...


class Comparing(Protocol):
    """Knows how near single sentences are to a question, or to each other."""

    async def compared(
        self, ctx: RequestContext, kb: str, prompt: GenerationRequest
    ) -> GenerationRequest:
        """Return the prompt with ``sentences`` and ``likeness`` where known; never fails."""
        ...


class SentenceParts(msgspec.Struct, frozen=True):
    """What a feeder works with.

    ``run_blocking`` runs record calls in the writer's thread. ``rest`` returns when no chunk waits
    for its own vector: those come first.
    """

    record: SentenceRecord
    embedder: Embedder
    run_blocking: Callable[[Callable[[], Any]], Awaitable[Any]]
    rest: Callable[[], Awaitable[None]]


class SentenceFeeder:
    """Makes what one knowledge base lacks, one chunk after another."""

    def __init__(self, kb: str, parts: SentenceParts, settings: SentenceSettings) -> None:
        self._kb = kb
        self._parts = parts
        self._settings = settings
        self._after = (0, 0)
        self._work = asyncio.Event()
        self._idle = asyncio.Event()
        self._work.set()
        self._failed: int | None = None
        self.made = 0

    def kick(self) -> None:
        """There may be new vectors of chunks."""
        self._idle.clear()
        self._work.set()

    @property
    def busy(self) -> bool:
        """Whether something is lacking, or may be."""
        return not self._idle.is_set()

    async def settled(self) -> None:
        """Return when nothing is lacking that was there before; while it fails, it does not."""
        await self._idle.wait()

    async def run(self) -> None:
        """Work until cancelled, or until the knowledge base is gone."""
        retry_s = _FIRST_RETRY_S
        while True:
            await self._work.wait()
            self._work.clear()
            try:
                await self._catch_up()
                retry_s = _FIRST_RETRY_S
                if not self._work.is_set():
                    self._idle.set()
            except NotFound:
                self._idle.set()
                return
            except ForebayError as error:
                log.warning("sentences of %s: %s", self._kb, error.message)
                await asyncio.sleep(min(retry_s, self._settings.max_retry_s))
                retry_s = min(retry_s * 2, self._settings.max_retry_s)
                self._work.set()

    async def _catch_up(self) -> None:
        """Make what is lacking now; what was kept before a failure is not made again."""
        parts, kb = self._parts, self._kb
        while True:
            await parts.rest()
            after = self._after
            found: LackingSentences = await parts.run_blocking(
                partial(parts.record.lacking, kb, after, _AT_ONCE)
            )
            room = self._settings.max_chunks - found.kept
            if found.after == after or room <= 0:
                return
            made: dict[int, tuple[SentenceText, Vectors]] = {}
            for text in found.texts[:room]:
                vectors = await self._made(text)
                if vectors is not None:
                    made[text.chunk_id] = text, vectors
            if made:
                self.made += await parts.run_blocking(partial(parts.record.keep, kb, made))
            self._after = found.after

    async def _made(self, text: SentenceText) -> Vectors | None:
        """None where the chunk is at fault: it does without, until the next start."""
        try:
            return await self._vectors(text)
        except Overloaded:
            raise
        except ForebayError:
            again, self._failed = self._failed == text.chunk_id, text.chunk_id
            if not again:
                raise
        # After a rest, too. Whoever can do this and not the chunk is not to blame.
        await self._parts.embedder.embed([_PROBE], kind="passage")
        try:
            return await self._vectors(text)
        except Overloaded:
            raise
        except ForebayError as error:
            log.warning("sentences of %s fail for good: %s", self._kb, error.message)
            return None

    async def _vectors(self, text: SentenceText) -> Vectors | None:
        try:
            return await self._parts.embedder.embed(text.sentences, kind="passage")
        except EngineRefused as refusal:
            log.warning("the embedder refused sentences of %s: %s", self._kb, refusal.message)
            return None
