"""Log lines: fields, ids of the request, secrets, and a reader that does not keep up."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from forebay.telemetry.ids import begin_trace
from forebay.telemetry.logs import AccessLog, configure_logging, request_ids
from forebay.telemetry.settings import TelemetrySettings
from tests.unit.telemetry.test_traces import report

log = logging.getLogger("forebay.test")


@pytest.fixture(autouse=True)
def _root_logger_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def lines(settings: TelemetrySettings, write: Any) -> list[dict[str, Any]]:
    stream = io.StringIO()
    root = logging.getLogger()
    root.handlers.clear()  # in production nobody else listens
    logs = configure_logging(settings, stream)
    try:
        write()
    finally:
        logs.close()
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_has_the_promised_fields() -> None:
    settings = TelemetrySettings(environment="production", region="cn-north-1")
    [line] = lines(settings, lambda: log.warning("缓存 %d", 7, extra={"tier": "answer"}))
    assert line["message"] == "缓存 7"
    assert (line["level"], line["logger"]) == ("warning", "forebay.test")
    assert (line["env"], line["region"], line["tier"]) == ("production", "cn-north-1", "answer")
    assert line["time"].endswith("Z")
    assert line["trace_id"] == line["span_id"] == ""


def test_ids_follow_the_request_through_tasks() -> None:
    first, second = begin_trace(None), begin_trace(None)

    async def one(name: str, ids: Any) -> None:
        with request_ids(name, ids):
            await asyncio.sleep(0)
            log.info(name)

    async def both() -> None:
        await asyncio.gather(one("a", first), one("b", second))
        log.info("none")

    seen = lines(TelemetrySettings(), lambda: asyncio.run(both()))
    got = {
        line["message"]: (line["request_id"], line["trace_id"], line["span_id"]) for line in seen
    }
    assert got["a"] == ("a", first.trace_id, first.span_id)
    assert got["b"] == ("b", second.trace_id, second.span_id)
    assert got["none"] == ("", "", "")


def test_exceptions_keep_their_stack() -> None:
    def write() -> None:
        try:
            raise ValueError("inside")
        except ValueError:
            log.exception("failed")

    [line] = lines(TelemetrySettings(), write)
    assert "ValueError: inside" in line["exception"]
    assert "test_logs.py" in line["exception"]


def test_the_access_log_has_one_line_for_a_request() -> None:
    [line] = lines(TelemetrySettings(), lambda: AccessLog().finished(report()))
    assert line["logger"] == "forebay.access"
    assert (line["route"], line["status"], line["outcome"]) == ("chat", 200, "ok")
    assert (line["tenant"], line["kb"], line["duration_ms"]) == ("acme", "handbook", 2000.0)
    assert line["trace_id"] == "a" * 32


def test_an_access_line_is_the_same_by_either_way() -> None:
    told = report()

    def long_way() -> None:
        quiet = logging.NullHandler()
        logging.getLogger("forebay.access").addHandler(quiet)
        try:
            AccessLog().finished(told)
        finally:
            logging.getLogger("forebay.access").removeHandler(quiet)

    settings = TelemetrySettings(environment="production", region="cn-north-1")
    [short] = lines(settings, lambda: AccessLog().finished(told))
    [long] = lines(settings, long_way)
    assert list(short.items()) == list(long.items())


def test_access_lines_keep_their_place_among_others_and_obey_the_level() -> None:
    def write() -> None:
        log.warning("before")
        AccessLog().finished(report())
        log.warning("after")

    names = [line["logger"] for line in lines(TelemetrySettings(), write)]
    assert names == ["forebay.test", "forebay.access", "forebay.test"]
    quiet = lines(TelemetrySettings(log_level="warning"), write)
    assert [line["message"] for line in quiet] == ["before", "after"]


def test_access_lines_for_people_and_for_other_handlers(caplog: pytest.LogCaptureFixture) -> None:
    stream = io.StringIO()
    logs = configure_logging(TelemetrySettings(log_format="text"), stream)
    AccessLog().finished(report())
    logs.close()
    [line] = stream.getvalue().splitlines()
    assert "info forebay.access POST chat 200 method=POST route=chat status=200" in line
    assert line.endswith("request=r1") or "request=" in line
    with caplog.at_level(logging.INFO):
        AccessLog().finished(report())
    assert [record.route for record in caplog.records][-1:] == ["chat"]  # type: ignore[attr-defined]


def test_many_lines_are_all_written() -> None:
    def write() -> None:
        for number in range(1_234):
            log.info("n %d", number)

    seen = lines(TelemetrySettings(), write)
    assert [line["message"] for line in seen] == [f"n {n}" for n in range(1_234)]


def test_text_for_people() -> None:
    stream = io.StringIO()
    logs = configure_logging(TelemetrySettings(log_format="text"), stream)
    log.info("hello", extra={"kb": "handbook"})
    log.info("forged", extra={"kb": "x\n2026 info forebay.access GET"})
    logs.close()
    first, second = stream.getvalue().splitlines()
    assert first.endswith("info forebay.test hello kb=handbook")
    assert second.endswith("kb=x?2026 info forebay.access GET")


def test_a_blocked_output_drops_lines_and_does_not_wait() -> None:
    import threading

    class Stuck(io.StringIO):
        go = threading.Event()

        def write(self, text: str) -> int:
            self.go.wait(20)
            return super().write(text)

    stuck = Stuck()
    logs = configure_logging(TelemetrySettings(), stuck)
    for number in range(10_500):
        log.info("line %d", number)
    assert logs.dropped >= 400
    stuck.go.set()
    logs.close()


def test_steps_down_are_in_the_access_log() -> None:
    degraded = report()
    assert degraded.ctx is not None
    degraded.ctx.degrade("embedding", "bm25", "the embedder is busy")
    [line] = lines(TelemetrySettings(), lambda: AccessLog().finished(degraded))
    assert line["degradations"] == ["embedding:bm25 (the embedder is busy)"]
    [line] = lines(TelemetrySettings(), lambda: AccessLog().finished(report()))
    assert "degradations" not in line
