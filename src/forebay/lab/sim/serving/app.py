"""The routes of the simulated replicas, as a plain ASGI application.

A replica is found by the port that was asked; on the shared port, the one with the fewest tokens
under way among those that take connections.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import urllib.parse
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from forebay.kernel.clock import Clock
from forebay.kernel.errors import (
    ConfigError,
    ForebayError,
    InvalidRequest,
    ModelNotFound,
    NotFound,
    Overloaded,
    PayloadTooLarge,
)
from forebay.lab.sim.serving.answers import AnswerMaker
from forebay.lab.sim.serving.commands import FaultCommands, Ports
from forebay.lab.sim.serving.exchange import Cut, Exchange, Receive, Scope, Send
from forebay.lab.sim.serving.faults import Verdict
from forebay.lab.sim.serving.figures import render
from forebay.lab.sim.serving.messages import (
    AnswerForm,
    ChatRequest,
    CompletionRequest,
    TokenizeRequest,
    error_body,
    too_long,
    usage_json,
)
from forebay.lab.sim.serving.prompts import Prompt, read_prompt, squeezed, surely_longer
from forebay.lab.sim.serving.replica import Job, Replica
from forebay.lab.sim.serving.writing import FaultyAnswer
from forebay.lab.workload.tokens import tokenize
from forebay.wire.decoding import JsonDecoder
from forebay.wire.encoding import encode_json

log = logging.getLogger("forebay.simulate")
_INLINE_CHARS = 20_000
_METRICS = [(b"content-type", b"text/plain; version=0.0.4; charset=utf-8")]
_STATUSES: tuple[tuple[type[ForebayError], int], ...] = (
    (PayloadTooLarge, 413),
    (NotFound, 404),
    (InvalidRequest, 400),
    (ConfigError, 400),
    (Overloaded, 503),
)


class AppOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the routes are told."""

    model: str = "sim"
    honour_stop: bool = True
    quoting: bool = False
    """Whether answers say what the prompt's first passage says."""
    max_body_bytes: int = 4 * 1024 * 1024
    id_prefix: str = ""
    """Tells this process's answers from another's."""


class SimulationApp:
    """Serves every replica of a process."""

    def __init__(
        self,
        replicas: Sequence[Replica],
        ports: Ports,
        answers: AnswerMaker,
        options: AppOptions,
        wall: Clock,
    ) -> None:
        self._replicas = replicas
        self._ports = ports
        self._answers = answers
        self._options = options
        self._wall = wall
        self._began = int(wall.now())
        self._numbers = itertools.count()
        self._commands = FaultCommands(replicas, ports)
        self._chat = JsonDecoder(ChatRequest)
        self._completion = JsonDecoder(CompletionRequest)
        self._tokenize = JsonDecoder(TokenizeRequest)
        self._routes: dict[str, dict[str, Callable[[Exchange], Awaitable[None]]]] = {
            "/v1/chat/completions": {"POST": self._chat_completions},
            "/v1/completions": {"POST": self._completions},
            "/v1/models": {"GET": self._models},
            "/tokenize": {"POST": self._tokens},
            "/health": {"GET": self._health},
            "/metrics": {"GET": self._metrics},
            "/sim/faults": {
                "GET": self._show_faults,
                "POST": self._put_fault,
                "DELETE": self._clear_faults,
            },
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        exchange = Exchange(scope, receive, send)
        exchange.watch()
        try:
            await self._route(exchange)
        except Cut:
            exchange.cut()
        except asyncio.CancelledError:
            # The client has left, or the server ends and cuts what takes too long. This is the
            # task's outermost frame: nobody above waits for the cancellation.
            if not exchange.gone:
                exchange.cut()
        finally:
            exchange.unwatch()

    async def _route(self, exchange: Exchange) -> None:
        methods = self._routes.get(exchange.path)
        try:
            if methods is None:
                raise NotFound(f"There is no {exchange.path} here.")
            handler = methods.get(exchange.method)
            if handler is None:
                allowed = ", ".join(methods)
                body = error_body(405, f"{exchange.path} takes {allowed}.")
                await exchange.reply(405, body, [(b"allow", allowed.encode())])
                return
            await handler(exchange)
        except ForebayError as error:
            status = next((code for kind, code in _STATUSES if isinstance(error, kind)), 500)
            await exchange.reply(status, error_body(status, error.message, error.param))

    def _replica(self, exchange: Exchange) -> Replica:
        own = self._ports.index(exchange.port)
        if own is not None:
            return self._replicas[own]
        taking = [item for item in self._replicas if item.faults.refusing is None]
        if not taking:
            raise Overloaded("Every replica refuses connections.")
        return min(taking, key=lambda item: (item.outstanding_tokens, item.options.index))

    # --- answers ------------------------------------------------------------------------------

    async def _chat_completions(self, exchange: Exchange) -> None:
        request = self._chat.decode(await exchange.body(self._options.max_body_bytes))
        await self._answer(exchange, request)

    async def _completions(self, exchange: Exchange) -> None:
        request = self._completion.decode(await exchange.body(self._options.max_body_bytes))
        await self._answer(exchange, request)

    async def _answer(self, exchange: Exchange, request: ChatRequest | CompletionRequest) -> None:
        self._check_model(request.model)
        request.check()
        replica = self._replica(exchange)
        exchange.headers.append((b"x-sim-replica", b"%d" % replica.options.index))
        verdict = replica.faults.verdict()
        if verdict is not None and await self._faulty(exchange, replica, verdict):
            return
        job, prompt = self._submit(replica, request)
        try:
            chat = isinstance(request, ChatRequest)
            form = AnswerForm(
                self._options.model, self._next_id(chat), int(self._wall.now()), chat=chat
            )
            waited = job if verdict is None else FaultyAnswer(job, verdict, replica)
            if not request.stream:
                await waited.whole()
                usage = usage_json(prompt, job.answer, job.sequence.cached_tokens)
                await exchange.reply(200, form.whole(job.answer, usage))
                return
            options = request.stream_options
            wants_usage = options is not None and bool(options.include_usage)
            await _stream(exchange, waited, form, prompt if wants_usage else None)
        except Cut:
            job.close("error")
            raise
        finally:
            job.close()

    async def _faulty(self, exchange: Exchange, replica: Replica, verdict: Verdict) -> bool:
        """Let the request meet what comes before its answer; whether that was all."""
        if verdict.delay_s:
            await asyncio.sleep(verdict.delay_s)
        if verdict.stall is not None and not verdict.stall.after_tokens:
            await replica.until_moving()
        error = verdict.error
        if error is None:
            return False
        replica.figures.finished["error"] += 1
        headers = [(b"content-type", b"application/json")]
        if error.retry_after_s is not None:
            headers.append((b"retry-after", b"%d" % error.retry_after_s))
        body = error_body(error.status, "This replica fails on command.")
        await exchange.reply(error.status, body, headers)
        return True

    def _submit(
        self, replica: Replica, request: ChatRequest | CompletionRequest
    ) -> tuple[Job, Prompt]:
        config = replica.options.config
        most, cap = config.max_model_len, request.cap
        wish = request.wish(cap, self._options.honour_stop)
        text = request.text()
        if surely_longer(text, most):
            raise InvalidRequest(
                f"This model's maximum context length is {most} tokens, "
                "but your messages have more; send less.",
                param="messages",
            )
        block_tokens = config.block_tokens if config.prefix_caching else None
        prompt = read_prompt(text, block_tokens, quoting=self._options.quoting)
        room = most - prompt.tokens
        if room < 1 or (cap is not None and cap > room):
            raise too_long(prompt.tokens, cap if room >= 1 else None, most)
        if not prompt.tokens:
            raise InvalidRequest("The prompt is empty.", param="messages")
        answer = self._answers.plan(prompt, wish, room)
        if cap is not None:
            replica.figures.max_tokens.observe(cap)
        priority = request.priority or 0
        return replica.submit(prompt, answer, priority, streamed=bool(request.stream)), prompt

    def _check_model(self, name: str | None) -> None:
        if name is not None and name != self._options.model:
            raise ModelNotFound(f"The model {name} does not exist.", param="model")

    def _next_id(self, chat: bool) -> str:
        kind = "chatcmpl" if chat else "cmpl"
        return f"{kind}-{self._options.id_prefix}{next(self._numbers):08x}"

    # --- what an engine tells of itself ---------------------------------------------------------

    async def _models(self, exchange: Exchange) -> None:
        most = self._replicas[0].options.config.max_model_len
        model = {
            "id": self._options.model,
            "object": "model",
            "created": self._began,
            "owned_by": "forebay",
            "root": self._options.model,
            "parent": None,
            "max_model_len": most,
        }
        await exchange.reply(200, encode_json({"object": "list", "data": [model]}))

    async def _tokens(self, exchange: Exchange) -> None:
        request = self._tokenize.decode(await exchange.body(self._options.max_body_bytes))
        self._check_model(request.model)
        text = request.text()
        if len(text) <= _INLINE_CHARS:
            tokens = tokenize(text)
        else:
            # Token by token beside the loop, which gets its turn between them.
            tokens = await asyncio.to_thread(tokenize, squeezed(text))
        answer = {
            "count": len(tokens),
            "max_model_len": self._replicas[0].options.config.max_model_len,
            "tokens": tokens,
            "token_strs": None,
        }
        await exchange.reply(200, encode_json(answer))

    async def _health(self, exchange: Exchange) -> None:
        own = self._ports.index(exchange.port)
        asked = self._replicas if own is None else [self._replicas[own]]
        ready = any(not item.faults.starting for item in asked)
        await exchange.reply(200 if ready else 503, b"", [])

    async def _metrics(self, exchange: Exchange) -> None:
        own = self._ports.index(exchange.port)
        asked = self._replicas if own is None else [self._replicas[own]]
        text = render([item.scraped() for item in asked])
        await exchange.reply(200, text, _METRICS)

    # --- faults on command ----------------------------------------------------------------------

    async def _show_faults(self, exchange: Exchange) -> None:
        await exchange.reply(200, encode_json(self._commands.shown()))

    async def _put_fault(self, exchange: Exchange) -> None:
        data = await exchange.body(self._options.max_body_bytes)
        self._commands.put(_JSON_OBJECT.decode(data), exchange.port)
        await self._show_faults(exchange)

    async def _clear_faults(self, exchange: Exchange) -> None:
        query = dict(urllib.parse.parse_qsl(exchange.query))
        self._commands.clear(query, exchange.port)
        await self._show_faults(exchange)


_JSON_OBJECT: JsonDecoder[dict[str, Any]] = JsonDecoder(dict[str, Any])


async def _stream(
    exchange: Exchange, waited: Job | FaultyAnswer, form: AnswerForm, prompt: Prompt | None
) -> None:
    """Write an answer as it grows; the head goes out with the first token."""
    job = waited if isinstance(waited, Job) else waited.job
    answer = job.answer
    first, last = await waited.more()
    await exchange.start_stream()
    opening = form.opening()
    while last < answer.tokens:
        text = answer.piece(first, last)
        if text or opening:
            await exchange.write(opening + form.chunk(text))
            opening = b""
        first, last = await waited.more()
    usage = None if prompt is None else usage_json(prompt, answer, job.sequence.cached_tokens)
    text = answer.piece(first, last)
    await exchange.write(opening + form.ending(text, answer, usage), last=True)
