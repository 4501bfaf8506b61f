"""Listening to what is asked: a summary for the log, and what prediction learns from.

Outermost around the answering life: it changes nothing, and what it does costs microseconds.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from hashlib import blake2b

from forebay.cache.prewarm import QUESTION_CHARACTERS, Asked, Question
from forebay.cache.sessions import Sessions, summed_up
from forebay.kernel.clock import Clock
from forebay.kernel.context import RequestContext
from forebay.kernel.stages import SearchRequest, SearchResult, Understood
from forebay.kernel.streams import closing
from forebay.pipeline.messages import AnswerDelta, AnswerEnd, Answering, AnswerRequest
from forebay.pipeline.recollection import Recollecting, Recollection

Told = Callable[[Asked], None]


class Listening:
    """``Answering`` around another; ``told`` hears of questions that were answered, None: nobody.

    ``clock`` is the wall's.
    """

    def __init__(
        self,
        inner: Answering,
        sessions: Sessions | None,
        told: Told | None,
        clock: Clock,
        recollecting: Recollecting | None = None,
    ) -> None:
        self._inner = inner
        self._recollecting = recollecting
        self._sessions = sessions
        self._told = told
        self._clock = clock

    async def search(self, ctx: RequestContext, request: SearchRequest) -> SearchResult:
        """See ``Answering``."""
        found = await self._inner.search(ctx, request)
        if self._told is not None and _lasting(ctx, request.query):
            kind = summed_up(request.query).kind()
            self._told(self._asked(ctx, kind, _question(ctx, request)))
        return found

    async def answer(
        self, ctx: RequestContext, request: AnswerRequest
    ) -> AsyncGenerator[AnswerDelta | AnswerEnd, None]:
        """See ``Answering``."""
        kind = self._summed_up(ctx, request)
        ended = False
        async with closing(self._inner.answer(ctx, request)) as events:
            async for event in events:
                if isinstance(event, AnswerEnd) and not ended:
                    ended = True
                    self._tell(ctx, request, kind, event.understood)
                yield event

    def recollect(
        self, ctx: RequestContext, request: AnswerRequest, tokens: int
    ) -> Recollection | None:
        """What the inner life would remember, with what this one tells of it."""
        if self._recollecting is None:
            return None
        kept = self._recollecting(ctx, request, tokens)
        if kept is None:
            return None
        kind = self._summed_up(ctx, request)
        read = kept.told()[1].understood
        return _Heard(kept, dict(ctx.labels), lambda again: self._tell(again, request, kind, read))

    def _summed_up(self, ctx: RequestContext, request: AnswerRequest) -> str:
        if self._sessions is None:
            return "fact-normal"
        summary = self._sessions.read(_who(ctx), request.messages)
        ctx.labels["intent"], ctx.labels["urgency"] = summary.intent, summary.urgency
        ctx.labels["entities"] = str(len(summary.entities))
        return summary.kind()

    def _tell(
        self, ctx: RequestContext, request: AnswerRequest, kind: str, read: Understood | None
    ) -> None:
        if self._told is None or (read is not None and read.reply):
            return
        # What was searched for is what can be fetched beforehand.
        text = request.messages[-1].content if read is None else read.question
        if request.messages[-1].role != "user" or not _lasting(ctx, text):
            return
        search = SearchRequest(request.kb, text, request.top_k, request.filter)
        alone = len(request.messages) == 1 and not request.extras
        question = _question(ctx, search, request if alone else None)
        self._told(self._asked(ctx, kind, question))

    def _asked(self, ctx: RequestContext, kind: str, question: Question) -> Asked:
        cold_s = None
        if ctx.cache.get("retrieval") == "miss":
            cold_s = next((one.worked_s for one in ctx.stages if one.name == "retrieval"), None)
        return Asked(self._clock.now(), _who(ctx), kind, question, cold_s)


class _Heard:
    """``Recollection`` that is listened to; a conversation is summed up once for all times."""

    def __init__(
        self, kept: Recollection, labels: dict[str, str], tell: Callable[[RequestContext], None]
    ) -> None:
        self._kept = kept
        self._labels = labels
        self._tell = tell
        self.told = kept.told

    def again(self, ctx: RequestContext) -> bool:
        """See ``Recollection``."""
        if not self._kept.again(ctx):
            return False
        ctx.labels.update(self._labels)
        self._tell(ctx)
        return True


def _lasting(ctx: RequestContext, text: str) -> bool:
    """Whether it may be learned: whoever wants nothing kept is not listened to."""
    return not ctx.no_cache and 0 < len(text) <= QUESTION_CHARACTERS


def _question(
    ctx: RequestContext, search: SearchRequest, alone: AnswerRequest | None = None
) -> Question:
    principal = ctx.principal
    groups = None if principal.groups is None else tuple(sorted(principal.groups))
    return Question(
        tenant=principal.tenant,
        groups=groups,
        line=principal.business_line,
        kb=search.kb,
        text=search.query,
        top_k=search.top_k,
        filter=search.filter,
        sampling=None if alone is None else alone.sampling,
        route="chat" if alone is None else alone.route,
    )


def _who(ctx: RequestContext) -> str:
    """Who asks, as a hash: keys that many use are told apart by address."""
    principal = ctx.principal
    parts = f"{principal.tenant}\0{principal.key_id}\0{principal.user or ctx.address}"
    return blake2b(parts.encode("utf-8", "replace"), digest_size=8).hexdigest()
