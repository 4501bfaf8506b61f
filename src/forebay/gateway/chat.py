"""POST /v1/chat/completions: a whole answer, or a stream of it."""

from __future__ import annotations

from typing import Literal, cast

import msgspec

from forebay.gateway.chat_stream import ChunkWriter
from forebay.gateway.directory import PREFIX, KbDirectory
from forebay.gateway.exchange import JSON_HEADERS, STREAM_HEADERS, Exchange, stage_headers
from forebay.gateway.parts import GatewayParts
from forebay.gateway.rendering import AnswerFrame, citation_body, forebay_body, usage_body
from forebay.gateway.replay import Replay, Replays, Telling, Template
from forebay.gateway.scene import enter_scene
from forebay.gateway.watching import WriteBehind
from forebay.kernel.context import RequestContext
from forebay.kernel.errors import EngineError, InvalidRequest
from forebay.kernel.stages import Message, Sampling
from forebay.kernel.streams import closing
from forebay.pipeline.messages import AnswerDelta, AnswerEnd, AnswerRequest
from forebay.pipeline.recollection import Recollection
from forebay.wire.chat import (
    AnswerMessage,
    ChatCompletion,
    ChatMessage,
    ChatRequest,
    Choice,
    ContentPart,
)
from forebay.wire.decoding import JsonDecoder
from forebay.wire.encoding import encode_json

_ROLES = {"developer": "system", "function": "tool"}
_DEFAULT_TOP_K = 5
_UNREAD_CHARACTERS = 1_000_000
_FORMS = ("text", "json_object", "json_schema", "structural_tag")
"""OpenAI's, and the one that vLLM and SGLang add."""
RoleName = Literal["system", "user", "assistant", "tool"]


class ChatRoute:
    """Answers chat completions from a knowledge base."""

    def __init__(
        self, parts: GatewayParts, directory: KbDirectory, replays: Replays | None = None
    ) -> None:
        self._parts = parts
        self._directory = directory
        self._replays = replays
        self._decoder = JsonDecoder(ChatRequest)

    async def __call__(self, x: Exchange) -> None:
        """Answer one request."""
        body = await x.json(self._decoder)
        check_supported(body, engines=self._parts.engines)
        kb = await self._directory.kb_of_model(x.principal, body.model)
        request = answer_request(kb, body)
        x.kb, x.kb_by_model = kb, True
        enter_scene(self._parts.scenes, x.context, x, request)
        frame = AnswerFrame(
            id=f"chatcmpl-{self._parts.new_id()}",
            created=int(self._parts.wall_clock.now()),
            model=PREFIX + kb,
            kb=kb,
            with_usage=bool(body.stream_options and body.stream_options.include_usage),
        )
        if not self._directory.lasting(x.principal, body.model):
            x.replay_head = None
        if body.stream:
            await self._stream(x, request, frame)
        else:
            await self._whole(x, request, frame)

    async def _whole(self, x: Exchange, request: AnswerRequest, frame: AnswerFrame) -> None:
        pieces: list[str] = []
        end: AnswerEnd | None = None
        events = self._parts.answering.answer(x.context, request)
        async with closing(events):
            async for event in events:
                if isinstance(event, AnswerEnd):
                    end = event
                    break
                if not pieces:
                    x.first_text_at = self._parts.clock.now()
                pieces.append(event.text)
        if end is None:
            raise _cut()
        x.usage, x.model = end.usage, end.model
        self._remember(x, request, frame)
        answer = completion(x.context, frame, "".join(pieces), end)
        await x.reply_json(answer, headers=stage_headers(x.context))

    async def _stream(self, x: Exchange, request: AnswerRequest, frame: AnswerFrame) -> None:
        writer = ChunkWriter(frame, lambda end: forebay_body(x.context, frame.kb, end))
        x.unsent = writer.flush
        clock, metrics = self._parts.clock, self._parts.metrics
        written_at = 0.0

        async def write(batch: list[AnswerDelta | AnswerEnd]) -> None:
            nonlocal written_at
            data = writer.encode(batch)
            if not data:
                return
            if not x.started:
                x.first_text_at = clock.now()
                await x.start_stream(stage_headers(x.context))
            elif isinstance(batch[0], AnswerDelta):
                metrics.itl(clock.now() - written_at)
            written_at = clock.now()
            if writer.end is not None:
                x.usage, x.model = writer.end.usage, writer.end.model
                self._remember(x, request, frame)
                await x.finish(data)
            else:
                await x.write(data)

        pieces = x.pieces

        def now(text: str) -> bool:
            """Write text without waiting; False: it has to wait, and nothing was done."""
            nonlocal written_at
            if pieces is None or not pieces.ready():
                return False
            if data := writer.piece(text):
                pieces.write_piece(data)
                before, written_at = written_at, clock.now()
                metrics.itl(written_at - before)
            return True

        def at_once(batch: list[AnswerDelta | AnswerEnd]) -> bool:
            texts = [event.text for event in batch if isinstance(event, AnswerDelta)]
            return len(texts) == len(batch) and now("".join(texts))

        def sink(text: str) -> bool:
            return (behind.idle and now(text)) or not behind.put(AnswerDelta(text))

        # The source is closed before the rest is written: a slow reader holds nothing of it.
        answer = self._parts.answering.answer(x.context, request)
        async with (
            WriteBehind(write, join=_joined, at_once=at_once) as behind,
            closing(answer) as events,
        ):
            x.context.sink = sink
            async for event in events:
                if behind.put(event):
                    await behind.room()
                if type(event) is AnswerEnd:
                    break
        # What it writes with refers to it.
        x.context.sink = None
        if not writer.ended:
            raise _cut()

    def _remember(self, x: Exchange, request: AnswerRequest, frame: AnswerFrame) -> None:
        """Spare the next request that is equal to this one the long way, if it was a hit.

        Before its end is sent: a server that has sent it may end whoever is still at work.
        """
        replays, recollecting = self._replays, self._parts.recollecting
        ctx, usage = x.context, x.usage
        if replays is None or recollecting is None or x.replay_head is None or usage is None:
            return
        if ctx.cache["answer"] != "hit" or ctx.stages or ctx.rate is not None:
            return
        kept = recollecting(ctx, request, usage.prompt_tokens)
        if kept is not None:
            replay = Replay(
                valid_for=replays.tables(),
                principal=ctx.principal,
                address=x.peer.address,
                recollection=kept,
                telling=self._telling(x, frame, kept),
            )
            replays.keep(x.replay_head, x.body, replay)

    def _telling(self, x: Exchange, frame: AnswerFrame, kept: Recollection) -> Telling:
        """The answer with marks, which nothing else can be, for what each telling has anew."""
        delta, end = kept.told()
        marks = [self._parts.new_id() for _ in range(3)]
        created = int(marks[1][:15], 16)
        frame = msgspec.structs.replace(frame, id=marks[0], created=created)
        marked = x.context.like(marks[2])
        if x.streaming:
            writer = ChunkWriter(frame, lambda end: forebay_body(marked, frame.kb, end))
            data = writer.encode([delta, end])
        else:
            data = encode_json(completion(marked, frame, delta.text, end))
        places = (marks[0].encode(), str(created).encode(), marks[2].encode())
        lines = (*(STREAM_HEADERS if x.streaming else JSON_HEADERS), *stage_headers(x.context))
        return Telling(
            body=Template(data, places),
            headers=tuple((name.encode(), value.encode("latin-1")) for name, value in lines),
            kb=frame.kb,
            model=end.model,
            prompt_tokens=end.usage.prompt_tokens,
            streamed=x.streaming,
        )


def _joined(events: list[AnswerDelta | AnswerEnd]) -> list[AnswerDelta | AnswerEnd]:
    """The same text in one piece: an engine's place must not wait for a client that does not read.

    Texts beyond any usual answer stay as they are, and their source stands still.
    """
    texts = [event.text for event in events if isinstance(event, AnswerDelta)]
    if sum(map(len, texts)) > _UNREAD_CHARACTERS:
        return events
    ends = [event for event in events if isinstance(event, AnswerEnd)]
    return [AnswerDelta("".join(texts)), *ends]


def completion(
    ctx: RequestContext, frame: AnswerFrame, text: str, end: AnswerEnd
) -> ChatCompletion:
    """A whole answer on the wire."""
    return ChatCompletion(
        id=frame.id,
        created=frame.created,
        model=frame.model,
        choices=(Choice(AnswerMessage(text), end.finish_reason),),
        usage=usage_body(end.usage),
        citations=tuple(citation_body(citation) for citation in end.citations),
        forebay=forebay_body(ctx, frame.kb, end),
    )


def check_supported(body: ChatRequest, *, engines: bool = True) -> None:
    """Refuse what an answer from documents cannot honour.

    ``tools`` are ignored, as a model may that sees no use for them; a ``tool_choice`` that
    demands a call is refused, because no call will come. Without ``engines`` answers are
    quotations, which have no form but their own.
    """
    if body.n is not None and body.n != 1:
        raise InvalidRequest("n must be 1: one answer is given for each request.", param="n")
    if body.logprobs:
        raise InvalidRequest("logprobs are not available.", param="logprobs")
    if body.tool_choice not in (None, "none", "auto"):
        raise InvalidRequest(
            "tool_choice may be none or auto: answers come from documents and call no tool.",
            param="tool_choice",
        )
    form = "text" if body.response_format is None else body.response_format.get("type")
    if form not in _FORMS:
        raise InvalidRequest(
            f"response_format.type must be one of {', '.join(_FORMS)}.",
            param="response_format.type",
        )
    if form != "text" and not engines:
        raise InvalidRequest(
            f"response_format.type {form} needs an engine: answers here are quotations, which are "
            "text.",
            param="response_format.type",
        )


def answer_request(kb: str, body: ChatRequest) -> AnswerRequest:
    """The pipeline's request for a chat completion."""
    options = body.forebay
    stop = (body.stop,) if isinstance(body.stop, str) else body.stop
    return AnswerRequest(
        kb=kb,
        messages=tuple(_message(index, message) for index, message in enumerate(body.messages)),
        sampling=Sampling(
            temperature=body.temperature,
            top_p=body.top_p,
            max_tokens=body.max_completion_tokens or body.max_tokens,
            stop=stop or None,
            seed=body.seed,
            presence_penalty=body.presence_penalty,
            frequency_penalty=body.frequency_penalty,
            response_format=body.response_format,
        ),
        top_k=(options.top_k if options else None) or _DEFAULT_TOP_K,
        filter=(options.filter if options else None) or {},
        extras=body.unused(),
        near=options.near if options else None,
        reserved_tokens=max(body.max_completion_tokens or 0, body.max_tokens or 0) or None,
    )


def _message(index: int, message: ChatMessage) -> Message:
    content = message.content
    if content is None:
        text = ""
    elif isinstance(content, str):
        text = content
    else:
        text = "\n".join(_part(f"messages[{index}].content", part) for part in content)
    role = _ROLES.get(message.role, message.role)
    return Message(cast(RoleName, role), text)


def _part(where: str, part: ContentPart) -> str:
    if part.type != "text":
        raise InvalidRequest(
            f"content parts of type {part.type!r} cannot be read here; send text.", param=where
        )
    if part.text is None:
        raise InvalidRequest("a text part needs its text.", param=where)
    return part.text


def _cut() -> EngineError:
    return EngineError("the answer ended before it was complete.")
