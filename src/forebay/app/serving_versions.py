"""Which version of a knowledge base this process may serve: none older than was acknowledged.

The writer announces a version in memory that the processes of a folder share, before it
acknowledges; a query looks there when it starts. What is behind is brought up to the record first.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from weakref import WeakValueDictionary

from forebay.app.indexes import IndexSet
from forebay.kernel.caching import Served
from forebay.kernel.clock import Deadline
from forebay.kernel.errors import DeadlineExceeded, ForebayError, NotFound
from forebay.pipeline.indexing import Lack
from forebay.store import StoreReader
from forebay.store.announced import GONE, READ, READING, UNREAD, Announced

log = logging.getLogger("forebay.versions")
RunBlocking = Callable[[Callable[[], int | None]], Awaitable[int | None]]
_LACKS: dict[int, Lack | None] = {READ: None, READING: "indexing", UNREAD: "not_indexed"}
AGAIN_S = 0.005
"""A version may be in the record some milliseconds before the files of an index show it."""


def _local(_kb: str, _version: int) -> bool:
    return True


class ProcessVersions:
    """``ServedVersions`` over the indexes of a process.

    ``run`` takes blocking work off the loop: in the process that writes, to the thread that
    writes. ``leased`` says whether what processes share may be used for a version of a kb.
    """

    def __init__(
        self,
        indexes: IndexSet,
        announced: Announced,
        record: StoreReader,
        run: RunBlocking,
    ) -> None:
        self._indexes = indexes
        self._announced = announced
        self._record = record
        self._run = run
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._seen: dict[str, int] = {}
        self._poked = asyncio.Event()
        self.leased: Callable[[str, int], bool] = _local
        self.moved: Callable[[], None] = lambda: None

    def announced(self, kb: str) -> int | None:
        """The version that was announced last; None: of no such kb."""
        return self._announced.version(kb)

    def lack(self, kb: str) -> Lack | None:
        """Why the kb does not hold all of its folders, as the process that writes says."""
        return _LACKS[self._announced.reading(kb)]

    def indexing(self, kb: str) -> bool:
        """Whether its folders are being read for the first time since the writer began."""
        return self.lack(kb) == "indexing"

    def current(self, kb: str) -> Served | None:
        """See ``ServedVersions``; a kb that is not open here is for ``renew`` to look for."""
        announced = self._announced.version(kb)
        if announced is None:
            return None
        version = self._indexes.version(kb)
        if version is None or version < announced:
            return None
        return Served(version, self.leased(kb, version))

    async def renew(self, kb: str, deadline: Deadline) -> Served:
        """See ``ServedVersions``; ``NotFound`` when the record has no such kb."""
        turn = self._turns.get(kb)
        if turn is None:
            turn = self._turns[kb] = asyncio.Lock()
        try:
            # One brings the index up for all who ask meanwhile.
            async with asyncio.timeout(deadline.remaining()), turn:
                while True:
                    served = self.current(kb)
                    if served is not None:
                        return served
                    version = await self._run(partial(self._bring_up, kb))
                    if version is not None:
                        self.moved()
                        return Served(version, self.leased(kb, version))
                    await asyncio.sleep(AGAIN_S)
        except TimeoutError:
            raise DeadlineExceeded(
                "the knowledge base was changed, and this process did not see it in time."
            ) from None

    def _bring_up(self, kb: str) -> int | None:
        """The version that may be served now; None when what was announced is not yet shown.

        The order counts: the record, read after the table, has all that was announced by then.
        """
        self._announced.look()
        announced = self._announced.version(kb) or 0
        versions = self._record.versions()
        if kb not in versions or announced == GONE:
            self._indexes.drop(kb)
        if kb not in versions:
            raise NotFound(f"there is no knowledge base {kb!r}.", param="kb")
        version = self._indexes.refresh(kb)
        return version if version >= min(announced, versions[kb]) else None

    # In a process that only reads: take every version before a query has to ask for it

    def poke(self) -> None:
        """The writer has announced something."""
        self._poked.set()

    async def follow(self, every_s: float, run: RunBlocking) -> None:
        """Take every version when poked, and every ``every_s`` in any case, until cancelled.

        ``run`` has a thread of its own, so that nobody waits for a kb he did not ask for.
        """
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(every_s):
                    await self._poked.wait()
            self._poked.clear()
            try:
                if await run(self._take_all):
                    self.moved()
            except ForebayError as error:
                log.warning("following the store: %s", error.message)
            except Exception:  # only ahead of queries, which look for themselves; try again
                log.exception("following the store failed")

    def _take_all(self) -> int:
        """How many kbs have another version than before."""
        moved = 0
        self._announced.look()
        versions = self._record.versions()
        for kb in set(self._seen) - set(versions):
            self._indexes.drop(kb)
            del self._seen[kb]
            moved += 1
        for kb, version in versions.items():
            if self._seen.get(kb) != version:
                taken = self._indexes.refresh(kb)
                moved += 1
                if taken >= version:
                    self._seen[kb] = version
        return moved
