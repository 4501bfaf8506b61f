"""Log lines: JSON with the ids of the request they belong to, written by a thread (F2.15).

Writing to a terminal or pipe can block; the event loop only puts records into a bounded queue.
When that is full, lines are dropped and counted rather than anybody waiting.
"""

from __future__ import annotations

import atexit
import logging
import logging.handlers
import queue
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, TextIO, TypeAlias

import msgspec

from forebay.telemetry.ids import TraceIds
from forebay.telemetry.report import RequestReport
from forebay.telemetry.settings import TelemetrySettings

_IDS: ContextVar[tuple[str, TraceIds] | None] = ContextVar("forebay_request", default=None)
_QUEUE = 10_000
_LAST_LINES_S = 2.0
_GATHER_S = 0.1
"""The first line of a quiet time is written at once; those after it, ten times a second."""
_TOGETHER = 50
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_OWN = frozenset({"request_id", "trace_id", "span_id"})
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_access = logging.getLogger("forebay.access")
_Waiting: TypeAlias = "queue.SimpleQueue[logging.LogRecord | RequestReport | None]"
"""Simple, for each lock that another kind has is taken by the event loop; bounded by who puts."""


@contextmanager
def request_ids(request_id: str, ids: TraceIds) -> Iterator[None]:
    """Lines logged inside the block carry these ids."""
    token = _IDS.set((request_id, ids))
    try:
        yield
    finally:
        _IDS.reset(token)


class IdFilter(logging.Filter):
    """Puts the request's ids on a record, in the context that logs it."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Let everything through, with ids where there are some."""
        current = _IDS.get()
        if current is not None and not hasattr(record, "trace_id"):
            record.request_id, ids = current
            record.trace_id, record.span_id = ids.trace_id, ids.span_id
        return True


class JsonFormatter(logging.Formatter):
    """One JSON object a line; extra fields of a record become fields of the object."""

    def __init__(self, environment: str, region: str) -> None:
        super().__init__()
        self._fixed = {"env": environment, "region": region}

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            "trace_id": getattr(record, "trace_id", ""),
            "span_id": getattr(record, "span_id", ""),
            "request_id": getattr(record, "request_id", ""),
            **self._fixed,
            **_extra(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line, enc_hook=str).decode()

    def access(self, report: RequestReport) -> str:
        """The line of a finished request, as ``format`` would write it."""
        line: dict[str, Any] = {
            "time": _stamp(report.ended_at),
            "level": "info",
            "logger": _access.name,
            "message": f"{report.method} {report.route} {report.status}",
            "trace_id": report.trace.trace_id,
            "span_id": report.trace.span_id,
            "request_id": report.request_id,
            **self._fixed,
            **_fields(report),
        }
        return msgspec.json.encode(line, enc_hook=str).decode()


class TextFormatter(logging.Formatter):
    """A line for people."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        fields = " ".join(f"{key}={value}" for key, value in _extra(record).items())
        request = getattr(record, "request_id", "")
        parts = [
            _time(record), record.levelname.lower(), record.name, record.getMessage(), fields,
            f"request={request}" if request else "",
        ]  # fmt: skip
        # One record is one line, whatever a client put into a name.
        line = " ".join(_CONTROL.sub("?", part) for part in parts if part)
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


class BoundedQueueHandler(logging.handlers.QueueHandler):
    """Hands records to the writing thread; drops them when it cannot keep up."""

    dropped = 0

    def __init__(self, waiting: _Waiting) -> None:
        super().__init__(waiting)
        self._waiting = waiting

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        """Merge the arguments now, because they may change; format later."""
        record.msg, record.args = record.getMessage(), None
        return record

    def enqueue(self, record: logging.LogRecord | RequestReport) -> None:
        """Put the record, or count it as lost."""
        if self._waiting.qsize() < _QUEUE:
            self._waiting.put(record)
        else:
            self.dropped += 1


class _Output(logging.StreamHandler[TextIO]):
    """Lines that are written together: each by itself costs a call of the system."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Take a record's line."""
        try:
            self._take(self.format(record))
        except Exception:  # logging's own rule: no line may break who writes it
            self.handleError(record)

    def access(self, report: RequestReport) -> None:
        """Take a finished request's line."""
        if isinstance(self.formatter, JsonFormatter):
            self._take(self.formatter.access(report))
        else:
            self.handle(_record(report))

    def _take(self, line: str) -> None:
        self._lines.append(line)
        if len(self._lines) >= _TOGETHER:
            self.write_out()

    def write_out(self) -> None:
        """Write the lines that were taken."""
        if not self._lines:
            return
        text = "\n".join((*self._lines, ""))
        self._lines.clear()
        # A closed or broken output loses lines; it must not end the thread that writes them.
        with suppress(OSError, ValueError):
            self.stream.write(text)
            self.stream.flush()


class _Writer(logging.handlers.QueueListener):
    """The writing thread; ending it waits a little, not for ever on a blocked output."""

    def __init__(self, waiting: _Waiting, output: _Output) -> None:
        super().__init__(waiting, output)
        self._waiting = waiting
        self._output = output
        self._ended = threading.Event()

    def dequeue(self, block: bool) -> logging.LogRecord:
        """Let lines gather for a moment: a thread that wakes for each stops the loop each time."""
        if self._waiting.empty():
            self._output.write_out()
            self._ended.wait(_GATHER_S)
        return super().dequeue(block)

    def handle(self, record: logging.LogRecord | RequestReport) -> None:
        """Write one; the last are written when it ends."""
        if isinstance(record, RequestReport):
            self._output.access(record)
        else:
            super().handle(record)

    def stop(self) -> None:
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._ended.set()
        self._waiting.put(None)
        thread.join(_LAST_LINES_S)
        if not thread.is_alive():
            self._output.write_out()


class Logs:
    """The process's logging as configured; ``close`` writes what waits."""

    def __init__(self, handler: BoundedQueueHandler, listener: _Writer):
        self._handler = handler
        self._listener: _Writer | None = listener

    @property
    def dropped(self) -> int:
        """Lines lost because the output did not keep up."""
        return self._handler.dropped

    def close(self) -> None:
        """Write what waits and give the root logger back."""
        if self._listener is not None:
            logging.getLogger().removeHandler(self._handler)
            self._listener.stop()
            self._listener = None


def configure_logging(settings: TelemetrySettings, stream: TextIO | None = None) -> Logs:
    """Send every logger's lines to ``stream`` (standard error) in the configured shape."""
    output = _Output(stream or sys.stderr)
    output.setFormatter(
        JsonFormatter(settings.environment, settings.region)
        if settings.log_format == "json"
        else TextFormatter()
    )
    waiting: _Waiting = queue.SimpleQueue()
    handler = BoundedQueueHandler(waiting)
    handler.addFilter(IdFilter())
    listener = _Writer(waiting, output)
    root = logging.getLogger()
    for old in root.handlers[:]:
        if isinstance(old, BoundedQueueHandler):
            root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(settings.log_level.upper())
    # Libraries speak up when something is wrong, not when something happens.
    logging.getLogger("uvicorn").setLevel(logging.ERROR)
    for name in ("faiss", "mcp", "httpx2", "httpcore", "asyncio", "watchfiles"):
        logging.getLogger(name).setLevel(logging.WARNING)
    listener.start()
    logs = Logs(handler, listener)
    atexit.register(logs.close)
    return logs


class AccessLog:
    """One line for each request."""

    def finished(self, report: RequestReport) -> None:
        """Log the request.

        Where nobody but the writing thread listens, the report itself is handed to it: to make a
        record of it first costs the loop five times as much.
        """
        if not _access.isEnabledFor(logging.INFO):
            return
        writing = _only_writer()
        if writing is not None:
            writing.enqueue(report)
        else:
            _access.handle(_record(report))


def _only_writer() -> BoundedQueueHandler | None:
    """The one handler of access lines, if it is the process's own and nobody filters them."""
    handlers = logging.getLogger().handlers
    if len(handlers) != 1 or not isinstance(handlers[0], BoundedQueueHandler):
        return None
    own = (_access, _access.parent)
    if any(one is not None and one is not logging.root and one.handlers for one in own):
        return None
    return None if _access.filters else handlers[0]


def _record(report: RequestReport) -> logging.LogRecord:
    """The record of a finished request, for handlers that know nothing else."""
    message = f"{report.method} {report.route} {report.status}"
    record = logging.LogRecord(_access.name, logging.INFO, __file__, 0, message, None, None)
    record.created = report.ended_at
    record.request_id, ids = report.request_id, report.trace
    record.trace_id, record.span_id = ids.trace_id, ids.span_id
    vars(record).update(_fields(report))
    return record


def _fields(report: RequestReport) -> dict[str, Any]:
    """What a line tells of a request beside its ids."""
    fields: dict[str, Any] = {
        "method": report.method,
        "route": report.route,
        "status": report.status,
        "outcome": report.outcome,
        "duration_ms": round(report.duration_s * 1000, 2),
        "client": report.client,
    }
    if report.ctx is not None:
        fields["tenant"] = report.ctx.principal.tenant
        fields["key"] = report.ctx.principal.key_id
        fields |= report.ctx.labels
        if report.ctx.degradations:
            fields["degradations"] = [
                f"{step.stage}:{step.rung} ({step.reason})" for step in report.ctx.degradations
            ]
    optional = {
        "error": report.error_code,
        "kb": report.kb,
        "model": report.model,
        "ttft_ms": None if report.ttft_s is None else round(report.ttft_s * 1000, 2),
        "prompt_tokens": report.prompt_tokens or None,
        "completion_tokens": report.completion_tokens or None,
    }
    fields |= {key: value for key, value in optional.items() if value is not None}
    return fields


def _time(record: logging.LogRecord) -> str:
    return _stamp(record.created)


def _stamp(at: float) -> str:
    moment = datetime.fromtimestamp(at, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _extra(record: logging.LogRecord) -> dict[str, Any]:
    return {
        key: value
        for key, value in vars(record).items()
        if key not in _STANDARD and key not in _OWN and not key.startswith("_")
    }
