"""Texts beyond the window, answered in parts: what is asked, merged, cited, charged and freed."""

from __future__ import annotations

import asyncio
import re
from contextlib import aclosing
from typing import Any

import pytest

from forebay.kernel.errors import (
    ContextTooLong,
    EngineError,
    InvalidRequest,
    RateLimited,
    StoreError,
    Unavailable,
)
from forebay.kernel.stages import (
    Message,
    Sampling,
)
from forebay.pipeline.cut_notice import NOTICES
from forebay.pipeline.messages import AnswerDelta, AnswerEnd, AnswerRequest
from forebay.testing.generation import context
from tests.unit.pipeline.long_texts import (
    COUNTER,
    FACTS,
    NOTHING,
    WINDOW,
    Service,
    chinese,
    english,
    reasons,
)


@pytest.mark.parametrize(
    ("text", "asked", "fact", "title"),
    [
        (english(9), "How much does each gate weigh?", "Gate {} weighs {}5 tonnes", "part 1 of"),
        (chinese(9), "每个闸门有多重？", "闸门 {} 重 {}5 吨", "第 1 部分"),
    ],
)
async def test_a_text_beyond_the_window_is_answered_in_parts_and_merged(
    text: str, asked: str, fact: str, title: str
) -> None:
    service = Service()
    message = f"{text}\n\n{asked}"
    ctx = context()
    said, end = await service.ask(message, ctx)
    for gate in range(1, 10):
        assert fact.format(gate, gate) in said
    *parts, merging = service.generator.requests
    assert 3 <= len(parts) <= 8
    assert all(one.prompt_tokens <= WINDOW for one in service.generator.requests)
    assert all(one.messages[-1].content.startswith(asked) for one in service.generator.requests)
    assert service.retriever.queries == [asked]
    # Each part's fact cites its place in the message; what the notes cited is cited on.
    sources = [one for one in end.citations if one.source == "request"]
    assert len(sources) == len(parts)
    assert title in sources[0].title
    for one in sources:
        assert FACTS.search(message[one.start : one.end])
        assert message[one.start : one.end].startswith(one.text.removesuffix("…"))
    assert [one.document_id for one in end.citations if one.source != "request"] == ["document-7"]
    assert end.invalid_citations == 0
    assert [(one.stage, one.rung) for one in end.degradations] == [("generation", "split")]
    assert f"{len(parts)} parts" in end.degradations[0].reason
    assert end.usage.prompt_tokens == sum(one.prompt_tokens for one in service.generator.requests)
    assert end.rests is None  # nobody keeps it
    assert (end.rung, end.kb_version) == ("bm25", 3)
    names = [record.name for record in ctx.stages]
    assert names.count("generation") == names.count("admission") == len(parts) + 1
    assert names.count("parts") == names.count("retrieval") == 1
    assert len(merging.passages) == len(parts) + 1
    assert service.held() == NOTHING


async def test_what_fits_goes_its_usual_way() -> None:
    service = Service()
    said, end = await service.ask(f"{english(1)}\n\nHow heavy is the gate?")
    assert len(service.generator.requests) == 1
    assert end.degradations == ()
    assert "Gate" not in said  # the text is no passage then


async def test_parts_that_hold_nothing_leave_no_trace() -> None:
    service = Service()
    text = re.sub(r"Gate [3-6] weighs", "A gate has", english(9))
    said, end = await service.ask(f"How much does each gate weigh?\n\n{text}")
    assert "NONE" not in said
    parts = len(service.generator.requests) - 1
    assert len([one for one in end.citations if one.source == "request"]) < parts
    numbers = [int(number) for number in re.findall(r"\[(\d+)\]", said)]
    assert set(numbers) == {one.index for one in end.citations}


@pytest.mark.parametrize("text", [english(1) + "x " * 3000, chinese(1) + "另外的事。" * 800])
async def test_a_text_without_any_answer_is_said_to_have_none(text: str) -> None:
    service = Service()
    text = FACTS.sub("", text)
    said, _ = await service.ask(f"What does gate 1 weigh?\n\n{text}")
    assert said.strip() in ("NONE", "无。")
    assert service.generator.requests[-1].passages  # what the knowledge base has


async def test_a_text_alone_is_summarised() -> None:
    service = Service()
    said, _ = await service.ask(chinese(9))
    assert "闸门 9 重 95 吨" in said
    assert service.generator.requests[0].question.startswith("概括")


async def test_rules_and_sampling_reach_every_part_but_its_form_only_the_end() -> None:
    service = Service()
    sampling = Sampling(temperature=0.2, max_tokens=300, stop=("END",))
    message = f"{english(6)}\n\nHow much does each gate weigh?"
    await service.ask(message, rules=("Speak softly.",), sampling=sampling)
    *parts, merging = service.generator.requests
    for one in service.generator.requests:
        assert "Speak softly." in one.messages[0].content
        assert one.sampling.temperature == 0.2
    assert merging.sampling == sampling
    assert all(one.sampling.stop is None for one in parts)
    assert all((one.sampling.max_tokens or 0) < 300 for one in parts)


async def test_notes_that_were_cut_are_told_of() -> None:
    service = Service()
    service.generator.cut = True
    _, end = await service.ask(f"{english(9)}\n\nHow much does each gate weigh?")
    parts = len(service.generator.requests) - 1
    assert re.search(
        rf"{parts} parts, {parts} of them cut at \d+ tokens", end.degradations[0].reason
    )


@pytest.mark.parametrize(
    ("text", "asked", "language"),
    [
        (english(9), "How much does each gate weigh?", "en"),
        (chinese(9), "每个闸门有多重？", "zh"),
    ],
)
async def test_a_merged_answer_that_a_bound_cut_says_so_at_its_end(
    text: str, asked: str, language: str
) -> None:
    service = Service()
    service.generator.cut = True
    answer, end = await service.ask(f"{text}\n\n{asked}")
    notice = NOTICES[language]
    assert answer.endswith(f"\n\n{notice}")
    assert answer.count(notice) == 1
    assert end.finish_reason == "length"


async def test_no_more_parts_are_in_work_than_set_and_each_waits_for_its_place() -> None:
    service = Service(at_once=3)
    await service.ask(f"{english(9)}\n\nHow much does each gate weigh?")
    assert service.generator.most == 3
    narrow = Service(at_once=3, limit=1)
    await narrow.ask(f"{english(9)}\n\nHow much does each gate weigh?")
    assert narrow.generator.most == 1


async def test_too_many_parts_are_refused_before_anything_is_taken() -> None:
    service = Service(max_parts=3)
    with pytest.raises(ContextTooLong, match=r"parts, of which at most 3 are") as refused:
        await service.ask(f"{english(9)}\n\nHow much does each gate weigh?")
    assert refused.value.param == "messages"
    assert service.generator.requests == []
    assert service.retriever.queries == []
    assert service.held() == NOTHING


async def test_the_sum_is_reserved_and_what_was_used_is_settled() -> None:
    service = Service(burst=30_000.0)
    service.generator.gate.clear()
    ctx = context()
    message = f"{english(9)}\n\nHow much does each gate weigh?"
    asking = asyncio.get_running_loop().create_task(service.ask(message, ctx))
    while service.generator.active < 2:
        await asyncio.sleep(0)
    assert ctx.rate is not None
    reserved = 30_000 - ctx.rate.remaining_tokens
    assert reserved > COUNTER.count(message)
    assert sum(service.desk._in_work.values()) == 1
    service.generator.gate.set()
    _, end = await asking
    used = end.usage.prompt_tokens + end.usage.completion_tokens
    assert used < reserved
    after = context()
    await service.ask("Hello", after)
    assert after.rate is not None
    left = 30_000 - used - after.rate.remaining_tokens
    assert 0 <= left < 2500  # the second request's own


async def test_a_quota_that_cannot_pay_for_all_parts_refuses_before_the_first() -> None:
    poor = Service(burst=4_000.0)
    message = f"{english(9)}\n\nHow much does each gate weigh?"
    with pytest.raises(InvalidRequest) as refused:
        await poor.ask(message)
    assert refused.value.code == "quota_too_small"
    used_up = Service(burst=12_000.0)
    await used_up.ask(message)
    with pytest.raises(RateLimited):
        await used_up.ask(message)
    assert poor.generator.requests == []
    assert poor.held() == used_up.held() == NOTHING


ASKED = [
    (f"{english(9)}\n\nHow much does each gate weigh?", "is part", "are notes on", "part 2 of"),
    (f"{chinese(9)}\n\n每个闸门有多重？", "是一篇长文的", "部分的笔记", "第 2 部分"),
]


@pytest.mark.parametrize(("message", "part", "merge", "second"), ASKED)
@pytest.mark.parametrize("how", ["fails", "hangs"])
async def test_a_part_that_fails_or_hangs_is_missing_and_the_answer_says_which(
    message: str, part: str, merge: str, second: str, how: str
) -> None:
    service = Service(at_once=3)
    getattr(service.generator, how).add(second)
    ctx = context(timeout_s=4.0 if how == "hangs" else 20.0)
    said, end = await service.ask(message, ctx)
    assert not ctx.deadline.expired()
    count = len([one for one in service.generator.requests if part in one.messages[-1].content])
    assert f"answered in {count} parts, without part 2" in reasons(end)["generation", "split"]
    assert f"part 2 of {count}" in said or f"第 2 部分（共 {count} 部分）" in said
    assert len([one for one in end.citations if one.source == "request"]) == count - 1
    assert end.rests is None and service.held() == NOTHING


async def test_the_failure_of_all_parts_is_told_as_it_is() -> None:
    service = Service(at_once=3)
    service.generator.fails.add("")
    ctx = context(timeout_s=5.0)
    with pytest.raises(EngineError, match="broken"):
        await service.ask(ASKED[0][0], ctx)
    assert service.generator.active == 0
    assert service.held() == NOTHING
    assert ctx.degradations == []


@pytest.mark.parametrize(("message", "part", "merge", "second"), ASKED)
@pytest.mark.parametrize("how", ["fails", "hangs"])
async def test_notes_that_nobody_merges_are_the_answer(
    message: str, part: str, merge: str, second: str, how: str
) -> None:
    service = Service(at_once=3)
    getattr(service.generator, how).add(merge)
    said, end = await service.ask(message, context(timeout_s=4.0 if how == "hangs" else 20.0))
    assert len(FACTS.findall(said)) == 9
    assert "not merged" in reasons(end)["generation", "notes"]
    assert end.citations and end.invalid_citations == 0 and end.model == "reader"
    assert service.held() == NOTHING


@pytest.mark.parametrize("failure", [Unavailable("Nothing."), StoreError("damaged")])
async def test_a_text_is_answered_without_the_knowledge_base_where_that_fails(
    failure: Exception,
) -> None:
    service = Service()
    service.retriever.failure = failure
    said, end = await service.ask(ASKED[0][0])
    assert len(FACTS.findall(said)) == 9 and end.rung == "none"
    assert ("retrieval", "none") in reasons(end)
    assert {one.source for one in end.citations} == {"request"}


async def test_leaving_at_any_point_frees_everything() -> None:
    message = f"{english(9)}\n\nHow much does each gate weigh?"
    loop = asyncio.get_running_loop()
    for turns in range(0, 120, 3):
        service = Service(limit=2, at_once=3)
        if turns % 2:
            service.generator.gate.clear()
        asking = loop.create_task(service.ask(message))
        for _ in range(turns):
            await asyncio.sleep(0)
        asking.cancel()
        done, _ = await asyncio.wait([asking], timeout=5)
        assert done
        assert service.generator.active == 0
        assert service.held() == NOTHING


async def test_a_reader_who_stops_reading_frees_everything() -> None:
    service = Service()
    request = service.request(f"{english(9)}\n\nHow much does each gate weigh?")
    events: Any = service.answering.answer(context(), request)
    async with aclosing(events):
        assert isinstance(await anext(events), AnswerDelta)
        assert service.held()["in_flight"] == 1
    assert service.held() == NOTHING


async def test_a_long_history_is_left_out_and_makes_nothing_too_long() -> None:
    service = Service()
    before = (Message("user", english(9)), Message("assistant", "I have read it."))
    request = AnswerRequest("kb", (*before, Message("user", "And where is Linz?")))
    events = [event async for event in service.answering.answer(context(), request)]
    assert isinstance(events[-1], AnswerEnd)
    (asked,) = service.generator.requests
    assert asked.prompt_tokens <= WINDOW
    assert before[0] not in asked.messages
    assert service.held() == NOTHING
