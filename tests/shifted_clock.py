"""A wall clock of their own for processes that a test starts, which it may set while they run.

A library that is loaded before the C library's functions adds a shift to every reading of the wall
clock; the monotonic one is let be, as it is by who sets a machine's clock.
"""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

_SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *shift;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("SHIFTED_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *found = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
    if (found != MAP_FAILED) shift = found;
    close(file);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = (int)syscall(SYS_clock_gettime, clock, now);
    if (!failed && shift && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        int64_t all = now->tv_sec * INT64_C(1000000000) + now->tv_nsec + *shift;
        now->tv_sec = all / 1000000000;
        now->tv_nsec = all % 1000000000;
    }
    return failed;
}

int gettimeofday(struct timeval *now, void *zone) {
    struct timespec exact;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &exact)) return -1;
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *where) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (where) *where = exact.tv_sec;
    return exact.tv_sec;
}
"""


class ShiftedClock:
    """The wall clock of every process that is started with ``environment``."""

    def __init__(self, folder: Path) -> None:
        compiler = shutil.which("cc") or shutil.which("gcc")
        if sys.platform != "linux" or compiler is None:
            pytest.skip("a clock that can be set needs Linux and a C compiler")
        source, self._library = folder / "shifted_clock.c", folder / "shifted_clock.so"
        self._file = folder / "shift"
        self.shift = 0.0
        self.set(0)
        source.write_text(_SOURCE, encoding="utf-8")
        command: list[str | Path] = [
            compiler,
            "-shared",
            "-fPIC",
            "-O1",
            "-o",
            self._library,
            source,
        ]
        subprocess.run(command, check=True, timeout=60)

    @property
    def environment(self) -> Mapping[str, str]:
        """What a process is to be started with."""
        return {"LD_PRELOAD": str(self._library), "SHIFTED_CLOCK": str(self._file)}

    def set(self, seconds: float) -> None:
        """Set it so many seconds ahead of the real one, or behind."""
        self.shift = seconds
        data = struct.pack("=q", round(1e9 * seconds))
        if not self._file.exists():
            self._file.write_bytes(data)
            return
        with self._file.open("r+b") as file:  # the very file that processes have mapped
            file.write(data)

    @contextmanager
    def around(self) -> Iterator[None]:
        """Processes that are started in the block have it."""
        before = {name: os.environ.get(name) for name in self.environment}
        os.environ.update(self.environment)
        try:
            yield
        finally:
            for name, value in before.items():
                os.environ.pop(name, None)
                if value is not None:
                    os.environ[name] = value
