"""Spans of finished requests, built and exported by a thread of their own.

Nothing of OpenTelemetry runs while a request is served (eight live spans cost 440 us, and
168 us even when they are dropped): the stage records of the context hold everything, and
spans are made of them afterwards, only for requests that are kept. Those that went wrong always
are (F2.15).
"""

from __future__ import annotations

import logging
import queue
import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import msgspec
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from forebay.kernel.context import RequestContext, StageRecord
from forebay.telemetry import names
from forebay.telemetry.report import RequestReport
from forebay.telemetry.settings import TelemetrySettings

log = logging.getLogger("forebay.telemetry.traces")
_BATCH = 64
_NANO = 1_000_000_000
Attributes = dict[str, str | int | float | bool]


class Exporter(Protocol):
    """Sends spans away; blocking."""

    def export(self, spans: Sequence[ReadableSpan]) -> object:
        """Send a batch."""
        ...

    def shutdown(self) -> None:
        """Close connections."""
        ...


class SpanBuilder:
    """Turns one report into its spans, root first."""

    def __init__(
        self,
        settings: TelemetrySettings,
        version: str,
        random_bytes: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        self._genai = names.genai_names(settings.genai_names)
        self._random_bytes = random_bytes
        self._scope = InstrumentationScope("forebay", version)
        resource: Attributes = {
            names.SERVICE_NAME: settings.service_name,
            names.SERVICE_VERSION: version,
            names.ENVIRONMENT: settings.environment,
        }
        if settings.region:
            resource[names.REGION] = settings.region
        self._resource = Resource(resource)

    def build(self, report: RequestReport) -> list[ReadableSpan]:
        """Return the root span and one span for each stage, nested as the stages were."""
        ids = report.trace
        trace_id = int(ids.trace_id, 16)
        root = _context(trace_id, int(ids.span_id, 16))
        parent = None
        if ids.parent_id is not None:
            parent = _context(trace_id, int(ids.parent_id, 16), remote=True)
        began_at = report.ended_at - report.duration_s
        failed = report.outcome in ("error", "timeout")
        spans = [
            ReadableSpan(
                name=names.ROOT_SPAN,
                context=root,
                parent=parent,
                resource=self._resource,
                attributes=_root_attributes(report),
                kind=SpanKind.SERVER,
                status=Status(StatusCode.ERROR if failed else StatusCode.UNSET),
                start_time=int(began_at * _NANO),
                end_time=int(report.ended_at * _NANO),
                instrumentation_scope=self._scope,
            )
        ]
        if report.ctx is not None:
            shift = began_at - report.arrived_at
            self._stages(report, report.ctx, shift, root, spans)
        return spans

    def _stages(
        self,
        report: RequestReport,
        ctx: RequestContext,
        shift: float,
        root: SpanContext,
        spans: list[ReadableSpan],
    ) -> None:
        open_spans: list[tuple[float, SpanContext]] = []
        for record in sorted(ctx.stages, key=lambda record: record.started_at):
            ends_at = record.started_at + record.waited_s + record.worked_s
            while open_spans and open_spans[-1][0] < ends_at:
                open_spans.pop()
            context = _context(root.trace_id, int.from_bytes(self._random_bytes(8), "big"))
            failed = record.outcome in ("error", "timeout")
            spans.append(
                ReadableSpan(
                    name=names.STAGE_SPANS.get(record.name, f"rag.stage.{record.name}"),
                    context=context,
                    parent=open_spans[-1][1] if open_spans else root,
                    resource=self._resource,
                    attributes=self._stage_attributes(report, ctx, record),
                    kind=SpanKind.CLIENT if record.name == "generation" else SpanKind.INTERNAL,
                    status=Status(StatusCode.ERROR if failed else StatusCode.UNSET),
                    start_time=int((record.started_at + shift) * _NANO),
                    end_time=int((ends_at + shift) * _NANO),
                    instrumentation_scope=self._scope,
                )
            )
            open_spans.append((ends_at, context))

    def _stage_attributes(
        self, report: RequestReport, ctx: RequestContext, record: StageRecord
    ) -> Attributes:
        attributes: Attributes = {names.OUTCOME: record.outcome}
        if record.waited_s:
            attributes[names.WAITED] = record.waited_s
        if record.name == "generation":
            return attributes | self._genai_attributes(report, record.attributes)
        for key, value in record.attributes.items():
            attributes[names.STAGE_ATTRIBUTES.get(key, f"rag.{key}")] = value
        if record.name == "retrieval" and ctx.rung is not None:
            attributes.setdefault(names.RETRIEVER_TYPE, names.retriever_type(ctx.rung))
        return attributes

    def _genai_attributes(
        self, report: RequestReport, known: Mapping[str, str | int | float | bool]
    ) -> Attributes:
        attributes: Attributes = {names.GENAI_OPERATION: "chat"}
        model = known.get("model") or report.model
        if model:
            attributes[names.GENAI_REQUEST_MODEL] = model
            attributes[names.GENAI_RESPONSE_MODEL] = model
        if "ttft_s" in known:
            attributes[names.GENAI_TTFT] = known["ttft_s"]
        for table in self._genai:
            attributes[table["provider"]] = known.get("provider", "forebay")
            for key in ("input_tokens", "output_tokens"):
                if key in known:
                    attributes[table[key]] = known[key]
        return attributes


class ExportStatistics(msgspec.Struct, frozen=True):
    """What became of the traces that were kept."""

    exported: int
    dropped: int
    waiting: int


class SpanSink:
    """Takes finished requests, exports the kept ones; close it to send the last."""

    def __init__(self, builder: SpanBuilder, exporter: Exporter, bound: int) -> None:
        self._builder = builder
        self._exporter = exporter
        self._queue: queue.Queue[RequestReport | None] = queue.Queue(bound)
        self._exported = 0
        self._dropped = 0
        self._thread = threading.Thread(target=self._work, name="forebay-traces", daemon=True)
        self._thread.start()

    def finished(self, report: RequestReport) -> None:
        """Keep the report if its trace is sampled or it went wrong; never waits."""
        if not (report.trace.sampled or report.outcome in ("error", "timeout", "shed")):
            return
        try:
            self._queue.put_nowait(report)
        except queue.Full:
            self._dropped += 1

    def statistics(self) -> ExportStatistics:
        """Traces exported, dropped because the queue was full, and waiting."""
        return ExportStatistics(self._exported, self._dropped, self._queue.qsize())

    def close(self, timeout_s: float = 5.0) -> None:
        """Export what waits, within ``timeout_s``."""
        try:
            self._queue.put(None, timeout=timeout_s)
        except queue.Full:
            log.warning("traces are lost: the collector does not take them")
        self._thread.join(timeout_s)
        self._exporter.shutdown()

    def _work(self) -> None:
        ended = False
        while not ended:
            batch = [self._queue.get()]
            while len(batch) < _BATCH and not self._queue.empty():
                batch.append(self._queue.get_nowait())
            ended = None in batch
            reports = [report for report in batch if report is not None]
            if reports:
                self._export(reports)

    def _export(self, reports: Sequence[RequestReport]) -> None:
        try:
            self._exporter.export([s for report in reports for s in self._builder.build(report)])
        except Exception as error:  # a collector's trouble must not end the thread
            self._dropped += len(reports)
            log.warning("%d traces were not exported: %s", len(reports), type(error).__name__)
        else:
            self._exported += len(reports)


def otlp_sink(settings: TelemetrySettings, version: str) -> SpanSink:
    """A sink that sends to ``otlp_endpoint`` by OTLP over HTTP."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    exporter = OTLPSpanExporter(endpoint=settings.otlp_endpoint, timeout=settings.export_timeout_s)
    return SpanSink(SpanBuilder(settings, version), exporter, settings.export_queue)


def _context(trace_id: int, span_id: int, *, remote: bool = False) -> SpanContext:
    return SpanContext(trace_id, span_id, remote, TraceFlags(TraceFlags.SAMPLED))


def _root_attributes(report: RequestReport) -> Attributes:
    attributes: Attributes = {
        names.HTTP_METHOD: report.method,
        names.HTTP_ROUTE: report.route,
        names.HTTP_STATUS: report.status,
        names.REQUEST_ID: report.request_id,
    }
    if report.client:
        attributes[names.CLIENT] = report.client
    if report.error_code:
        attributes[names.ERROR_TYPE] = report.error_code
    if report.kb is not None:
        attributes[names.KB] = report.kb
    ctx = report.ctx
    if ctx is not None:
        attributes[names.TENANT] = ctx.principal.tenant
        if ctx.kb_version is not None:
            attributes[names.KB_VERSION] = ctx.kb_version
        if ctx.rung is not None:
            attributes[names.RUNG] = ctx.rung
        if ctx.degradations:
            attributes[names.DEGRADED] = ",".join(d.stage for d in ctx.degradations)
    return attributes
