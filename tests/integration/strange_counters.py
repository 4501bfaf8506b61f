"""Token counters that misbehave inside a worker process."""

from __future__ import annotations

import socket
import time


class Sleeper:
    """Never comes back from a text with "sleep" in it."""

    def count(self, text: str) -> int:
        while "sleep" in text:
            time.sleep(0.1)
        return len(text.split())


class Spinner:
    """Burns processor time over a text with "spin" in it."""

    def count(self, text: str) -> int:
        while "spin" in text:
            pass
        return len(text.split())


class Dialler:
    """Counts 7 when calling home is forbidden."""

    def count(self, text: str) -> int:
        try:
            with socket.socket() as caller:
                caller.connect(("127.0.0.1", 9))
        except PermissionError:
            return 7
        except OSError:
            return 1
        return len(text)
