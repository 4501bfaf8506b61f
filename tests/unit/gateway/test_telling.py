"""Equal requests are answered from memory as the long way would; others and changed ones go it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import httpx
import pytest

from forebay.gateway.identity import build_table, new_key
from forebay.gateway.settings import KeySettings, TenantSettings
from forebay.kernel.context import RequestContext
from forebay.pipeline.messages import AnswerDelta, AnswerEnd, AnswerRequest, Citation, Usage
from forebay.telemetry.report import RequestReport
from tests.unit.gateway.fakes import World, serving

END = AnswerEnd(
    finish_reason="stop",
    citations=(Citation(1, "d", "1", "休假", "s", "25 天", 0.5, 0, 4),),
    usage=Usage(7, 0),
    model="m",
    rung="bm25",
    kb_version=3,
)


class Kept:
    """A life whose every answer was kept; ``works`` says whether it may be told again."""

    def __init__(self) -> None:
        self.long_way = 0
        self.short_way = 0
        self.works = True

    async def answer(
        self, ctx: RequestContext, request: AnswerRequest
    ) -> AsyncGenerator[AnswerDelta | AnswerEnd, None]:
        del request
        self.long_way += 1
        self._note(ctx)
        yield AnswerDelta("每年 25 天 [1]。")
        yield END

    def _note(self, ctx: RequestContext) -> None:
        ctx.cache["answer"] = "hit"
        ctx.rung, ctx.kb_version = END.rung, END.kb_version

    def again(self, ctx: RequestContext) -> bool:
        if self.works:
            self.short_way += 1
            self._note(ctx)
        return self.works

    def told(self) -> tuple[AnswerDelta, AnswerEnd]:
        return AnswerDelta("每年 25 天 [1]。"), END


class Noted:
    def __init__(self) -> None:
        self.reports: list[RequestReport] = []

    def finished(self, report: RequestReport) -> None:
        self.reports.append(report)


class Asking:
    """A gateway over kept answers."""

    def __init__(self, **options: Any) -> None:
        self.kept = Kept()
        self.noted = Noted()
        self.world = World(
            recollecting=lambda ctx, request, tokens: self.kept if tokens == 7 else None,
            replays_max_bytes=1 << 20,
            sinks=(self.noted,),
            **options,
        )
        self.world.answering.answer = self.kept.answer  # type: ignore[method-assign]

    @property
    def ways(self) -> tuple[int, int]:
        return self.kept.long_way, self.kept.short_way

    async def __call__(
        self,
        question: str = "几天？",
        key: str | None = None,
        headers: dict[str, str] | None = None,
        **fields: object,
    ) -> httpx.Response:
        messages = [{"role": "user", "content": question}]
        body = json.dumps({"model": "forebay/handbook", "messages": messages, **fields}).encode()
        sent = {"host": "localhost", "content-length": str(len(body)), **(headers or {})}
        if key is not None:
            sent["authorization"] = f"Bearer {key}"
        told: list[dict[str, Any]] = []

        async def send(message: dict[str, Any]) -> None:
            told.append(message)

        await self.world.app(scope_of(sent), whole(body), send)
        content = b"".join(one.get("body", b"") for one in told[1:])
        return httpx.Response(told[0]["status"], headers=told[0]["headers"], content=content)


def scope_of(headers: dict[str, str]) -> dict[str, Any]:
    """A request as the server hands it over."""
    return {
        "type": "http", "http_version": "1.1", "method": "POST", "path": "/v1/chat/completions",
        "raw_path": b"/v1/chat/completions", "query_string": b"", "client": ("127.0.0.1", 5),
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "scheme": "http", "server": ("127.0.0.1", 80),
    }  # fmt: skip


def whole(body: bytes) -> Callable[[], Awaitable[dict[str, Any]]]:
    """A body that is there at once; after it comes nothing."""
    given = False

    async def receive() -> dict[str, Any]:
        nonlocal given
        if given:
            await asyncio.Event().wait()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive


def named(answer: httpx.Response) -> str:
    """The answer with its own names taken out."""
    text: str = answer.text
    request_id = answer.headers["x-request-id"]
    assert text.count(f'"request_id":"{request_id}"') == 1
    data = [line for line in text.splitlines() if line.startswith(("{", "data: {"))]
    first = json.loads(data[0].removeprefix("data: "))
    text = text.replace(request_id, "R").replace(first["id"], "I")
    return text.replace(f'"created":{first["created"]}', '"created":T')


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("usage", [False, True])
async def test_the_same_is_told_with_names_of_its_own(stream: bool, usage: bool) -> None:
    asking = Asking()
    options: dict[str, Any] = {"stream": stream}
    if stream and usage:
        options["stream_options"] = {"include_usage": True}
    first, second, third = [await asking(**options) for _ in range(3)]
    assert asking.ways == (1, 2)
    assert named(first) == named(second) == named(third)
    assert len({one.headers["x-request-id"] for one in (first, second, third)}) == 3
    own = {"x-request-id", "content-length"}
    assert {n: v for n, v in first.headers.items() if n not in own} == {
        n: v for n, v in second.headers.items() if n not in own
    }
    if not stream:
        assert int(second.headers["content-length"]) == len(second.content)


async def test_the_client_may_name_its_requests() -> None:
    asking = Asking()
    trace = "00-" + "ab" * 16 + "-" + "cd" * 8 + "-01"
    for name in ("one", "two", "x" * 200):
        answer = await asking(headers={"x-request-id": name, "traceparent": trace})
        told = answer.headers["x-request-id"]
        assert told == name if len(name) < 10 else told.startswith("req-")
        assert answer.json()["forebay"]["request_id"] == told
    assert asking.ways == (1, 2)
    assert [one.trace.trace_id for one in asking.noted.reports] == ["ab" * 16] * 3
    assert [one.trace.parent_id for one in asking.noted.reports] == ["cd" * 8] * 3


async def test_reports_and_figures_are_those_of_any_answer() -> None:
    asking = Asking()
    for _ in range(3):
        await asking()
    first, second, third = asking.noted.reports
    for report in (second, third):
        for field in ("method", "route", "status", "outcome", "kb", "model", "prompt_tokens"):
            assert getattr(report, field) == getattr(first, field), field
        assert report.client == first.client
        assert report.ctx is not None and report.ctx.cache["answer"] == "hit"
        assert report.ttft_s is not None and 0 <= report.ttft_s <= report.duration_s
    page = asking.world.metrics.render().decode()
    assert 'forebay_requests_total{outcome="ok"} 3.0' in page
    assert 'forebay_cache_total{result="hit",tier="answer"} 3.0' in page
    assert "forebay_ttft_seconds_count 3.0" in page
    assert 'forebay_tokens_total{kind="prompt"} 21.0' in page


@pytest.mark.parametrize(
    "other",
    [
        {"question": "几天？ "},
        {"temperature": 0.0},
        {"stream": True},
        {"headers": {"x-forebay-groups": "hr"}},
        {"headers": {"x-forebay-deadline-ms": "5000"}},
        {"headers": {"x-forebay-no-cache": "1"}},
        {"headers": {"x-forebay-priority": "low"}},
    ],
)
async def test_any_other_byte_goes_the_long_way(other: dict[str, Any]) -> None:
    asking = Asking()
    await asking()
    await asking(**other)
    assert asking.ways == (2, 0)


async def test_what_may_not_be_told_now_goes_the_long_way() -> None:
    asking = Asking()
    await asking()
    asking.kept.works = False
    assert (await asking()).status_code == 200
    asking.kept.works = True
    await asking()
    assert asking.ways == (2, 1)


async def test_a_key_that_was_taken_away_opens_nothing() -> None:
    first, second = new_key(), new_key()

    def tenants(*hashes: str) -> tuple[TenantSettings, ...]:
        keys = tuple(KeySettings(hash=one) for one in hashes)
        return (TenantSettings(name="a", knowledge=("handbook",), keys=keys),)

    asking = Asking(tenants=tenants(first.hash, second.hash))
    for _ in range(2):
        assert (await asking(key=first.key)).status_code == 200
    assert asking.ways == (1, 1)
    assert (await asking(key=second.key)).status_code == 200
    asking.world.parts.identity.replace(build_table(tenants(second.hash)))
    assert (await asking(key=first.key)).status_code == 401
    assert (await asking(key=second.key)).status_code == 200
    assert asking.ways == (3, 1)


async def test_a_server_that_stops_or_is_full_refuses_as_ever() -> None:
    asking = Asking()
    await asking()
    asking.world.app.begin_drain()
    assert (await asking()).status_code == 503
    assert asking.ways == (1, 0)


async def test_a_client_that_left_is_noted_as_such() -> None:
    asking = Asking()
    body = b'{"model":"forebay/handbook","messages":[{"role":"user","content":"?"}]}'
    scope = scope_of({"host": "localhost", "content-length": str(len(body))})
    leaves = False

    async def send(message: dict[str, Any]) -> None:
        if leaves and message["type"] == "http.response.body":
            raise RuntimeError("unable to perform operation; the handler is closed")

    await asking.world.app(dict(scope), whole(body), send)
    leaves = True
    await asking.world.app(dict(scope), whole(body), send)
    assert asking.ways == (1, 1)
    assert [one.outcome for one in asking.noted.reports] == ["ok", "cancelled"]


async def test_switched_off_every_request_goes_the_long_way() -> None:
    asking = Asking()
    kept = asking.kept
    world = World(recollecting=lambda ctx, request, tokens: kept, replays_max_bytes=0)
    world.answering.answer = kept.answer  # type: ignore[method-assign]
    asking.world = world
    for _ in range(3):
        await asking()
    assert asking.ways == (3, 0)


def test_streams_are_told_again_by_a_real_server() -> None:
    """A server that has sent an answer tells who still works at it that the client is gone."""
    kept = Kept()
    world = World(
        recollecting=lambda ctx, request, tokens: kept,
        replays_max_bytes=1 << 20,
    )
    world.answering.answer = kept.answer  # type: ignore[method-assign]
    body = {
        "model": "forebay/handbook",
        "stream": True,
        "messages": [{"role": "user", "content": "几天？"}],
    }
    with serving(world) as address, httpx.Client(base_url=address) as http:
        texts = [http.post("/v1/chat/completions", json=body).text for _ in range(4)]
    assert all(text.endswith("data: [DONE]\n\n") for text in texts)
    assert (kept.long_way, kept.short_way) == (1, 3)
