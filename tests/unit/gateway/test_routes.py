"""What each route answers, without a socket."""

from __future__ import annotations

import base64
import json
import logging
from typing import Any

import numpy as np
import pytest

from forebay.gateway.parts import Readiness
from forebay.gateway.settings import CorsSettings, ServerSettings
from forebay.kernel.context import RequestContext
from forebay.kernel.errors import StoreFull, Unavailable
from forebay.telemetry.report import RequestReport
from forebay.telemetry.settings import TelemetrySettings
from forebay.telemetry.traces import SpanBuilder
from forebay.testing.embedding import HashEmbedder
from tests.unit.gateway.client import client
from tests.unit.gateway.fakes import World

CHAT = "/v1/chat/completions"
ASK = {"model": "x", "messages": [{"role": "user", "content": "how many days?"}]}
DOCUMENTS = "/v1/kb/handbook/documents"


class ByLength:
    """A reranker that prefers long texts."""

    async def rerank(self, ctx: RequestContext, query: str, texts: Any) -> list[float]:
        return [min(1.0, len(text) / 100) for text in texts]


# --- chat -----------------------------------------------------------------------------------


async def test_text_parts_are_joined_and_roles_translated() -> None:
    world = World()
    parts = [{"type": "text", "text": "how many"}, {"type": "text", "text": "days?"}]
    messages = [
        {"role": "developer", "content": "Be brief."},
        {"role": "assistant", "content": None, "tool_calls": []},
        {"role": "user", "content": parts, "name": "ann"},
    ]
    async with client(world) as http:
        response = await http.post(CHAT, json=ASK | {"messages": messages, "stop": "###"})
    assert response.status_code == 200
    sent = world.answering.requests[0]
    assert [m.role for m in sent.messages] == ["system", "assistant", "user"]
    assert [m.content for m in sent.messages] == ["Be brief.", "", "how many\ndays?"]
    assert sent.sampling.stop == ("###",)


async def test_sampling_and_own_options_reach_the_pipeline() -> None:
    world = World()
    body = ASK | {
        "temperature": 0.5, "max_tokens": 9, "max_completion_tokens": 5, "seed": 3,
        "forebay": {"top_k": 2, "filter": {"tags": ["a", "b"]}}, "tools": [{}], "store": True,
    }  # fmt: skip
    async with client(world) as http:
        assert (await http.post(CHAT, json=body)).status_code == 200
    [sent] = world.answering.requests
    assert (sent.sampling.temperature, sent.sampling.max_tokens, sent.sampling.seed) == (0.5, 5, 3)
    assert (sent.top_k, sent.filter) == (2, {"tags": ("a", "b")})


async def test_a_two_megabyte_prompt_is_taken() -> None:
    body = ASK | {"messages": [{"role": "user", "content": "x" * 2_000_000}]}
    async with client(World()) as http:
        assert (await http.post(CHAT, json=body)).status_code == 200


async def test_deep_json_is_400_not_500() -> None:
    async with client(World()) as http:
        response = await http.post(CHAT, content=b'{"a":' + b"[" * 300_000)
    assert response.status_code == 400
    assert response.json()["error"]["code"] == "invalid_json"


async def test_an_unexpected_failure_keeps_its_secrets(caplog: pytest.LogCaptureFixture) -> None:
    world = World(script=[RuntimeError("/home/x/secret.db is broken")])
    async with client(world, x_request_id="mine-1") as http:
        response = await http.post(CHAT, json=ASK)
    assert response.status_code == 500
    assert response.headers["x-request-id"] == "mine-1"
    assert "secret" not in response.text
    assert "Traceback" not in response.text
    assert "mine-1" in response.json()["error"]["message"]
    [record] = [r for r in caplog.records if r.levelno == logging.ERROR]
    assert "mine-1" in record.getMessage()
    assert record.exc_info


# --- headers --------------------------------------------------------------------------------


@pytest.mark.parametrize("sent", ["", "x" * 200, 'a"b', "a b", "<script>"])
async def test_a_request_id_that_cannot_be_trusted_is_replaced(sent: str) -> None:
    async with client(World()) as http:
        response = await http.get("/healthz", headers={"x-request-id": sent})
    assert response.headers["x-request-id"].startswith("req-")


@pytest.mark.parametrize("sent", ["0", "-5", "1.5", "soon", "99999999999999"])
async def test_a_wrong_deadline_is_400(sent: str) -> None:
    async with client(World(), x_forebay_deadline_ms=sent) as http:
        response = await http.post(CHAT, json=ASK)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "x-forebay-deadline-ms"


async def test_context_carries_what_the_headers_say() -> None:
    world = World()
    headers = {
        "x-forebay-no-cache": "1",
        "x-forebay-deadline-ms": "99999999",
        "traceparent": f"00-{'a' * 32}-{'b' * 16}-01",
    }
    async with client(world) as http:
        await http.post(CHAT, json=ASK, headers=headers)
    [ctx] = world.answering.contexts
    assert ctx.no_cache
    assert 500 < ctx.deadline.remaining() <= 600
    assert ctx.traceparent is not None
    assert ctx.traceparent.startswith(f"00-{'a' * 32}-")
    assert "b" * 16 not in ctx.traceparent


# --- search, embeddings, rerank -------------------------------------------------------------


async def test_search() -> None:
    async with client(World()) as http:
        response = await http.post("/v1/search", json={"query": "差旅", "top_k": 2})
        named = await http.post("/v1/search", json={"query": "plan", "model": "forebay/secret"})
        by_kb = await http.post("/v1/search", json={"query": "plan", "kb": "secret"})
        empty = await http.post("/v1/search", json={"query": " "})
    body = response.json()
    assert [hit["document_id"] for hit in body["hits"]] == ["leave.md", "差旅.md"]
    assert {"document_id", "chunk_id", "text", "score", "source", "title", "start", "end"} <= set(
        body["hits"][0]
    )
    assert body["hits"][0]["chunk_id"] == "1"
    assert (body["rung"], body["kb_version"]) == ("bm25", 2)
    assert response.headers["x-forebay-rung"] == "bm25"
    assert named.json()["hits"] == by_kb.json()["hits"] != []
    assert empty.status_code == 400


async def test_embeddings_as_numbers_and_as_base64() -> None:
    world = World(embedder=HashEmbedder(8))
    async with client(world) as http:
        ask = {"model": "any", "input": ["你好", "hello"]}
        numbers = (await http.post("/v1/embeddings", json=ask)).json()
        coded = (await http.post("/v1/embeddings", json=ask | {"encoding_format": "base64"})).json()
    assert numbers["model"] == "hash"
    assert numbers["usage"]["total_tokens"] > 0
    for number, code in zip(numbers["data"], coded["data"], strict=True):
        vector = np.frombuffer(base64.b64decode(code["embedding"]), "<f4")
        np.testing.assert_allclose(vector, number["embedding"], rtol=1e-6)
        assert abs(float(np.linalg.norm(vector)) - 1) < 1e-5
    assert [item["index"] for item in numbers["data"]] == [0, 1]


@pytest.mark.parametrize(
    "extra",
    [
        {"input": [1, 2]}, {"input": [[1, 2]]}, {"input": ""}, {"input": []}, {"input": ["a", ""]},
        {"dimensions": 4}, {"encoding_format": "hex"}, {"input": ["x"] * 3000}, {"input": None},
    ],
)  # fmt: skip
async def test_embeddings_that_cannot_be_made(extra: dict[str, Any]) -> None:
    async with client(World(embedder=HashEmbedder(8))) as http:
        response = await http.post("/v1/embeddings", json={"model": "m", "input": "x"} | extra)
    assert response.status_code == 400


async def test_stages_that_are_not_configured_are_404() -> None:
    async with client(World()) as http:
        one = await http.post("/v1/embeddings", json={"model": "m", "input": "x"})
        other = await http.post("/v1/rerank", json={"query": "q", "documents": ["d"]})
    assert [one.status_code, other.status_code] == [404, 404]


@pytest.mark.parametrize("path", ["/v1/rerank", "/rerank"])
async def test_rerank(path: str) -> None:
    documents = ["short", {"text": "a good deal longer"}, "middling"]
    async with client(World(reranker=ByLength())) as http:
        full = (await http.post(path, json={"query": "q", "documents": documents})).json()
        top = await http.post(
            path,
            json={
                "model": "m", "query": "q", "documents": documents, "top_n": 1,
                "return_documents": False,
            },
        )  # fmt: skip
    assert [result["index"] for result in full["results"]] == [1, 2, 0]
    assert full["results"][0]["document"] == {"text": "a good deal longer"}
    assert full["results"][0]["relevance_score"] == 0.18
    assert top.json()["results"] == [{"index": 1, "relevance_score": 0.18}]


# --- documents ------------------------------------------------------------------------------


async def test_a_document_goes_in_and_out() -> None:
    world = World()
    path = f"{DOCUMENTS}/policies/2026/%E7%97%85%E5%81%87.md"
    async with client(world) as http:
        put = await http.put(
            path,
            content="病假需要证明。".encode(),
            headers={"content-type": "text/markdown; charset=utf-8"},
            params={"title": "病假", "tags": "hr,leave", "metadata": '{"year":"2026"}'},
        )
        got = await http.get(path)
        again = await http.put(path, content=b"x", params={"wait": "embedded"})
        gone = await http.delete(path)
        after = await http.get(path)
    assert put.json() == {
        "kb": "handbook", "id": "policies/2026/病假.md", "outcome": "indexed", "kb_version": 3,
        "embedded": False,
    }  # fmt: skip
    assert put.headers["x-forebay-kb-version"] == "3"
    body = got.json()
    assert body["text"] == "病假需要证明。"
    assert (body["title"], body["tags"], body["metadata"]) == (
        "病假",
        ["hr", "leave"],
        {"year": "2026"},
    )
    assert world.knowledge.uploads[0].media_type == "text/markdown; charset=utf-8"
    assert again.json()["outcome"] == "replaced"
    assert again.json()["embedded"] is True
    assert gone.json()["outcome"] == "removed"
    assert (after.status_code, after.json()["error"]["code"]) == (404, "not_found")


async def test_a_multipart_upload() -> None:
    world = World()
    async with client(world) as http:
        response = await http.put(
            f"{DOCUMENTS}/report",
            files={"file": ("报告.pdf", b"%PDF-", "application/pdf")},
            data={"title": "Report", "tags": "a, b"},
        )
    assert response.status_code == 200
    [upload] = world.knowledge.uploads
    assert (upload.name, upload.data, upload.media_type) == (
        "报告.pdf",
        b"%PDF-",
        "application/pdf",
    )
    assert (upload.title, upload.tags) == ("Report", ("a", "b"))


@pytest.mark.parametrize(
    "request_of",
    [
        {"files": {"a": b"1", "b": b"2"}},
        {"content": b"broken", "headers": {"content-type": "multipart/form-data; boundary=x"}},
        {"content": b"broken", "headers": {"content-type": "multipart/form-data"}},
        {"content": b"x", "params": {"wait": "later"}},
        {"content": b"x", "params": {"metadata": '{"a":1}'}},
        {"content": b"x", "params": {"title": ["a", "b"]}},
        {"content": b"x", "params": {str(n): "x" for n in range(200)}},
        {"content": b""},
    ],
)
async def test_uploads_that_cannot_be_taken(request_of: dict[str, Any]) -> None:
    async with client(World()) as http:
        response = await http.put(f"{DOCUMENTS}/x", **request_of)
    assert response.status_code == 400, response.text


async def test_file_names_come_from_the_headers_too() -> None:
    world = World()
    async with client(world) as http:
        disposition = "attachment; filename*=UTF-8''%E8%A1%A8.csv"
        await http.put(f"{DOCUMENTS}/x", content=b"a", headers={"content-disposition": disposition})
        await http.put(f"{DOCUMENTS}/x", content=b"a", params={"filename": "t.tsv"})
        await http.put(f"{DOCUMENTS}/y.md", content=b"a")
    assert [upload.name for upload in world.knowledge.uploads] == ["表.csv", "t.tsv", "y.md"]
    assert world.knowledge.uploads[2].media_type is None


async def test_lists_are_paged() -> None:
    world = World()
    for number in range(5):
        world.knowledge.add("secret", f"d{number}", "x")
    async with client(world) as http:
        kbs = (await http.get("/v1/kb")).json()
        one = (await http.get("/v1/kb/secret")).json()
        first = (await http.get("/v1/kb/secret/documents", params={"limit": 4})).json()
        rest = (
            await http.get("/v1/kb/secret/documents", params={"after": first["next_after"]})
        ).json()
        wrong = await http.get("/v1/kb/secret/documents", params={"limit": "0"})
    assert [kb["name"] for kb in kbs["data"]] == ["handbook", "secret"]
    assert (one["documents"], one["kb_version"]) == (6, 6)
    assert [item["id"] for item in first["data"]] == ["d0", "d1", "d2", "d3"]
    assert [item["id"] for item in rest["data"]] == ["d4", "plan.md"]
    assert rest["next_after"] is None
    assert wrong.status_code == 400


async def test_a_full_disk_is_507_and_a_starting_part_503() -> None:
    world = World()

    async def full(*_: Any, **__: Any) -> Any:
        raise StoreFull("the disk is full; the last version stands.")

    world.knowledge.put = full  # type: ignore[method-assign]
    world.answering.script = [Unavailable("the engine starts.", retry_after_s=2.5)]
    async with client(world) as http:
        stored = await http.put(f"{DOCUMENTS}/x", content=b"x")
        asked = await http.post(CHAT, json=ASK)
    assert stored.status_code == 507
    assert (asked.status_code, asked.headers["retry-after"]) == (503, "3")


# --- health, figures, the rest --------------------------------------------------------------


@pytest.mark.parametrize(
    ("readiness", "status", "word"),
    [
        (Readiness(True), 200, "ready"),
        (Readiness(True, degraded=("no vectors yet",)), 200, "degraded"),
        (Readiness(False, ("models are loading",)), 503, "starting"),
    ],
)
async def test_readiness(readiness: Readiness, status: int, word: str) -> None:
    async with client(World(readiness=lambda: readiness)) as http:
        response = await http.get("/readyz")
    assert (response.status_code, response.json()["status"]) == (status, word)
    assert response.json()["reasons"] == [*readiness.reasons, *readiness.degraded]


@pytest.mark.parametrize(("share", "told"), [(None, None), (1.0, 1.0), (0.99999, 0.9999)])
async def test_readiness_tells_how_much_has_vectors(share: float | None, told: float) -> None:
    async with client(World(readiness=lambda: Readiness(True, embedded_share=share))) as http:
        assert (await http.get("/readyz")).json()["embedded_share"] == told


async def test_figures_count_api_requests_only() -> None:
    world = World()
    async with client(world) as http:
        await http.post(CHAT, json=ASK)
        await http.post(CHAT, content=b"{")
        await http.get("/healthz")
        text = (await http.get("/metrics")).text
    assert 'forebay_requests_total{outcome="ok"} 1.0' in text
    assert 'forebay_requests_total{outcome="invalid"} 1.0' in text
    assert 'forebay_tokens_total{kind="prompt"} 7.0' in text
    assert "forebay_ttft_seconds_count 1.0" in text
    assert 'forebay_stage_seconds_count{stage="generation"} 1.0' in text


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nothing", 404), ("GET", "/", 404), ("GET", CHAT, 405), ("DELETE", "/v1/kb", 405),
        ("OPTIONS", CHAT, 405), ("GET", "/v1/models/gpt-4", 404), ("GET", "/v1/kb/none", 404),
        ("GET", "/v1/kb/handbook/documents/none", 404), ("TRACE", "/healthz", 405),
        ("PUT", "/v1/kb/handbook/documents/", 400),
    ],
)  # fmt: skip
async def test_paths_and_methods(method: str, path: str, status: int) -> None:
    async with client(World()) as http:
        response = await http.request(method, path)
    assert response.status_code == status
    assert response.json()["error"]["message"]
    assert ("allow" in response.headers) == (status == 405)


async def test_cors_is_off_by_default_and_set_by_origin() -> None:
    preflight = {"origin": "https://app.org", "access-control-request-method": "POST"}
    async with client(World()) as http:
        assert (await http.options(CHAT, headers=preflight)).status_code == 405
    settings = ServerSettings(
        default_kb="handbook", cors=CorsSettings(origins=("https://app.org",))
    )
    async with client(World(settings=settings)) as http:
        allowed = await http.options(CHAT, headers=preflight)
        assert allowed.headers["access-control-allow-origin"] == "https://app.org"
        answer = await http.post(CHAT, json=ASK, headers={"origin": "https://app.org"})
        assert answer.headers["access-control-allow-origin"] == "https://app.org"
        assert "x-forebay-rung" in answer.headers["access-control-expose-headers"]
        foreign = await http.post(CHAT, json=ASK, headers={"origin": "https://evil.org"})
        assert foreign.status_code == 403


async def test_a_foreign_host_is_refused_without_keys() -> None:
    async with client(World(), host="evil.org") as http:
        response = await http.get("/v1/models")
    assert response.status_code == 403
    assert response.json()["error"]["code"] == "host_not_allowed"


async def test_the_description_lists_every_route() -> None:
    world = World()
    async with client(world) as http:
        document = (await http.get("/openapi.json")).json()
    assert document["openapi"] == "3.1.0"
    described = {
        (method.upper(), path) for path, methods in document["paths"].items() for method in methods
    }
    routed = {
        (spec.method, spec.path.replace(":path}", "}"))
        for spec in world.app.routes.specs
        if spec.name not in ("openapi", "mcp")
    }
    assert described == routed
    json.dumps(document)


async def test_a_request_is_told_to_its_sinks() -> None:
    reports: list[RequestReport] = []

    class Keep:
        def finished(self, report: RequestReport) -> None:
            reports.append(report)

    world = World(sinks=(Keep(),), script=["a ", "b"])
    header = f"00-{'a' * 32}-{'b' * 16}-01"
    async with client(world, traceparent=header) as http:
        await http.post(CHAT, json=ASK | {"stream": True})
        await http.post(CHAT, json=ASK | {"model": "forebay/none"})
        await http.get("/nowhere")
        await http.get("/healthz")
    good, missing, nowhere = reports
    assert (good.route, good.status, good.outcome, good.streamed) == ("chat", 200, "ok", True)
    assert (good.kb, good.model, good.completion_tokens) == ("handbook", "fake", 2)
    assert good.ttft_s is not None and 0 <= good.ttft_s <= good.duration_s
    assert (good.trace.trace_id, good.trace.parent_id) == ("a" * 32, "b" * 16)
    assert good.ctx is not None and good.ctx.traceparent == good.trace.traceparent
    assert (missing.outcome, missing.error_code) == ("not_found", "model_not_found")
    assert (nowhere.route, nowhere.ctx) == ("none", None)
    spans = SpanBuilder(TelemetrySettings(), "1").build(good)
    assert [span.name for span in spans] == [
        "rag.request", "rag.query.retrieval", "rag.llm.generation"
    ]  # fmt: skip


async def test_requests_in_flight_are_shown() -> None:
    world = World()
    value = world.metrics.registry.get_sample_value
    assert value("forebay_requests_in_flight") == 0
    assert value("forebay_requests_in_flight_limit") == 1024


async def test_a_kb_that_was_dropped_a_moment_ago_is_like_any_that_is_not_there() -> None:
    world = World()
    async with client(world, x_request_id="same") as http:
        assert (await http.get("/v1/kb/secret")).status_code == 200
        del world.knowledge.stored["secret"]
        ask = ASK | {"model": "forebay/secret"}
        responses = [
            await http.post(CHAT, json=ask),
            await http.post(CHAT, json=ask | {"stream": True}),
            await http.post("/v1/search", json={"query": "x", "kb": "secret"}),
            await http.get("/v1/kb/secret"),
        ]
        absent = [
            await http.post(CHAT, json=ASK | {"model": "forebay/nonesuch"}),
            await http.get("/v1/kb/nonesuch"),
        ]
    for response, same in zip(responses, (absent[0], absent[0], *absent[1:] * 2), strict=True):
        assert response.status_code == 404
        assert response.text.replace("secret", "nonesuch") == same.text
