"""Questions in the answering life: what is searched, merged, said instead, charged and told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

import msgspec
import pytest

from forebay.app.composition import Citing
from forebay.context import ContextSettings, PromptBuilder
from forebay.ingest import EstimatedTokenCounter
from forebay.kernel.caching import Evidence
from forebay.kernel.clock import SystemClock, WallClock
from forebay.kernel.context import Degradation, RequestContext
from forebay.kernel.documents import Vectors
from forebay.kernel.errors import EngineError, Overloaded, StoreError
from forebay.kernel.stages import (
    Finished,
    GenerationRequest,
    Generator,
    Likeness,
    Message,
    QueryLanguage,
    Sampling,
    SearchRequest,
    SearchResult,
    TextDelta,
    Understood,
)
from forebay.pipeline.answer import AnswerParts, AnswerPipeline
from forebay.pipeline.cut_notice import NOTICES
from forebay.pipeline.hypothesis import EngineQuestions, QuestionEngineSettings
from forebay.pipeline.messages import AnswerDelta, AnswerEnd, AnswerRequest
from forebay.pipeline.questions import QuestionParts, Questions
from forebay.pipeline.senses import AnswersBySense
from forebay.policy.admission import Admission, AdmissionSettings, Desk, PoolRule
from forebay.policy.gate import GateSettings, PoolGate
from forebay.query import written
from forebay.testing.generation import ScriptedGenerator, context, passage
from forebay.testing.query import ScriptedReader
from tests.unit.cache.tier_parts import EVIDENCE

COUNTER = EstimatedTokenCounter()


class Searching:
    """Finds for each query what it is told to, in numbers of chunks."""

    def __init__(self, found: dict[str, Sequence[int]]) -> None:
        self.found = found
        self.requests: list[SearchRequest] = []
        self.failing: dict[str, Exception] = {}
        self.evidence: Evidence | None = None
        self.active = self.most = 0
        self.hanging: set[str] = set()
        self.degraded: set[str] = set()

    async def retrieve(self, ctx: RequestContext, request: SearchRequest) -> SearchResult:
        self.requests.append(request)
        self.active += 1
        self.most = max(self.most, self.active)
        try:
            await asyncio.sleep(60 if request.query in self.hanging else 0)
        finally:
            self.active -= 1
        if request.query in self.degraded:
            ctx.degrade("retrieval", "bm25", "vector_timeout")
        if request.query in self.failing:
            raise self.failing[request.query]
        numbers = self.found.get(request.query, (1,))
        hits = tuple(passage(f"The text of {n}.", number=n) for n in numbers)
        return SearchResult(hits[: request.top_k], "bm25", 3, self.evidence)


class Selective(ScriptedGenerator):
    """Fails or hangs where the best passage is a certain chunk; says that it was ``cut``."""

    def __init__(self, pieces: Sequence[str]) -> None:
        super().__init__(pieces)
        self.fails: set[int] = set()
        self.hangs: set[int] = set()
        self.cut = False

    async def generate(
        self, ctx: RequestContext, request: GenerationRequest
    ) -> AsyncGenerator[TextDelta | Finished, None]:
        best = request.passages[0].chunk.chunk_id if request.passages else 0
        if best in self.fails:
            raise EngineError("broken")
        if best in self.hangs:
            await asyncio.sleep(60)
        async with aclosing(super().generate(ctx, request)) as events:
            async for event in events:
                cut = self.cut and isinstance(event, Finished)
                yield msgspec.structs.replace(event, reason="length") if cut else event


class Alike:
    """Says that the last hit is unlike the others."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, ...]] = []

    async def of(
        self, ctx: RequestContext, kb: str, chunk_ids: Sequence[int], question: Vectors | None
    ) -> Likeness:
        self.asked.append(tuple(chunk_ids))
        last = len(chunk_ids) - 1
        return Likeness(
            tuple(
                tuple(
                    0.0 if (row == last) != (column == last) else 100.0
                    for column in range(last + 1)
                )
                for row in range(last + 1)
            )
        )


class Life:
    """The answering life with a scripted reader; ``life`` answers by sense, too."""

    def __init__(
        self,
        reader: ScriptedReader,
        found: dict[str, Sequence[int]] | None = None,
        *,
        pieces: Sequence[str] = ("Said", " [1]."),
        engine: QuestionEngineSettings | None = None,
        engines: Generator | None = None,
    ) -> None:
        self.searching = Searching(found or {})
        self.generator = Selective(pieces)
        self.alike = Alike()
        self.vectors: dict[str, Vectors] = {}
        clock = SystemClock()
        self.gate = PoolGate(GateSettings(), ["a"])
        rules = (PoolRule("pool", 4096, 400),)
        self.desk = Desk(AdmissionSettings(), rules, {"pool": self.gate}, clock, WallClock())
        parts = AnswerParts(
            retriever=self.searching,
            prompting=PromptBuilder(ContextSettings(), COUNTER, "secret"),
            generator=self.generator,
            cite=Citing,
            admission=Admission(self.desk),
            count=lambda texts: sum(map(COUNTER.count, texts)),
            engines=engines,
        )
        asked = None
        if engine is not None:
            asked = EngineQuestions(AnswerPipeline(parts), parts.count, engine, written)
        questions = Questions(QuestionParts(reader, self.vectors.get, self.alike, asked))
        parts = parts_with(parts, questions)
        pipeline = AnswerPipeline(parts)
        self.life = AnswersBySense(pipeline, pipeline, parts)

    async def ask(
        self, *turns: str, seconds: float = 20.0, **more: Any
    ) -> tuple[str, AnswerEnd, RequestContext]:
        messages = tuple(
            Message("assistant" if at % 2 else "user", turn) for at, turn in enumerate(turns)
        )
        ctx = context(timeout_s=seconds)
        text, end = "", None
        async with aclosing(self.life.answer(ctx, AnswerRequest("k", messages, **more))) as events:
            async for event in events:
                assert end is None
                if isinstance(event, AnswerDelta):
                    text += event.text
                else:
                    end = event
        assert end is not None
        return text, end, ctx

    def held(self) -> dict[str, float]:
        """What is still taken."""
        found = self.gate.statistics()
        return {
            "in_flight": found["in_flight"],
            "waiting": found["queue_waiting"],
            "generating": self.generator.active,
            "searching": self.searching.active,
        }


NOTHING = {"in_flight": 0, "waiting": 0, "generating": 0, "searching": 0}


def parts_with(parts: AnswerParts, questions: Questions) -> AnswerParts:
    return msgspec.structs.replace(parts, questions=questions)


def compound(question: str, *parts: str) -> ScriptedReader:
    return ScriptedReader({question: Understood(question, "en", "comparison", parts=parts)})


async def test_what_was_understood_is_searched_told_and_asked_of_the_generator() -> None:
    alone = Understood("How long is the spillway?", "en", "faq", rewritten=True)
    life = Life(ScriptedReader({"How long is it?": alone}))
    text, end, ctx = await life.ask("And the spillway?", "It is there.", "How long is it?")
    assert text == "Said [1]."
    (search,) = life.searching.requests
    assert (search.query, search.kind) == ("How long is the spillway?", "faq")
    assert end.understood == alone
    (prompt,) = life.generator.requests
    assert prompt.question == alone.question
    assert prompt.messages[-1].content == "How long is it?"
    record = next(one for one in ctx.stages if one.name == "query.parse")
    assert record.attributes["kind"] == "faq" and record.attributes["rewritten"] is True


async def test_a_fixed_reply_needs_neither_search_nor_engine_and_costs_its_question() -> None:
    read = Understood("hello", "en", "chat", reply="Good day.")
    life = Life(ScriptedReader({"hello": read}))
    text, end, ctx = await life.ask("hello")
    assert (text, end.model, end.rung, end.citations) == ("Good day.", "rules", "none", ())
    assert life.searching.requests == [] and life.generator.requests == []
    assert end.usage.prompt_tokens == COUNTER.count("hello")
    assert end.rests is None and not end.refused and ctx.rung == "none"


async def test_who_asks_for_a_form_gets_no_sentence_instead() -> None:
    read = Understood("hello", "en", "chat", reply="Good day.")
    life = Life(ScriptedReader({"hello": read}, refusals={"Sing!": "I do not sing."}))
    form = Sampling(response_format={"type": "json_object"})
    for said in ("hello", "Sing!"):
        text, _, _ = await life.ask(said, sampling=form)
        assert text == "Said [1]."


async def test_the_whole_and_its_parts_are_merged_in_turns() -> None:
    life = Life(compound("A or B?", "A", "B"), {"A or B?": (1, 2, 3), "A": (4, 1, 5), "B": (6, 4)})
    _, end, _ = await life.ask("A or B?", top_k=5)
    (prompt,) = life.generator.requests
    assert [hit.chunk.chunk_id for hit in prompt.passages] == [1, 4, 6, 2, 3]
    assert sorted(one.query for one in life.searching.requests) == ["A", "A or B?", "B"]
    assert life.searching.most == 3
    assert end.rests is not None and end.rests.found.evidence is None


async def test_what_the_whole_found_too_may_be_kept() -> None:
    life = Life(compound("A or B?", "A", "B"), {"A or B?": (1, 2, 3), "A": (3, 1), "B": (2,)})
    life.searching.evidence = EVIDENCE
    _, end, _ = await life.ask("A or B?", top_k=3)
    (prompt,) = life.generator.requests
    assert [hit.chunk.chunk_id for hit in prompt.passages] == [1, 3, 2]
    assert end.rests is not None and end.rests.found.evidence == EVIDENCE


async def test_each_side_has_a_place_even_where_the_whole_knows_one_side_only() -> None:
    life = Life(compound("A or B?", "A", "B"), {"A or B?": range(1, 9), "B": (20,)})
    await life.ask("A or B?", top_k=3)
    (prompt,) = life.generator.requests
    assert 20 in [hit.chunk.chunk_id for hit in prompt.passages]


async def test_a_part_that_fails_is_left_out() -> None:
    life = Life(compound("A or B?", "A", "B"), {"A or B?": (1, 2), "B": (3,)})
    life.searching.failing["A"] = Overloaded("Too many searches.")
    life.searching.evidence = EVIDENCE
    _, end, _ = await life.ask("A or B?")
    (prompt,) = life.generator.requests
    assert [hit.chunk.chunk_id for hit in prompt.passages] == [1, 3, 2]
    assert end.understood is not None and end.understood.missing == ("A",)
    assert end.degradations == (Degradation("retrieval", "bm25", "parts_missing"),)
    assert end.rests is not None and end.rests.found.evidence is None


async def test_a_part_that_hangs_does_not_hold_up_the_answer() -> None:
    life = Life(compound("A or B?", "A", "B"), {"A or B?": (1, 2), "B": (3,)})
    life.searching.hanging.add("A")
    began = asyncio.get_running_loop().time()
    _, end, _ = await life.ask("A or B?", seconds=3.0)
    assert asyncio.get_running_loop().time() - began < 3.0
    assert end.understood is not None and end.understood.missing == ("A",)
    assert life.held() == NOTHING


async def test_what_a_part_steps_down_by_is_told_once() -> None:
    life = Life(compound("A or B?", "A", "B"), {"A or B?": (1,), "A": (2,), "B": (3,)})
    life.searching.degraded |= {"A", "B"}
    _, end, _ = await life.ask("A or B?")
    assert end.degradations == (Degradation("retrieval", "bm25", "vector_timeout"),)


async def test_the_failure_of_the_whole_is_everybodys() -> None:
    life = Life(compound("A or B?", "A", "B"))
    life.searching.failing["A or B?"] = StoreError("damaged")
    with pytest.raises(StoreError):
        await life.ask("A or B?")
    assert life.searching.active == 0


async def test_who_leaves_during_the_parts_leaves_nothing_behind() -> None:
    life = Life(compound("A or B?", "A", "B"))
    task = asyncio.create_task(life.ask("A or B?"))
    for _ in range(20):
        await asyncio.sleep(0)
        if life.searching.active:
            break
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert life.held() == NOTHING


@pytest.mark.parametrize(
    ("question", "told", "language"),
    [
        ("備用泵的轉速？", "zh-Hant", "zh-Hant"),
        ("备用泵的转速？", "zh", "zh"),
        ("Speed?", "en", "en"),
    ],
)
async def test_whoever_quotes_knows_the_script_of_the_question(
    question: str, told: QueryLanguage, language: str
) -> None:
    life = Life(ScriptedReader({question: Understood(question, told, "fact")}))
    await life.ask(question)
    [prompt] = life.generator.requests
    assert prompt.language == language


async def test_a_refusal_after_the_search_is_no_answer() -> None:
    life = Life(ScriptedReader(refusals={"Sing!": "I do not sing."}))
    text, end, _ = await life.ask("Sing!")
    assert (text, end.refused, end.rung, end.rests) == ("I do not sing.", True, "bm25", None)
    assert life.generator.requests == []


async def test_a_question_is_judged_by_the_vector_that_is_there() -> None:
    reader = ScriptedReader()
    life = Life(reader)
    await life.ask("cold")
    life.vectors["warm"] = Vectors((0,), 1, b"\0\0\0\0")
    await life.ask("warm")
    assert reader.vectors == [None, life.vectors["warm"]]


async def test_senses_are_told_but_only_where_they_may_be_several() -> None:
    unclear = Understood("apple", "en", "fact", unclear=True)
    life = Life(ScriptedReader({"apple": unclear}), {"apple": (1, 2, 3), "long": (1, 2, 3)})
    _, end, _ = await life.ask("apple")
    assert end.understood is not None
    assert [sense.hits for sense in end.understood.senses] == [(0, 1), (2,)]
    assert life.alike.asked == [(1, 2, 3)]
    await life.ask("long")
    assert len(life.alike.asked) == 1


async def test_each_sense_is_answered_by_its_own_hits() -> None:
    unclear = Understood("apple", "en", "fact", unclear=True)
    reader = ScriptedReader({"apple": unclear}, each=True)
    life = Life(reader, {"apple": (1, 2, 3)})
    text, end, _ = await life.ask("apple")
    assert text == "**the first**\n\nSaid [1].\n\n**the second**\n\nSaid [3]."
    shown = [[hit.chunk.chunk_id for hit in one.passages] for one in life.generator.requests]
    assert shown == [[1, 2], [3]]
    assert [(one.index, one.chunk_id) for one in end.citations] == [(1, "1"), (3, "3")]
    assert end.usage.completion_tokens == 4 and not end.refused and end.rests is None


@pytest.mark.parametrize(
    ("language", "sentence"),
    [
        ("en", "(Could not be answered just now: the second.)"),
        ("zh", "（暂时无法回答：the second。）"),
    ],
)
@pytest.mark.parametrize("how", ["fails", "hangs"])
async def test_a_sense_that_cannot_be_answered_is_named_beside_the_others(
    language: QueryLanguage, sentence: str, how: str
) -> None:
    unclear = Understood("apple", language, "fact", unclear=True)
    life = Life(ScriptedReader({"apple": unclear}, each=True), {"apple": (1, 2, 3)})
    getattr(life.generator, how).add(3)
    text, end, _ = await life.ask("apple", seconds=0.5 if how == "hangs" else 20.0)
    assert text == f"**the first**\n\nSaid [1].\n\n{sentence}"
    assert end.degradations == (Degradation("generation", "senses", "senses_missing"),)
    assert [one.index for one in end.citations] == [1] and life.held() == NOTHING


async def test_a_sense_that_a_bound_cut_says_so() -> None:
    unclear = Understood("apple", "en", "fact", unclear=True)
    reader = ScriptedReader({"apple": unclear}, each=True)
    life = Life(reader, {"apple": (1, 2, 3)})
    life.generator.cut = True
    text, end, _ = await life.ask("apple")
    told = f"Said [{{}}].\n\n{NOTICES['en']}"
    assert text == (f"**the first**\n\n{told.format(1)}\n\n**the second**\n\n{told.format(3)}")
    assert end.finish_reason == "length"


async def test_senses_that_cannot_be_answered_fail_the_answer() -> None:
    unclear = Understood("apple", "en", "fact", unclear=True)
    life = Life(ScriptedReader({"apple": unclear}, each=True), {"apple": (1, 2, 3)})
    life.generator.failure = EngineError("broken")
    with pytest.raises(EngineError):
        await life.ask("apple")


async def test_senses_are_quoted_where_no_engine_begins() -> None:
    unclear = Understood("apple", "en", "fact", unclear=True)
    broken = Selective(())
    broken.failure = EngineError("broken")
    life = Life(ScriptedReader({"apple": unclear}, each=True), {"apple": (1, 2, 3)}, engines=broken)
    text, _, _ = await life.ask("apple")
    assert "Said [3]." in text and not broken.requests


async def test_a_search_is_told_its_kind_and_is_never_rewritten() -> None:
    read = Understood("else", "zh", "relation", rewritten=True, parts=("a", "b"))
    life = Life(ScriptedReader({"why": read}))
    found = await life.life.search(context(), SearchRequest("k", "why"))
    (search,) = life.searching.requests
    assert (search.query, search.kind) == ("why", "relation")
    assert found.understood == Understood("why", "zh", "relation")


ENGINE = QuestionEngineSettings(rewriting=True, hyde=True, timeout_s=5.0, max_tokens=32)


async def test_an_engine_rewrites_and_imagines_where_it_is_asked_to() -> None:
    life = Life(ScriptedReader(), pieces=("How tall is the dam?",), engine=ENGINE)
    _, end, ctx = await life.ask("The dam?", "Yes.", "How tall?")
    (search,) = life.searching.requests
    assert (search.query, search.hypothesis) == ("How tall is the dam?", "How tall is the dam?")
    assert end.understood is not None and end.understood.rewritten
    assert {"query.rewrite", "query.hyde"} <= {one.name for one in ctx.stages}
    rewriting, hyde, answer = life.generator.requests
    assert rewriting.sampling.max_tokens == hyde.sampling.max_tokens == 32
    assert answer.question == "How tall is the dam?"


@pytest.mark.parametrize(
    ("turns", "said"),
    [
        (("The dam?", "It is tall [1].", "How tall?"), "The weather in Paris is lovely."),
        (("The dam?", "It is tall [1].", "Built when?"), "It is tall [1]."),
        (("大坝？", "大坝很高 [1]。", "建于哪一年？"), "大坝很高 [1]。"),
        (("大坝？", "大坝很高 [1]。", "建于哪一年？"), "天气很好。"),
    ],
)
async def test_what_an_engine_writes_of_something_else_is_not_searched(
    turns: tuple[str, ...], said: str
) -> None:
    life = Life(ScriptedReader(), pieces=(said,), engine=ENGINE)
    _, end, ctx = await life.ask(*turns)
    (search,) = life.searching.requests
    assert (search.query, search.hypothesis) == (turns[-1], "")
    assert end.understood is not None and not end.understood.rewritten
    outcomes = [one.outcome for one in ctx.stages if one.name in ("query.rewrite", "query.hyde")]
    assert outcomes == ["skipped", "skipped"]


async def test_what_an_engine_says_first_is_passed_over() -> None:
    life = Life(ScriptedReader(), pieces=("Sure:\n\n", "How tall is the dam?"), engine=ENGINE)
    await life.ask("The dam?", "Yes.", "How tall?")
    assert life.searching.requests[0].query == "How tall is the dam?"


async def test_a_first_question_is_not_rewritten() -> None:
    only = QuestionEngineSettings(rewriting=True, hyde=False, timeout_s=5.0, max_tokens=32)
    life = Life(ScriptedReader(), engine=only)
    await life.ask("How tall is the dam?")
    assert len(life.generator.requests) == 1
    assert life.searching.requests[0].hypothesis == ""


async def test_a_late_engine_is_done_without() -> None:
    late = QuestionEngineSettings(rewriting=True, hyde=True, timeout_s=0.5, max_tokens=32)
    life = Life(ScriptedReader(), engine=late)
    life.generator.gate.clear()
    asking = asyncio.create_task(life.ask("The dam?", "Yes.", "How tall?"))
    while not life.searching.requests and not asking.done():
        await asyncio.sleep(0.005)
    life.generator.gate.set()
    _, _, ctx = await asking
    (search,) = life.searching.requests
    assert (search.query, search.hypothesis) == ("How tall?", "")
    outcomes = [one.outcome for one in ctx.stages if one.name in ("query.rewrite", "query.hyde")]
    assert outcomes == ["timeout", "timeout"]
    assert life.generator.active == 0


async def test_a_broken_engine_fails_only_the_answer_it_writes() -> None:
    life = Life(ScriptedReader(), engine=ENGINE)
    life.generator.failure = EngineError("broken")
    with pytest.raises(EngineError):
        await life.ask("How tall is the dam?")
    assert len(life.searching.requests) == 1
