"""Runs commands as processes that need not import everything again.

Run as a program: one JSON line on standard input is one command. Each runs in a fork of this
process, with streams, folder and environment of its own, through the command line's ``main`` to
the interpreter's normal end. The answer is a line with its process id. A line that is a number
asks how that process ended: its exit status, or nothing while it runs.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
from importlib import import_module

from forebay.app.cli import main

WARM = (
    *("changing", "composition", "doctor", "operations"),
    *("benching", "evaluating", "proving", "simulating"),
)


def redirect(call: dict[str, object]) -> None:
    """Make this process the command's."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        flags = os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT | os.O_APPEND
        opened = os.open(str(call[name]), flags, 0o600)
        os.dup2(opened, number)
        os.close(opened)
    os.chdir(str(call["folder"]))
    # Whoever starts the tests in the background of a shell, or to outlive it, has them ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    os.environ.clear()
    os.environ.update(call["env"])  # type: ignore[call-overload]
    sys.argv = ["forebay", *call["words"]]  # type: ignore[misc]


def serve() -> bool:
    """Fork for every line; True in a child, False when there are no more lines."""
    for name in WARM:
        import_module(f"forebay.app.{name}")
    gc.collect()
    gc.freeze()  # a collection in a child would copy every page of this
    # Not the buffered stream: a child must not inherit lines that were read ahead.
    with os.fdopen(os.dup(0), "rb", buffering=0) as lines, os.fdopen(os.dup(1), "wb", 0) as answers:
        while line := lines.readline():
            call = json.loads(line)
            if isinstance(call, int):
                ended, status = os.waitpid(call, os.WNOHANG)
                answers.write(b"%d\n" % os.waitstatus_to_exitcode(status) if ended else b"\n")
                continue
            child = os.fork()
            if child == 0:
                redirect(call)
                return True
            answers.write(b"%d\n" % child)
    return False


if __name__ == "__main__" and serve():
    main()
