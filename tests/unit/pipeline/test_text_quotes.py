"""Long texts that no engine reads are quoted: in time, with their places, and flagged."""

from __future__ import annotations

import asyncio

import pytest

from forebay.kernel.errors import (
    ContextTooLong,
    EngineError,
    EngineRefused,
    ForebayError,
)
from forebay.kernel.stages import Sampling
from forebay.testing.generation import context
from tests.unit.pipeline.long_texts import (
    NOTHING,
    Service,
    chinese,
    english,
    reasons,
)


@pytest.mark.parametrize("how", ["fails", "hangs"])
@pytest.mark.parametrize(
    ("text", "asked", "quote", "title"),
    [
        (english(9), "How many tonnes does gate 7 weigh?", "Gate 7 weighs 75 tonnes.", "part "),
        (chinese(9), "闸门 7 重多少吨？", "闸门 7 重 75 吨。", "第 "),
    ],
)
async def test_a_text_that_no_engine_reads_is_quoted_in_time(
    text: str, asked: str, quote: str, title: str, how: str
) -> None:
    service = Service(quoting=True, burst=60_000.0, at_once=3)
    getattr(service.generator, how).add("")
    message = f"{text}\n\n{asked}"
    began = asyncio.get_running_loop().time()
    ctx = context(timeout_s=2.0 if how == "hangs" else 20.0)
    async with service.ticking():
        said, end = await service.ask(message, ctx)
    assert not ctx.deadline.expired() and asyncio.get_running_loop().time() - began < 2.0
    assert quote in said and not end.refused and end.model == "extractive"
    reason = "engine_error" if how == "fails" else "first_token_timeout"
    assert reasons(end)["generation", "extractive"].split(", ")[0] == reason
    cited = end.citations[0]
    assert cited.source == "request" and title in cited.title
    assert quote in message[cited.start : cited.end]
    assert end.rests is None and end.invalid_citations == 0  # nobody keeps it
    assert service.generator.active == 0 and service.held() == NOTHING
    assert end.usage.prompt_tokens > 0


async def test_a_text_without_an_answer_is_not_quoted_at_random() -> None:
    service = Service(quoting=True)
    service.generator.fails.add("")
    message = f"{english(9)}\n\nWhich pump feeds the fire main?"
    said, end = await service.ask(message, context(timeout_s=5.0))
    assert end.refused and "could not find" in said and not end.citations


@pytest.mark.parametrize("error", [EngineRefused("too long", status=400), ContextTooLong("no")])
async def test_what_is_the_texts_own_fault_is_raised_and_not_quoted(error: ForebayError) -> None:
    service = Service(quoting=True)
    service.generator.failure = error
    with pytest.raises(type(error)):
        await service.ask(f"{english(9)}\n\nHow much does each gate weigh?")
    assert service.held() == NOTHING


async def test_who_wants_a_form_of_its_own_is_told_why_no_engine_gives_it() -> None:
    service = Service(quoting=True)
    service.generator.fails.add("")
    form = Sampling(response_format={"type": "json_object"})
    with pytest.raises(EngineError):
        await service.ask(
            f"{english(9)}\n\nHow much does gate 7 weigh?", context(timeout_s=5.0), sampling=form
        )
    assert service.held() == NOTHING


async def test_a_form_of_its_own_is_given_by_engines_alone() -> None:
    form = Sampling(response_format={"type": "json_object"})
    message = f"{english(9)}\n\nHow much does each gate weigh?"
    for failing in ("", "are notes on"):
        service = Service(quoting=True)
        service.generator.fails.add(failing)
        with pytest.raises(EngineError):
            await service.ask(message, context(timeout_s=5.0), sampling=form)
        assert service.held() == NOTHING
