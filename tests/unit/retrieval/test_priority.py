"""Threads started inside give way; the caller's own does not."""

from __future__ import annotations

import os
import sys
import threading

import pytest

from forebay.retrieval.priority import giving_way


def _niceness_of_a_new_thread() -> int:
    found: list[int] = []

    def look() -> None:
        found.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    return found[0]


@pytest.mark.skipif(sys.platform != "linux", reason="niceness is the whole process's there")
def test_threads_started_inside_give_way() -> None:
    before = _niceness_of_a_new_thread()
    assert giving_way(_niceness_of_a_new_thread) > before or before == 19
    assert _niceness_of_a_new_thread() == before


def test_errors_come_out() -> None:
    with pytest.raises(ZeroDivisionError):
        giving_way(lambda: 1 // 0)
