"""A scripted generator, and requests to ask any generator with."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence

from forebay.kernel.clock import Clock, Deadline, SystemClock
from forebay.kernel.context import Principal, RequestContext
from forebay.kernel.documents import ChunkRow, Hit
from forebay.kernel.errors import DeadlineExceeded, ForebayError
from forebay.kernel.stages import (
    Finished,
    FinishReason,
    GenerationRequest,
    Message,
    Sampling,
    TextDelta,
)


class ScriptedGenerator:
    """Says its pieces, one token each; honours stop sequences, token bounds and the deadline.

    ``gate`` holds every piece back while it is clear. ``failure`` is raised after the pieces.
    ``requests`` keeps what was asked, ``active`` is how many are under way, ``cancelled`` how
    many were closed before their end.
    """

    def __init__(self, pieces: Sequence[str], *, failure: ForebayError | None = None) -> None:
        self.pieces = tuple(pieces)
        self.failure = failure
        self.gate = asyncio.Event()
        self.gate.set()
        self.requests: list[GenerationRequest] = []
        self.active = 0
        self.cancelled = 0

    async def generate(
        self, ctx: RequestContext, request: GenerationRequest
    ) -> AsyncGenerator[TextDelta | Finished, None]:
        """Yield the script, cut where the request says so, then ``Finished``."""
        self.requests.append(request)
        self.active += 1
        ended = False
        try:
            pieces, reason = self._cut(request)
            for piece in pieces:
                await self._wait(ctx)
                yield TextDelta(piece)
            await self._wait(ctx)
            if self.failure is not None:
                raise self.failure
            ended = True
            yield Finished(reason, request.prompt_tokens, len(pieces), "scripted")
        finally:
            self.active -= 1
            self.cancelled += not ended

    def _cut(self, request: GenerationRequest) -> tuple[list[str], FinishReason]:
        most = min(request.max_output_tokens, request.sampling.max_tokens or 1 << 30)
        pieces: list[str] = []
        text = ""
        for piece in self.pieces:
            whole = text + piece
            ends = [whole.find(stop) for stop in request.sampling.stop or () if stop in whole]
            if ends:
                kept = whole[: min(ends)]
                return ([*pieces, kept[len(text) :]] if len(kept) > len(text) else pieces), "stop"
            if len(pieces) == most:
                return pieces, "length"
            pieces.append(piece)
            text = whole
        return pieces, "stop"

    async def _wait(self, ctx: RequestContext) -> None:
        try:
            async with asyncio.timeout(ctx.deadline.remaining()):
                await self.gate.wait()
        except TimeoutError as error:
            raise DeadlineExceeded("The request's deadline passed.") from error
        if ctx.deadline.expired():
            raise DeadlineExceeded("The request's deadline passed.")


def context(*, timeout_s: float = 30.0, clock: Clock | None = None) -> RequestContext:
    """A context of an anonymous request with a deadline."""
    now = clock or SystemClock()
    return RequestContext(
        request_id="test",
        principal=Principal(),
        deadline=Deadline.after(timeout_s, now),
        clock=now,
    )


def passage(
    text: str,
    *,
    number: int = 1,
    score: float = 0.6,
    bm25: float | None = 20.0,
    title: str = "",
) -> Hit:
    """A hit whose chunk is a document of its own."""
    row = ChunkRow(
        chunk_id=number,
        document_id=f"document-{number}",
        ordinal=0,
        start=0,
        end=len(text),
        text=text,
        context="",
        tokens=len(text) // 3 + 1,
        page=None,
        heading_path=(),
        title=title,
        source=f"document-{number}.md",
        language="",
        tags=(),
        groups=(),
        metadata={},
        version=1,
    )
    return Hit(chunk=row, score=score, bm25=bm25)


def generation_request(
    question: str,
    passages: Sequence[str] = (),
    *,
    language: str = "en",
    sampling: Sampling | None = None,
    max_output_tokens: int = 32,
) -> GenerationRequest:
    """A request as a prompt builder makes it, with a short prompt."""
    listed = "\n".join(f"[{number}] {text}" for number, text in enumerate(passages, 1))
    messages = (
        Message("system", "Answer from the passages and cite them as [n].\n" + listed),
        Message("user", question),
    )
    return GenerationRequest(
        question=question,
        language=language,
        messages=messages,
        passages=tuple(passage(text, number=n) for n, text in enumerate(passages, 1)),
        sampling=sampling or Sampling(),
        max_output_tokens=max_output_tokens,
        prompt_tokens=sum(len(message.content) // 4 + 4 for message in messages),
    )
