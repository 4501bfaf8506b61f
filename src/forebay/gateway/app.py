"""The ASGI application: every request's way in and out.

Order at the door, cheapest first: route, origin, drain and in-flight bound, key, rights; then
the body within its bounds; then the handler under its deadline with an eye on the client.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial
from typing import Any

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

from forebay.gateway.directory import PREFIX, no_such_kb, no_such_model
from forebay.gateway.errors import ClientGone, Failure, ShuttingDown, failure, openai_error
from forebay.gateway.exchange import Exchange, Scope
from forebay.gateway.identity import Identity
from forebay.gateway.parts import GatewayParts
from forebay.gateway.peek import Peek
from forebay.gateway.peers import PeerRules
from forebay.gateway.replay import Replays, head_of
from forebay.gateway.routes import RouteSpec, RouteTable
from forebay.gateway.telling import Teller, request_id_of
from forebay.gateway.watching import DisconnectWatch
from forebay.kernel.clock import Deadline
from forebay.kernel.context import Principal, RequestContext
from forebay.kernel.errors import (
    ForebayError,
    InvalidRequest,
    NotFound,
    Overloaded,
    PermissionDenied,
)
from forebay.policy.admission import PriorityBook
from forebay.policy.gate import REASONS
from forebay.telemetry.logs import request_ids
from forebay.telemetry.report import RequestReport
from forebay.wire.chat import StreamError
from forebay.wire.encoding import encode_json
from forebay.wire.sse import encode_data

log = logging.getLogger("forebay.gateway")
_LAST_WORDS_S = 1.0
EXPOSED_HEADERS = (
    "x-request-id", "server-timing", "x-forebay-cache", "x-forebay-rung", "x-forebay-kb-version",
    "x-ratelimit-limit-tokens", "x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens",
    "retry-after", "x-forebay-scene",
)  # fmt: skip
_SHED = frozenset(f"overloaded_{reason}" for reason in REASONS)
_UNCOUNTED = frozenset({"healthz", "readyz", "metrics", "openapi"})


class Running:
    """One request in flight, and why it was ended early if it was."""

    __slots__ = ("reason", "scope")

    def __init__(self) -> None:
        self.scope: asyncio.Timeout | None = None
        self.reason: ForebayError | None = None

    def interrupt(self, reason: ForebayError) -> None:
        """End the request's work now; its own code sees a cancellation."""
        if self.reason is None:
            self.reason = reason
            if self.scope is not None and not self.scope.expired():
                self.scope.reschedule(asyncio.get_running_loop().time())

    def client_gone(self) -> None:
        """The client closed its connection."""
        self.interrupt(ClientGone("the client closed the connection."))


class GatewayApp:
    """Serves the routes; also counts what is in flight, for bounds and for drain."""

    def __init__(
        self,
        parts: GatewayParts,
        routes: RouteTable,
        lifespan: Callable[[], AbstractAsyncContextManager[None]] = nullcontext,
        teller: Teller | None = None,
    ) -> None:
        self.parts = parts
        self._teller = teller
        self.routes = routes
        self._lifespan_of_routes = lifespan
        settings = parts.settings
        self._peers = PeerRules(
            settings.trusted_proxies, settings.allowed_hosts, settings.cors.origins
        )
        self._entry: ASGIApp = self._http
        if settings.cors.origins:
            self._entry = CORSMiddleware(
                self._http,
                allow_origins=settings.cors.origins,
                allow_methods=("GET", "POST", "PUT", "DELETE"),
                allow_headers=("*",),
                expose_headers=EXPOSED_HEADERS,
                max_age=settings.cors.max_age_s,
            )
        self._priorities = PriorityBook()
        self._running: set[Running] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self.draining = False
        parts.metrics.watch_in_flight(lambda: len(self._running), settings.max_in_flight)

    @property
    def identity(self) -> Identity:
        """Who may ask; ``replace`` its table to reload keys."""
        return self.parts.identity

    @property
    def replays(self) -> Replays | None:
        """Requests that are answered again without being read again; None: switched off."""
        return None if self._teller is None else self._teller.replays

    @property
    def in_flight(self) -> int:
        """Requests being served now."""
        return len(self._running)

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        """Serve one ASGI connection scope."""
        if scope["type"] == "http":
            await self._entry(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        else:
            await send({"type": "websocket.close", "code": 1000})

    def begin_drain(self) -> None:
        """Refuse what is new; what runs goes on."""
        self.draining = True

    async def wait_idle(self, timeout_s: float) -> bool:
        """Wait until nothing is in flight; False when ``timeout_s`` passed first."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True

    def interrupt_all(self, reason: ForebayError) -> None:
        """End every request in flight with one error."""
        for running in list(self._running):
            running.interrupt(reason)

    async def _lifespan(self, receive: Any, send: Any) -> None:
        await receive()
        async with self._lifespan_of_routes():
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})

    async def _http(self, scope: Scope, receive: Any, send: Any) -> None:
        teller = self._teller
        if teller is None or not teller.may_know(scope):
            await self._exchange(Exchange(scope, receive, send))
            return
        peek = Peek(receive)
        try:
            head = head_of(scope)
            replay = teller.replays.find(head, peek.look())
            if (
                replay is None
                or not self._takes_more()
                or not await teller.tells(replay, scope, send)
            ):
                x = Exchange(scope, peek, send)
                x.replay_head = head
                await self._exchange(x)
        finally:
            peek.close()

    def _takes_more(self) -> bool:
        return not self.draining and len(self._running) < self.parts.settings.max_in_flight

    async def _exchange(self, x: Exchange) -> None:
        x.request_id = request_id_of(x.headers.get("x-request-id", ""), self.parts)
        x.trace = self.parts.begin_trace(x.headers.get("traceparent"))
        with request_ids(x.request_id, x.trace):
            await self._handle(x)

    async def _handle(self, x: Exchange) -> None:
        running = Running()
        arrived_at = self.parts.clock.now()
        spec, failed = None, None
        try:
            x.check_path()
            spec, x.path_params = self.routes.find(x.method, x.path)
            if spec.access == "open":
                await self._drop_body(x)
                await spec.handler(x)
            else:
                self._check_origin(x)
                if spec.access != "figures":
                    self._admit(running)
                await self._serve(x, spec, running)
        except asyncio.CancelledError:
            # The server itself ends the task: nothing can be said any more, only noted.
            failed = failure(ShuttingDown("the server is stopping."), x.request_id)
            raise
        except Exception as error:  # the boundary: every failure becomes a status or a last event
            failed = self._failure(error, x)
            await self._take_in(x, failed)
            await self._say(x, failed, spec.render_error if spec else openai_error)
        finally:
            self._leave(running)
            x.unsent = bytes  # what writes it refers to the exchange
            if not x.told and (spec is None or spec.name not in _UNCOUNTED):
                self._report(x, spec.name if spec else "none", arrived_at, failed)

    def _check_origin(self, x: Exchange) -> None:
        x.peer = self._peers.peer(x.scope.get("client"), x.headers)
        if self.parts.identity.table.keyless:
            self._peers.check_keyless(x.method, x.headers)

    def _admit(self, running: Running) -> None:
        settings = self.parts.settings
        if self.draining:
            self.parts.metrics.shed("draining")
            raise ShuttingDown("this server is shutting down.", retry_after_s=1.0)
        if len(self._running) >= settings.max_in_flight:
            self.parts.metrics.shed("in_flight")
            raise Overloaded("this server has all the requests it can serve.", retry_after_s=1.0)
        self._running.add(running)
        self._idle.clear()

    def _leave(self, running: Running) -> None:
        self._running.discard(running)
        if not self._running:
            self._idle.set()

    async def _serve(self, x: Exchange, spec: RouteSpec, running: Running) -> None:
        ctx = x.ctx = self._context(x, spec)
        if self.parts.charging is not None and spec.access in ("read", "change"):
            # Not those who operate: whoever denied himself by mistake must be able to undo it.
            self.parts.charging.check(ctx)
        settings = self.parts.settings
        limit = settings.max_upload_bytes if spec.raw_body else settings.max_body_bytes
        try:
            async with asyncio.timeout(ctx.deadline.remaining()) as scope:
                running.scope = scope
                x.allow = partial(self._allow, ctx, running)
                x.check_encoding()
                await x.read_body(limit, settings.connections.body_timeout_s)
                if x.replay_head is not None and await self._told(x):
                    return
                async with DisconnectWatch(x.receive, running.client_gone):
                    if running.reason is not None:
                        raise running.reason
                    await spec.handler(x)
        except Exception as error:  # work that was ended early may fail in any way it likes
            if x.ended and isinstance(error, TimeoutError):
                return
            if running.reason is not None and not x.ended:
                raise running.reason from error
            raise
        finally:
            running.scope = None

    def _allow(self, ctx: RequestContext, running: Running, seconds: float) -> None:
        """The request has another time, counted from when it came."""
        bounded_s = min(seconds, self.parts.settings.deadlines.max_ms / 1000)
        ctx.deadline = Deadline(ctx.started_at + bounded_s, ctx.clock)
        scope, left_s = running.scope, ctx.deadline.remaining()
        if scope is not None and running.reason is None and not scope.expired():
            scope.reschedule(asyncio.get_running_loop().time() + left_s)

    async def _told(self, x: Exchange) -> bool:
        """Whether it was answered as an equal request was, now that its body is here.

        Most clients send a body apart from its headers, so that at first there was nothing to see.
        """
        if self._teller is None or x.replay_head is None:
            return False
        replay = self._teller.replays.find(x.replay_head, {"body": x.body})
        if replay is None:
            return False
        x.told = await self._teller.tells(replay, x.scope, x.server_send)
        return x.told

    def _context(self, x: Exchange, spec: RouteSpec) -> RequestContext:
        principal = self._authorised(x, spec)
        ctx = RequestContext(
            request_id=x.request_id,
            principal=principal,
            deadline=Deadline.after(self._allowed_s(x, spec), self.parts.clock),
            clock=self.parts.clock,
            traceparent=x.trace.traceparent,
            no_cache=x.headers.get("x-forebay-no-cache", "").lower() in ("1", "true", "yes"),
        )
        ctx.address = x.peer.address
        return ctx

    def _authorised(self, x: Exchange, spec: RouteSpec) -> Principal:
        table = self.parts.identity.table
        scraper = x.peer.local and self._peers.names_this_machine(x.headers)
        if spec.access == "figures" and scraper and "authorization" not in x.headers:
            # A scraper on this machine needs no key; a page whose name was pointed here does.
            return Principal()
        quotas = self.parts.quotas
        plans = {} if quotas is None else quotas.overrides.plans
        principal = self.parts.identity.authenticate(x.headers, spec.name, self._grants(), plans)
        if spec.access in ("change", "figures") and not (principal.admin or table.keyless):
            raise PermissionDenied("this needs an admin key.", code="admin_key_needed")
        if spec.access == "operate" and not (principal.operator or table.keyless):
            raise PermissionDenied("this needs an operator's key.", code="operator_key_needed")
        return principal

    def _grants(self) -> PriorityBook:
        """The priorities in force; made anew when they change."""
        quotas = self.parts.quotas
        if quotas is not None:
            granted = quotas.effective.priorities
            if granted is not self._priorities.grants:
                self._priorities = PriorityBook(granted)
        return self._priorities

    def _allowed_s(self, x: Exchange, spec: RouteSpec) -> float:
        deadlines = self.parts.settings.deadlines
        default_ms = {
            "answer": deadlines.answer_ms,
            "search": deadlines.search_ms,
            "change": deadlines.change_ms,
        }[spec.effort]
        text = x.headers.get("x-forebay-deadline-ms")
        if text is None:
            return default_ms / 1000
        if not (text.isascii() and text.isdigit() and 0 < len(text) <= 12 and int(text) > 0):
            raise InvalidRequest(
                "x-forebay-deadline-ms is a whole number of milliseconds above zero.",
                param="x-forebay-deadline-ms",
            )
        return min(int(text), deadlines.max_ms) / 1000

    async def _drop_body(self, x: Exchange) -> None:
        """A body nobody asked for must not spoil the connection for the next request."""
        if x.headers.get("content-length", "0") != "0" or "transfer-encoding" in x.headers:
            settings = self.parts.settings
            await x.read_body(settings.max_body_bytes, settings.connections.body_timeout_s)

    def _failure(self, error: BaseException, x: Exchange) -> Failure:
        if isinstance(error, NotFound) and error.param == "kb" and x.kb is not None:
            # Dropped since the directory saw it.
            error = no_such_model(PREFIX + x.kb) if x.kb_by_model else no_such_kb(x.kb)
        failed = failure(error, x.request_id)
        if failed.status == 429 or failed.detail.code in _SHED:
            self.parts.metrics.shed(failed.detail.code or "other")
        if failed.unexpected:
            log.error("request %s failed", x.request_id, exc_info=error)
        elif failed.status == 500:
            # Nobody's request is at fault: who looks for the reason finds it here.
            reason = error.__cause__ or "no other cause"
            log.error("request %s failed: %s (%r)", x.request_id, failed.detail.message, reason)
        return failed

    async def _take_in(self, x: Exchange, failed: Failure) -> None:
        """Let a client that closes after this answer finish sending first.

        Its connection ends with the answer, and unread bytes would turn that into a reset which
        loses the answer. Connections that go on are looked after by the protocol.
        """
        ends = x.headers.get("connection", "").strip().lower() == "close"
        if not (ends or x.scope.get("http_version") == "1.0"):
            return
        if x.started or self.draining or failed.status in (408, 499) or "expect" in x.headers:
            return
        await x.discard_body(self.parts.settings.connections.linger_s)

    async def _say(self, x: Exchange, failed: Failure, render: Callable[[Failure], bytes]) -> None:
        """Tell the client, in whichever way is still open; a client that does not read: not."""
        if failed.outcome == "cancelled" or x.ended:
            return
        try:
            async with asyncio.timeout(_LAST_WORDS_S):
                if not x.started:
                    await x.reply(render(failed), status=failed.status, headers=failed.headers)
                elif x.streaming:
                    event = encode_data(encode_json(StreamError(failed.detail)))
                    await x.finish(x.unsent() + event)
        except TimeoutError:
            log.info("request %s: the client does not read its error", x.request_id)
        except ClientGone:
            log.info("request %s: the client left before its error", x.request_id)

    def _report(self, x: Exchange, route: str, arrived_at: float, failed: Failure | None) -> None:
        now = self.parts.clock.now()
        usage = x.usage
        report = RequestReport(
            request_id=x.request_id,
            method=x.method,
            route=route,
            status=x.status or (failed.status if failed else 499),
            outcome=failed.outcome if failed else "ok",
            ended_at=self.parts.wall_clock.now(),
            arrived_at=arrived_at,
            duration_s=now - arrived_at,
            client=x.peer.address,
            trace=x.trace,
            ctx=x.ctx,
            error_code=failed.detail.code if failed else None,
            kb=x.kb,
            model=x.model,
            ttft_s=None if x.first_text_at is None else x.first_text_at - arrived_at,
            prompt_tokens=usage.prompt_tokens if usage else 0,
            completion_tokens=usage.completion_tokens if usage else 0,
            streamed=x.streaming,
        )
        self.parts.metrics.finished(report)
        for sink in self.parts.sinks:
            sink.finished(report)
