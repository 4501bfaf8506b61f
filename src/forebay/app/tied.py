"""The command line as a process that ends with its parent, however that dies.

Its standard input is a pipe that the parent holds: the end of it means that the parent is gone.
"""

from __future__ import annotations

import os
import signal
import sys
import threading

from forebay.app.cli import main

PATIENCE_S = 5.0
_NEVER = threading.Event()


def _end_with_parent() -> None:
    while os.read(sys.stdin.fileno(), 4096):
        pass
    # Once politely; whoever is told twice waits for nothing.
    for _ in range(2):
        os.kill(os.getpid(), signal.SIGTERM)
        _NEVER.wait(PATIENCE_S)


if __name__ == "__main__":
    threading.Thread(target=_end_with_parent, daemon=True).start()
    main()
