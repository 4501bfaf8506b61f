"""Late interaction, opened as the settings ask, and passages encoded for it ahead of questions."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from forebay.app.runtime import Reading
from forebay.embedding.opening import token_encoder
from forebay.kernel.documents import Hit
from forebay.kernel.errors import ConfigError, ForebayError, Gone, first_error
from forebay.pipeline.reranking import text_of
from forebay.rerank.late import LateReranker, LateSettings
from forebay.rerank.late_head import LateHead

log = logging.getLogger("forebay.late")

_LOOK_S = 1.0
_AT_ONCE = 16
"""Passages read and encoded in one go; between two the newest version is looked for."""
_FULL = 0.95
"""Share of the memory beyond which encoding ahead would only push out what is there."""


@asynccontextmanager
async def open_late(settings: LateSettings, reading: Reading) -> AsyncIterator[LateReranker]:
    """The reranker; with ``settings.ahead`` it encodes what is ingested, beside the block."""
    encoder = token_encoder(reading.embedder)
    if encoder is None:
        raise ConfigError(
            "late interaction compares single tokens, which the configured embedder does not "
            "give; use the built-in one or a model folder, or another rerank.dear.backend.",
            param="rerank.dear.backend",
        )
    path = settings.path
    head = await asyncio.to_thread(lambda: LateHead(Path(path)) if path else LateHead.shipped())
    late = LateReranker(encoder, head, settings, reading.threads.executor)
    if not settings.ahead:
        yield late
        return
    try:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(Ahead(reading, late, settings).run())
            try:
                yield late
            finally:
                task.cancel()
    except BaseExceptionGroup as errors:
        raise first_error(errors) from None


class Ahead:
    """Encodes the passages of every knowledge base, newest version first, while there is room."""

    def __init__(self, reading: Reading, late: LateReranker, settings: LateSettings) -> None:
        self._reading = reading
        self._late = late
        self._most_bytes = int(_FULL * settings.cache_bytes)
        self._seen: dict[str, int] = {}

    async def run(self) -> None:
        """Look for versions, for ever."""
        while True:
            await self.round()
            await asyncio.sleep(_LOOK_S)

    async def round(self) -> None:
        """Look at every knowledge base once; one that fails does not keep the others from it."""
        for kb in self._reading.indexes.names():
            try:
                await self.look(kb)
            except Gone:
                self._seen.pop(kb, None)  # its history was cut or begun anew
            except ForebayError as error:
                log.info("passages of %s are not encoded ahead now: %s", kb, error.message)

    async def look(self, kb: str) -> None:
        """Encode what came to ``kb`` since the last look; stops where memory ends."""
        reader, run = self._reading.reader, self._reading.threads.run
        since = self._seen.get(kb, 0)
        if self._reading.indexes.version(kb) == since:
            return
        changes = await run(partial(reader.changes, kb, since))
        for start in range(0, len(changes.added), _AT_ONCE):
            if self._late.statistics().size_bytes >= self._most_bytes:
                break
            rows = await run(partial(reader.rows, kb, changes.added[start : start + _AT_ONCE]))
            await self._late.warm([text_of(Hit(row, 0.0)) for row in rows])
        self._seen[kb] = changes.version
