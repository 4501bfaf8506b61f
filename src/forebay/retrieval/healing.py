"""A thread that exists only while something has to be made whole again."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Lock, Thread


class Healer:
    """Calls ``attempt`` in a thread of its own until it answers True; idle it costs nothing.

    ``wake`` never blocks and may be called from any thread, any number of times. ``attempts``
    bounds one wake; the next one begins anew.
    """

    def __init__(
        self, attempt: Callable[[], bool], *, pause_s: float = 1.0, attempts: int = 120
    ) -> None:
        self._attempt = attempt
        self._pause_s = pause_s
        self._attempts = attempts
        self._lock = Lock()
        self._closed = Event()
        self._thread: Thread | None = None

    def wake(self) -> None:
        """Begin, unless it is under way."""
        with self._lock:
            if self._closed.is_set() or self._thread is not None:
                return
            self._thread = Thread(target=self._run, name="index-heal", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        try:
            for _ in range(self._attempts):
                if self._closed.is_set() or self._attempt() or self._closed.wait(self._pause_s):
                    return
        finally:
            with self._lock:
                self._thread = None

    def close(self) -> None:
        """End after the attempt under way."""
        self._closed.set()
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join()
        # The owner and its healer hold each other: let go, so that its files are free at once.
        self._attempt = lambda: True
