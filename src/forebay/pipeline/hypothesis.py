"""What an engine writes about a question before it is searched: off unless configured.

Either costs a generation before the search begins, so each has a deadline of its own, a place in a
pool like any request, and is done without where it comes late.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from forebay.kernel.clock import Deadline
from forebay.kernel.context import RequestContext
from forebay.kernel.errors import DeadlineExceeded, ForebayError
from forebay.kernel.stages import (
    Finished,
    GenerationRequest,
    Message,
    QueryLanguage,
    Sampling,
    Understood,
)
from forebay.kernel.streams import closing
from forebay.pipeline.answer import AnswerPipeline
from forebay.pipeline.asking import ask_for

MOST_HISTORY_CHARACTERS = 2_000
MOST_LINES = 4
MOST_QUESTION_CHARACTERS = 400
"""What the engine writes in place of a question; more than that is no question."""

REWRITE_TASK = {
    False: "Rewrite the last question so that it can be understood without the conversation. Keep "
    "its language. Write only the question.",
    True: "改写最后一个问题，使它脱离对话也能看懂。保持原来的语言。只写这个问题。",
}
PASSAGE_TASK = {
    False: "Write a short passage from a document that answers the question. Write only the "
    "passage.",
    True: "写一小段文档中的文字来回答这个问题。只写这段文字。",
}


class QuestionEngineSettings(msgspec.Struct, frozen=True):
    """Which of the two is asked for, how long it may take and how much it may write."""

    rewriting: bool
    hyde: bool
    timeout_s: float
    max_tokens: int


class _Task(msgspec.Struct, frozen=True):
    """What the engine is told, and what of its reply is used; empty: nothing."""

    stage: str
    told: dict[bool, str]
    read: Callable[[str], str]


class Doubting(Protocol):
    """Looks whether what an engine wrote may be searched for: small models write anything."""

    def may_stand_for(self, alone: str, asked: str, before: Sequence[str]) -> bool:
        """Whether a question asks what was asked after what was said before."""
        ...

    def may_answer(self, passage: str, question: str) -> bool:
        """Whether a passage is about a question."""
        ...


class EngineQuestions:
    """``QuestionEngine`` through the generator of answers; ``pipeline`` reads no questions."""

    def __init__(
        self,
        pipeline: AnswerPipeline,
        count: Callable[[Sequence[str]], int],
        settings: QuestionEngineSettings,
        doubting: Doubting,
    ) -> None:
        self._pipeline = pipeline
        self._count = count
        self._settings = settings
        self._doubting = doubting

    async def standalone(
        self, ctx: RequestContext, messages: Sequence[Message], understood: Understood
    ) -> str | None:
        """See ``QuestionEngine``; a first question stands alone already."""
        said = [one for one in messages if one.role in ("user", "assistant")]
        if not self._settings.rewriting or len(said) < 2:
            return None
        shown = "\n".join(f"{one.role}: {one.content}" for one in said)[-MOST_HISTORY_CHARACTERS:]
        *before, asked = [one.content for one in said]

        def read(text: str) -> str:
            # Some models say first that they will do it.
            lines = [one.strip().strip("\"'“”") for one in text.splitlines()[:MOST_LINES]]
            return next(
                (
                    one
                    for one in lines
                    if 0 < len(one) <= MOST_QUESTION_CHARACTERS
                    and self._doubting.may_stand_for(one, asked, before)
                ),
                "",
            )

        task = _Task("query.rewrite", REWRITE_TASK, read)
        return await self._written(ctx, task, shown, understood)

    async def passage(self, ctx: RequestContext, understood: Understood) -> str | None:
        """See ``QuestionEngine``."""
        if not self._settings.hyde:
            return None
        question = understood.question

        def read(text: str) -> str:
            return text.strip() if self._doubting.may_answer(text, question) else ""

        task = _Task("query.hyde", PASSAGE_TASK, read)
        return await self._written(ctx, task, question, understood)

    async def _written(
        self, ctx: RequestContext, task: _Task, text: str, understood: Understood
    ) -> str | None:
        """What the engine writes to a task, in a context of its own.

        None: late, or failed, or not to be searched for, which the stage calls skipped.
        """
        within_s = min(self._settings.timeout_s, ctx.deadline.remaining())
        own = ctx.part(Deadline.after(within_s, ctx.clock))
        prompt = self._prompt(task.told, text, understood)
        ask = ask_for(own, prompt.prompt_tokens, prompt.max_output_tokens)
        pieces: list[str] = []
        with ctx.stage(task.stage) as record:
            try:
                async with (
                    asyncio.timeout(within_s),
                    closing(self._pipeline.written(own, ask, prompt)) as events,
                ):
                    pieces.extend(
                        [event.text async for event in events if not isinstance(event, Finished)]
                    )
            except (TimeoutError, DeadlineExceeded):
                record.outcome = "timeout"
                return None
            except ForebayError:
                record.outcome = "error"
                return None
            written = task.read("".join(pieces))
            record.outcome = "ok" if written else "skipped"
        return written or None

    def _prompt(
        self, task: dict[bool, str], text: str, understood: Understood
    ) -> GenerationRequest:
        chinese = is_chinese(understood.language)
        messages = (Message("system", task[chinese]), Message("user", text))
        most = self._settings.max_tokens
        return GenerationRequest(
            question=understood.question,
            language="zh" if chinese else "en",
            messages=messages,
            passages=(),
            sampling=Sampling(temperature=0.0, max_tokens=most),
            max_output_tokens=most,
            prompt_tokens=self._count([one.content for one in messages]),
        )


def is_chinese(language: QueryLanguage) -> bool:
    """Whether Chinese carries a question."""
    return language in ("zh", "zh-Hant")
