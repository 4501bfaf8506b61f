"""All sinks of one process, made from its settings."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol

import msgspec

from forebay.kernel.chance import RandomBytes
from forebay.telemetry.ids import TraceIds, begin_trace
from forebay.telemetry.logs import AccessLog
from forebay.telemetry.metrics import Metrics
from forebay.telemetry.report import RequestReport
from forebay.telemetry.settings import TelemetrySettings

if TYPE_CHECKING:
    from forebay.telemetry.traces import SpanSink


class Sink(Protocol):
    """Takes finished requests; must not block."""

    def finished(self, report: RequestReport) -> None:
        """Take note of one."""
        ...


class Telemetry(msgspec.Struct, frozen=True):
    """What requests are reported to; ``close`` sends the last traces."""

    metrics: Metrics
    sinks: tuple[Sink, ...]
    begin_trace: Callable[[str | None], TraceIds]
    traces: SpanSink | None

    def close(self) -> None:
        """Export what waits; blocking, a few seconds at most."""
        if self.traces is not None:
            self.traces.close()


def open_telemetry(settings: TelemetrySettings, version: str) -> Telemetry:
    """Make the sinks; without ``otlp_endpoint`` no trace is kept."""
    traces = _traces(settings, version)
    sinks: list[Sink] = [AccessLog()] if settings.access_log else []
    if traces is not None:
        sinks.append(traces)
    ratio = settings.sampling_ratio if traces is not None else 0.0
    return Telemetry(
        metrics=Metrics(max_tenants=settings.max_tenants),
        sinks=tuple(sinks),
        begin_trace=partial(begin_trace, ratio=ratio, random_bytes=RandomBytes()),
        traces=traces,
    )


def _traces(settings: TelemetrySettings, version: str) -> SpanSink | None:
    if not settings.otlp_endpoint:
        return None
    from forebay.telemetry.traces import otlp_sink

    return otlp_sink(settings, version)
