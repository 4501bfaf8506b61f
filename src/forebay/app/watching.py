"""Which folders changed, from the moment they began to be watched."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from watchfiles import awatch

CALM_MS = 500


class FolderWatch:
    """Collects which of its roots changed until it is asked; nothing is lost in between."""

    def __init__(self, roots: Iterable[str]) -> None:
        self._roots = tuple(roots)
        self._touched: set[str] = set()
        self._news = asyncio.Event()

    async def run(self) -> None:
        """Watch until cancelled; begins at its first step, before it waits."""
        async for changed in awatch(*self._roots, debounce=CALM_MS, recursive=True):
            self._touched |= touched_roots(changed, self._roots)
            self._news.set()

    async def changed(self) -> list[str]:
        """The roots something changed in since the last call; waits for the first change."""
        await self._news.wait()
        self._news.clear()
        touched, self._touched = self._touched, set()
        return sorted(touched)


@asynccontextmanager
async def watching(roots: Iterable[str]) -> AsyncIterator[FolderWatch]:
    """Watch from here on: what changes while the folders are first read is not missed."""
    watch = FolderWatch(roots)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(watch.run())
        await asyncio.sleep(0)
        try:
            yield watch
        finally:
            task.cancel()


def touched_roots(changed: Iterable[tuple[object, str]], roots: Iterable[str]) -> set[str]:
    """Which of ``roots`` the changed paths lie in."""
    known = list(roots)
    return {root for _, path in changed for root in known if _inside(path, root)}


def _inside(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip("/") + "/")
