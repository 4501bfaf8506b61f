"""Term counts of knowledge bases in use, read before a search wants them.

A search that meets a chunk for the first time reads its counts from the word index's files, which
costs it more than anything else that it does with words.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial

from forebay.app.indexes import IndexSet
from forebay.app.records import BlockingPool
from forebay.kernel.errors import ForebayError

log = logging.getLogger("forebay.index")

LOOK_S = 1.0
AT_ONCE = 256
"""Chunks read in one go: a millisecond or two, so that no search waits long for its thread."""


class ReadingAhead:
    """Looks at every index for ever; ``retrieval.lexical.counts_cache_bytes`` is what it fills."""

    def __init__(self, indexes: IndexSet, threads: BlockingPool) -> None:
        self._indexes = indexes
        self._threads = threads

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            await self.round()
            await asyncio.sleep(LOOK_S)

    async def round(self) -> None:
        """Read what there is to read; an index that fails does not keep the others from it."""
        for kb in self._indexes.names():
            try:
                while await self._threads.run(partial(self._read, kb)):
                    pass
            except ForebayError as error:
                log.info("term counts of %s are not read ahead now: %s", kb, error.message)

    def _read(self, kb: str) -> bool:
        return self._indexes.get(kb).snapshot().lexical.base.read_ahead(AT_ONCE)
