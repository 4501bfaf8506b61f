"""The writer's lock on a store folder; the kernel frees it when the process dies."""

from __future__ import annotations

from pathlib import Path

import filelock

from forebay.kernel.errors import StoreBusy
from forebay.store.faults import translated


class WriterLock:
    """Held by the one process that may write to a folder.

    It is an advisory ``flock``: it ends with the process, also with ``kill -9``. A child made by
    ``fork`` without ``exec`` would inherit it, so worker processes must be spawned.
    """

    def __init__(self, folder: Path) -> None:
        self._lock = filelock.FileLock(
            folder / "writer.lock",
            mode=0o600,
            thread_local=False,
            # A soft lock would outlive a killed process; no lock at all is the honest answer.
            fallback_to_soft=False,
            preserve_lock_file=True,
        )

    def acquire(self) -> None:
        """Take the lock now; ``StoreBusy`` when another writer holds it."""
        with translated():
            try:
                self._lock.acquire(timeout=0)
            except filelock.Timeout as error:
                raise StoreBusy(
                    "another process is the writer of this store folder; stop it, or name another "
                    "folder (store.path)."
                ) from error

    def release(self) -> None:
        """Give the lock back; safe to repeat."""
        self._lock.release()

    @property
    def held(self) -> bool:
        """Whether this object holds the lock."""
        return self._lock.is_locked
