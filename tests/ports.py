"""Loopback ports that nobody else takes between their choice and their use.

A port the system hands out may be handed out again as soon as it is closed: to a test in the next
process, or to a connection that leaves. These lie below what Linux (from 32768) and macOS (from
49152) hand out, each test process counts through its own, and no number comes again soon.
"""

from __future__ import annotations

import itertools
import os
import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing

FIRST, EACH, PROCESSES = 12_000, 1_200, 16


def _own() -> Iterator[int]:
    """The ports of this test process, round and round; two runs begin at different ones."""
    named = re.search(r"\d+", os.environ.get("PYTEST_XDIST_WORKER", ""))
    first = FIRST + (int(named[0]) if named else 0) % PROCESSES * EACH
    for number in itertools.count(os.getpid() * 37):
        yield first + number % EACH


_ports = _own()


def unused_ports(count: int = 1) -> int:
    """The first of so many neighbouring ports that are free."""
    for _ in range(EACH):
        with ExitStack() as stack:
            first = next(_ports)
            try:
                for port in (first, *(next(_ports) for _ in range(count - 1))):
                    stack.enter_context(closing(socket.socket())).bind(("127.0.0.1", port))
            except OSError:
                continue
            if port == first + count - 1:
                return first
    raise RuntimeError("no loopback port is free")
