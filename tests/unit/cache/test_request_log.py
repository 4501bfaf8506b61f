"""The log of questions: bounded, whole lines, no line believed that is not one."""

from __future__ import annotations

import stat
from pathlib import Path

import msgspec
import pytest

from forebay.cache.prewarm import Asked, Question
from forebay.cache.request_log import BEFORE, CURRENT, LINE_BYTES, RequestLog, line_of
from forebay.kernel.stages import Sampling

BOUND = 65_536


def asked(at: float, text: str = "年假？") -> Asked:
    question = Question("t", ("g",), "l", "kb", text, 5, {"tags": ("a",)}, Sampling(seed=1))
    return Asked(at, "u", "fact-normal", question, 0.01)


def test_what_is_written_is_read_in_the_order_of_times(tmp_path: Path) -> None:
    log = RequestLog(tmp_path, BOUND, rotates=True)
    log.append(line_of(asked(2.0)) + line_of(asked(1.0)))
    assert log.read() == [asked(1.0), asked(2.0)]
    assert stat.S_IMODE((tmp_path / CURRENT).stat().st_mode) == 0o600


def test_nothing_is_read_where_nothing_was_written(tmp_path: Path) -> None:
    assert RequestLog(tmp_path, BOUND, rotates=False).read() == []


@pytest.mark.parametrize("more", [b"{", b"\x00\xff\n", b'["x"]\n', b"[" * 5000 + b"\n", b"\n"])
def test_lines_that_are_none_are_skipped(tmp_path: Path, more: bytes) -> None:
    log = RequestLog(tmp_path, BOUND, rotates=True)
    log.append(line_of(asked(1.0)))
    log.append(more)
    assert log.read() == [asked(1.0)]


def test_the_bound_holds_and_the_latest_stay(tmp_path: Path) -> None:
    log, other = (RequestLog(tmp_path, BOUND, rotates=rotates) for rotates in (True, False))
    for at in range(2000):
        (other if at % 3 else log).append(line_of(asked(float(at))))
        sizes = [each.stat().st_size for each in tmp_path.iterdir()]
        assert sum(sizes) <= BOUND
    assert {each.name for each in tmp_path.iterdir()} == {CURRENT, BEFORE}
    assert log.read()[-1].at >= 1990
    assert len(log.read()) > 100


def test_who_may_not_exchange_files_waits_for_who_may(tmp_path: Path) -> None:
    log, other = (RequestLog(tmp_path, BOUND, rotates=rotates) for rotates in (True, False))
    for at in range(2000):
        other.append(line_of(asked(float(at))))
    assert (tmp_path / CURRENT).stat().st_size <= BOUND // 2
    log.append(b"")
    other.append(line_of(asked(5000.0)))
    assert log.read()[-1].at == 5000.0


def test_what_cannot_be_a_line_is_none() -> None:
    assert line_of(asked(1.0, "x" * LINE_BYTES)) == b""
    assert line_of(asked(1.0, "\ud800")) == b""
    assert line_of(asked(1.0, "a\nb")).count(b"\n") == 1
    assert msgspec.json.decode(line_of(asked(1.0)), type=Asked) == asked(1.0)
