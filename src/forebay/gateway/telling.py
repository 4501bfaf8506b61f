"""Tells a kept answer again, as the long way would: ids, charge, report, figures."""

from __future__ import annotations

import asyncio
import re
from typing import Any, NamedTuple

from forebay.gateway.errors import ClientGone, Failure, ShuttingDown, failure
from forebay.gateway.exchange import Scope, closed
from forebay.gateway.parts import GatewayParts
from forebay.gateway.replay import Replay, Replays
from forebay.kernel.clock import Deadline
from forebay.kernel.context import RequestContext
from forebay.telemetry.ids import TraceIds
from forebay.telemetry.logs import request_ids
from forebay.telemetry.report import RequestReport

CHAT = "/v1/chat/completions"
ROUTE = "chat"
_REQUEST_ID = re.compile(r"[A-Za-z0-9._:/+=@-]{1,128}")


def request_id_of(sent: str, parts: GatewayParts) -> str:
    """The client's own id for a request, or a fresh one."""
    return sent if sent and _REQUEST_ID.fullmatch(sent) else f"req-{parts.new_id()}"


class _Told(NamedTuple):
    """What became of one telling."""

    ctx: RequestContext
    trace: TraceIds
    arrived_at: float
    told_at: float | None
    failed: Failure | None


class Teller:
    """Answers requests that are equal to ones before."""

    def __init__(self, parts: GatewayParts, replays: Replays) -> None:
        self._parts = parts
        self.replays = replays

    def may_know(self, scope: Scope) -> bool:
        """Whether it is a request of the kind that is remembered.

        Not one whose client waits for leave to send its body: to look for the body gives leave.
        """
        if scope["path"] != CHAT or scope["method"] != "POST":
            return False
        return all(name != b"expect" for name, _ in scope["headers"])

    async def tells(self, replay: Replay, scope: Scope, send: Any) -> bool:
        """Answer as the equal request was; False: it has to go the long way."""
        parts, telling = self._parts, replay.telling
        arrived_at = parts.clock.now()
        sent_id, traceparent = _names(scope)
        trace = parts.begin_trace(traceparent)
        ctx = RequestContext(
            request_id=request_id_of(sent_id, parts),
            principal=replay.principal,
            deadline=Deadline(arrived_at, parts.clock),
            clock=parts.clock,
        )
        ctx.address = replay.address
        if not replay.recollection.again(ctx):
            return False
        self.replays.told += 1
        request_id = ctx.request_id.encode()
        created = str(int(parts.wall_clock.now())).encode()
        body = telling.body.filled((f"chatcmpl-{parts.new_id()}".encode(), created, request_id))
        headers = [(b"x-request-id", request_id), *telling.headers]
        if not telling.streamed:
            headers.append((b"content-length", str(len(body)).encode()))
        failed: Failure | None = None
        told_at: float | None = None
        try:
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            told_at = parts.clock.now()
            await send({"type": "http.response.body", "body": body})
        except asyncio.CancelledError:
            failed = failure(ShuttingDown("the server is stopping."), ctx.request_id)
            raise
        except RuntimeError as error:
            if not closed(error):
                raise
            failed = failure(ClientGone("the client closed the connection."), ctx.request_id)
        finally:
            self._report(replay, _Told(ctx, trace, arrived_at, told_at, failed))
        return True

    def _report(self, replay: Replay, told: _Told) -> None:
        parts, telling = self._parts, replay.telling
        ctx, trace, arrived_at, told_at, failed = told
        report = RequestReport(
            request_id=ctx.request_id,
            method="POST",
            route=ROUTE,
            status=200 if told_at is not None else 499,
            outcome=failed.outcome if failed else "ok",
            ended_at=parts.wall_clock.now(),
            arrived_at=arrived_at,
            duration_s=parts.clock.now() - arrived_at,
            client=ctx.address,
            trace=trace,
            ctx=ctx,
            error_code=failed.detail.code if failed else None,
            kb=telling.kb,
            model=telling.model,
            ttft_s=None if told_at is None else told_at - arrived_at,
            prompt_tokens=telling.prompt_tokens,
            streamed=telling.streamed,
        )
        parts.metrics.finished(report)
        if parts.sinks:
            with request_ids(ctx.request_id, trace):
                for sink in parts.sinks:
                    sink.finished(report)


def _names(scope: Scope) -> tuple[str, str | None]:
    """The request's id and its place in a trace, as the client gave them."""
    request_id, traceparent = "", None
    for name, value in scope["headers"]:
        if name == b"x-request-id":
            text = value.decode("latin-1")
            request_id = f"{request_id}, {text}" if request_id else text
        elif name == b"traceparent":
            text = value.decode("latin-1")
            traceparent = text if traceparent is None else f"{traceparent}, {text}"
    return request_id, traceparent
