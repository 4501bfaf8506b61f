"""Spans of finished requests: names, nesting, times, who is kept, and a real collector."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import msgspec
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes as genai

from forebay.kernel.clock import Deadline, VirtualClock
from forebay.kernel.context import Principal, RequestContext
from forebay.telemetry import names
from forebay.telemetry.ids import TraceIds, begin_trace
from forebay.telemetry.report import RequestReport
from forebay.telemetry.settings import TelemetrySettings
from forebay.telemetry.traces import SpanBuilder, SpanSink, otlp_sink

PARENT = f"00-{'a' * 32}-{'b' * 16}-01"


def report(trace: TraceIds | None = None, **changes: Any) -> RequestReport:
    clock = VirtualClock(50.0)
    ctx = RequestContext(
        request_id="r-1",
        principal=Principal("acme"),
        deadline=Deadline.after(9, clock),
        clock=clock,
    )
    clock.advance(0.5)
    with ctx.stage("retrieval") as retrieval:
        retrieval.attributes["top_k"] = 5
        clock.advance(0.1)
        with ctx.stage("embedding", waited_s=0.1):
            clock.advance(0.25)
        clock.advance(0.15)
    with ctx.stage("generation") as generation:
        generation.attributes |= {"model": "sim", "input_tokens": 7, "output_tokens": 2}
        generation.attributes["ttft_s"] = 0.5
        clock.advance(1.0)
    ctx.rung, ctx.kb_version = "vector+bm25", 3
    made = RequestReport(
        request_id="r-1",
        method="POST",
        route="chat",
        status=200,
        outcome="ok",
        ended_at=1000.0,
        arrived_at=50.0,
        duration_s=2.0,
        client="10.0.0.1",
        trace=trace or begin_trace(PARENT),
        ctx=ctx,
        kb="handbook",
    )
    return msgspec.structs.replace(made, **changes)


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def test_a_trace_continues_its_caller_and_nests_like_its_stages() -> None:
    root, retrieval, embedding, generation = SpanBuilder(TelemetrySettings(), "1").build(report())
    assert [span.name for span in (root, retrieval, embedding, generation)] == [
        "rag.request",
        "rag.query.retrieval",
        "rag.query.embedding",
        "rag.llm.generation",
    ]
    assert root.parent is not None and root.parent.is_remote
    assert f"{root.parent.span_id:016x}" == "b" * 16
    assert f"{root.context.trace_id:032x}" == "a" * 32
    assert retrieval.parent == root.context == generation.parent
    assert embedding.parent == retrieval.context
    assert (root.start_time, root.end_time) == (998_000_000_000, 1_000_000_000_000)
    assert embedding.start_time is not None and embedding.end_time is not None
    assert embedding.end_time - embedding.start_time == pytest.approx(350_000_000, abs=1000)
    assert (generation.start_time, generation.end_time) == (999_000_000_000, 1_000_000_000_000)
    assert attributes(root)[names.TENANT] == "acme"
    assert attributes(retrieval) | {} == {
        names.OUTCOME: "ok",
        "rag.retrieval.top_k": 5,
        "rag.retrieval.type": "hybrid",
    }
    assert attributes(embedding)[names.WAITED] == 0.1
    assert root.resource.attributes["service.name"] == "forebay"


@pytest.mark.parametrize(
    ("generation", "present", "absent"),
    [
        ("current", genai.GEN_AI_USAGE_INPUT_TOKENS, genai.GEN_AI_USAGE_PROMPT_TOKENS),
        ("legacy", genai.GEN_AI_USAGE_PROMPT_TOKENS, genai.GEN_AI_USAGE_INPUT_TOKENS),
        ("both", genai.GEN_AI_USAGE_PROMPT_TOKENS, "-"),
    ],
)
def test_genai_names_can_be_switched(generation: Any, present: str, absent: str) -> None:
    settings = TelemetrySettings(genai_names=generation)
    span = SpanBuilder(settings, "1").build(report())[-1]
    assert attributes(span)[present] == 7
    assert absent not in attributes(span)
    assert attributes(span)[genai.GEN_AI_RESPONSE_MODEL] == "sim"


def test_the_table_agrees_with_the_conventions() -> None:
    assert names.GENAI_CURRENT["provider"] == genai.GEN_AI_PROVIDER_NAME
    assert names.GENAI_CURRENT["output_tokens"] == genai.GEN_AI_USAGE_OUTPUT_TOKENS
    assert names.GENAI_LEGACY["provider"] == genai.GEN_AI_SYSTEM
    assert names.GENAI_LEGACY["output_tokens"] == genai.GEN_AI_USAGE_COMPLETION_TOKENS
    assert names.GENAI_TTFT == genai.GEN_AI_RESPONSE_TIME_TO_FIRST_CHUNK
    assert names.GENAI_OPERATION == genai.GEN_AI_OPERATION_NAME


@pytest.mark.parametrize(
    ("rung", "kind"),
    [("vector+bm25", "hybrid"), ("vector", "dense"), ("bm25", "sparse"), ("keyword", "sparse")],
)
def test_retriever_types(rung: str, kind: str) -> None:
    assert names.retriever_type(rung) == kind


class Collected:
    """Keeps what it is given, or stands still while ``hold`` is set."""

    def __init__(self) -> None:
        self.spans: list[ReadableSpan] = []
        self.go = threading.Event()
        self.go.set()
        self.fail = False

    def export(self, spans: Sequence[ReadableSpan]) -> None:
        self.go.wait(10)
        if self.fail:
            raise ConnectionError("the collector is away")
        self.spans += spans

    def shutdown(self) -> None:
        pass


def sink(exporter: Collected, bound: int = 100) -> SpanSink:
    return SpanSink(SpanBuilder(TelemetrySettings(), "1"), exporter, bound)


def test_failures_are_kept_and_unsampled_successes_are_not() -> None:
    collected = Collected()
    spans = sink(collected)
    unsampled = begin_trace(None, ratio=0.0)
    spans.finished(report(unsampled))
    spans.finished(report(unsampled, outcome="invalid", status=400))
    spans.finished(report(unsampled, outcome="error", status=502, error_code="engine_error"))
    spans.finished(report(begin_trace(None, ratio=1.0)))
    spans.close()
    roots = [span for span in collected.spans if span.name == "rag.request"]
    assert [attributes(span)[names.HTTP_STATUS] for span in roots] == [502, 200]
    assert not roots[0].status.is_ok
    assert attributes(roots[0])[names.ERROR_TYPE] == "engine_error"


def test_a_slow_collector_costs_traces_not_memory() -> None:
    collected = Collected()
    collected.go.clear()
    spans = sink(collected, bound=3)
    for _ in range(20):
        spans.finished(report())
    assert spans.statistics().waiting <= 3
    assert spans.statistics().dropped >= 13
    collected.go.set()
    spans.close()
    assert spans.statistics().exported + spans.statistics().dropped == 20


def test_a_failing_collector_does_not_end_the_thread() -> None:
    collected = Collected()
    collected.fail = True
    spans = sink(collected)
    spans.finished(report())
    while spans.statistics().dropped == 0:
        pass
    collected.fail = False
    spans.finished(report())
    spans.close()
    assert spans.statistics().exported == 1


def test_otlp_over_http_reaches_a_collector() -> None:
    bodies: list[bytes] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Collector) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}/v1/traces"
        spans = otlp_sink(TelemetrySettings(otlp_endpoint=address, environment="test"), "9")
        spans.finished(report())
        spans.close()
        server.shutdown()
    [sent] = [ExportTraceServiceRequest.FromString(body) for body in bodies]
    [resource] = sent.resource_spans
    stored = {item.key: item.value.string_value for item in resource.resource.attributes}
    assert stored["deployment.environment.name"] == "test"
    assert resource.scope_spans[0].spans[0].name == "rag.request"
