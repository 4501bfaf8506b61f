"""``forebay`` with a thread that notes every half second what its threads have used.

python benchmarks/caching/watched.py OUT.jsonl serve --config forebay.toml
Each line: CPU seconds of every thread by name and of the process, resident bytes, and how often the
event loop's thread was found in which part of the program (its stack, 100 times a second).
"""

from __future__ import annotations

import json
import re
import sys
import threading
import time
from collections import Counter, defaultdict
from pathlib import Path

import psutil
import stacks

LOOK_S = 0.01
WRITE_EVERY = 50
_NUMBER = re.compile(r"[-_]?\d+(?:_\d+)?$|-\d+.*$")
_OWN = re.compile(r"/forebay/(\w+)/(\w+)\.py$")
_OTHER = re.compile(r"/(uvicorn|httptools|prometheus_client|logging|msgspec|starlette)/")


def main() -> None:
    """Begin to watch, then be ``forebay``."""
    out = Path(sys.argv[1])
    del sys.argv[1]
    watch = threading.Thread(target=_watch, args=(out, threading.get_ident()), daemon=True)
    watch.name = "watch"
    watch.start()
    from forebay.app.cli import main as forebay

    forebay()


def _watch(out: Path, loop: int) -> None:
    process = psutil.Process()
    parts: Counter[str] = Counter()
    with out.open("w", encoding="utf-8") as lines:
        while True:
            for _ in range(WRITE_EVERY):
                time.sleep(LOOK_S)
                parts[_part(stacks.files(loop))] += 1
            line = {
                "at": time.monotonic(),
                "process_s": time.process_time(),
                "threads_s": _threads(),
                "resident": process.memory_info().rss,
                "loop": dict(parts),
            }
            lines.write(json.dumps(line) + "\n")
            lines.flush()


def _threads() -> dict[str, float]:
    used: defaultdict[str, float] = defaultdict(float)
    for thread in threading.enumerate():
        if thread.ident is not None:
            try:
                clock = time.pthread_getcpuclockid(thread.ident)
                used[_NUMBER.sub("", thread.name) or "thread"] += time.clock_gettime(clock)
            except OSError:
                continue
    return dict(used)


def _part(files: list[str]) -> str:
    """The innermost part of this project on the stack, else the library, else idle or native."""
    other = "idle or the loop's own code"
    for name in files:
        if found := _OWN.search(name):
            return f"{found[1]}.{found[2]}" if found[1] != "app" else "idle or the loop's own code"
        if other.startswith("idle") and (library := _OTHER.search(name)):
            other = library[1]
    return other


if __name__ == "__main__":
    main()
