"""Tuning: candidates built once, questions and documents from where people have them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest

from forebay.app.candidates import (
    Candidates,
    CorpusParts,
    RememberingEmbedder,
    Upload,
    changed_settings,
    flat,
    patient,
)
from forebay.app.delivery import Delivery
from forebay.app.judging import JudgeWords, OpenJudge
from forebay.app.output import Output
from forebay.app.settings import Settings, load_settings
from forebay.app.tuning import Labels, TuneWords, labelled, tune
from forebay.app.tuning import _beginning as beginning
from forebay.app.tuning import _patch as patch_of
from forebay.app.tuning import _space as space_of
from forebay.app.tuning import _uploads as uploads_of
from forebay.kernel.clock import SystemClock
from forebay.kernel.errors import ConfigError, InvalidRequest, StoreError, Unavailable
from forebay.lab.evaluate.datasets import Question as Asked
from forebay.lab.evaluate.datasets import QuestionSet
from forebay.lab.evaluate.judging.verdicts import Judgement, Verdict
from forebay.lab.evaluate.target import Passage
from forebay.lab.tune.objectives import Figures, Observed, qualities
from forebay.lab.tune.pipeline import Settled
from forebay.lab.tune.questions import Question, Target
from forebay.lab.tune.result import Advice
from forebay.lab.tune.space import (
    Choice,
    Corpus,
    Parameter,
    Value,
    Values,
    Whole,
    default_space,
)
from forebay.testing.embedding import HashEmbedder

T = TypeVar("T")
PAGES = {
    "travel.md": "# Travel\n\n## Hotels\n\n"
    "Up to 120 euros a night.\n\n## Trains\n\nSecond class.\n",
    "休假.md": "# 休假制度\n\n## 产假\n\n女职工享受一百五十八天。\n\n## 年假\n\n每年十天。\n",
}
QUESTIONS = (
    Question("en", "how much may a hotel cost a night", (Target("travel.md"),)),
    Question("zh", "女职工可以休多少天", (Target("休假.md"),)),
)
KIND = "retrieval.vector.kind"


def settings(*pairs: tuple[str, object]) -> Settings:
    return load_settings(None, dict(pairs), {})[0]


def with_candidates(
    folder: Path,
    work: Callable[[Candidates], Awaitable[T]],
    embedder: HashEmbedder | None = None,
    **changes: object,
) -> T:
    """Run ``work`` on candidates over two small pages."""

    async def main() -> T:
        parts = CorpusParts(
            uploads=[Upload(name, name, text.encode()) for name, text in PAGES.items()],
            settings=settings(("retrieval.vector.exact_rows_max", 1)),
            embedder=embedder,
            counter=None,
            folder=folder,
            clock=SystemClock(),
            repeats=1,
        )
        candidates = Candidates(msgspec.structs.replace(parts, **changes))
        try:
            return await work(candidates)
        finally:
            await candidates.close()

    return asyncio.run(main())


def test_settings_of_a_search_build_nothing_and_embed_nothing(tmp_path: Path) -> None:
    embedder = HashEmbedder()

    async def work(candidates: Candidates) -> list[tuple[int, int]]:
        seen = []
        tried: tuple[Values, ...] = (
            {KIND: "hnsw"},
            {KIND: "hnsw", "retrieval.vector.hnsw_ef_search": 16},
            {KIND: "hnsw", "retrieval.fusion.ceiling": 0.3, "retrieval.candidates": 10},
            {KIND: "hnsw", "retrieval.vector.hnsw_m": 8},
            {KIND: "exact"},
        )
        for values in tried:
            await candidates.observe(values, QUESTIONS)
            seen.append((candidates.built, len(embedder.calls)))
        return seen

    seen = with_candidates(tmp_path, work, embedder)
    assert [built for built, _ in seen] == [1, 1, 1, 2, 3]
    assert len({calls for _, calls in seen}) == 1


def test_other_chunks_are_cut_anew_and_found_by_their_places(tmp_path: Path) -> None:
    async def work(candidates: Candidates) -> tuple[Observed, Observed]:
        return (
            await candidates.observe({}, QUESTIONS),
            await candidates.observe(
                {
                    "ingest.chunks.max_tokens": 16,
                    "ingest.chunks.min_tokens": 0,
                    "ingest.chunks.overlap_tokens": 0,
                },
                QUESTIONS,
            ),
        )

    whole, small = with_candidates(tmp_path, work, HashEmbedder())
    assert small.chunks > whole.chunks
    for observed in (whole, small):
        assert qualities(observed, QUESTIONS, 10) == {"en": 1.0, "zh": 1.0}
        assert observed.memory_bytes > 0
        assert len(observed.wall_s) == len(observed.cpu_s) == 2


def test_chunks_by_meaning_can_be_tried(tmp_path: Path) -> None:
    embedder = HashEmbedder()
    topics = ("The hotel costs 120 euros in room {}.", "第{}位女职工休产假一百五十八天。")
    text = "".join(topic.format(number) for topic in topics for number in range(12))

    async def work(candidates: Candidates) -> tuple[int, int, Observed]:
        await candidates.observe({}, QUESTIONS)
        plain = len(embedder.calls)
        values: Values = {"ingest.chunks.kind": "meaning", "ingest.chunks.min_tokens": 0}
        observed = await candidates.observe(values, QUESTIONS)
        return plain, len(embedder.calls), observed

    uploads = [Upload("both.txt", "both.txt", text.encode())]
    plain, calls, observed = with_candidates(tmp_path, work, embedder, uploads=uploads)
    assert calls > plain
    assert observed.chunks > 1


def test_an_index_takes_what_its_kind_takes(tmp_path: Path) -> None:
    async def work(candidates: Candidates) -> list[int]:
        return [
            (
                await candidates.observe({KIND: "hnsw", "retrieval.vector.hnsw_m": m}, QUESTIONS)
            ).memory_bytes
            for m in (8, 64)
        ]

    small, large = with_candidates(tmp_path, work, HashEmbedder())
    assert large > small


def test_early_exit_spares_the_embedding_and_is_counted(tmp_path: Path) -> None:
    class Costly(HashEmbedder):
        async def embed(self, texts, *, kind):  # type: ignore[no-untyped-def]
            if kind == "query":
                await asyncio.sleep(0.5)
            return await super().embed(texts, kind=kind)

    async def work(candidates: Candidates) -> tuple[Observed, Observed]:
        name = "retrieval.early_exit_confidence"
        return (
            await candidates.observe({name: 2.0}, QUESTIONS),
            await candidates.observe({name: 1e-9}, QUESTIONS),
        )

    never, always = with_candidates(tmp_path, work, Costly())
    assert never.words_only == 0
    assert always.words_only == 2
    assert min(never.wall_s) > 0.5 > max(always.wall_s)


def test_without_an_embedder_words_answer(tmp_path: Path) -> None:
    observed = with_candidates(tmp_path, lambda c: c.observe({}, QUESTIONS))
    assert observed.words_only == 2
    assert qualities(observed, QUESTIONS, 10)["zh"] == 1.0


def test_the_light_reranker_is_tried_where_it_knows_the_embedder(tmp_path: Path) -> None:
    # The shipped one was trained on the built-in embedder's vectors.
    for embedder in (HashEmbedder(), None):
        assert with_candidates(tmp_path, lambda c: c.rerankers(), embedder) == ()

    async def work(candidates: Candidates) -> None:
        await candidates.observe({"rerank.backend": "light"}, QUESTIONS)

    with pytest.raises(ConfigError, match="trained on another embedder"):
        with_candidates(tmp_path, work, HashEmbedder())


def test_nothing_runs_into_a_time_out() -> None:
    given = settings(("rerank.timeout_ms", 1), ("retrieval.vector_timeout_ms", 1))
    calm = patient(given)
    assert (
        min(
            calm.rerank.timeout_ms,
            calm.rerank.dear_timeout_ms,
            calm.retrieval.vector_timeout_ms,
            calm.retrieval.words_timeout_ms,
        )
        >= 60_000
    )
    assert calm.retrieval.fusion == given.retrieval.fusion


def test_hidden_headings_are_in_no_index(tmp_path: Path) -> None:
    asked = (Question("t", "Trains", (Target("travel.md"),)),)

    def found(folder: Path, hidden: bool) -> int:
        folder.mkdir()
        seen = with_candidates(folder, lambda c: c.observe({}, asked), None, headings_hidden=hidden)
        return len(seen.found["t"])

    assert found(tmp_path / "shown", hidden=False) == 1
    assert found(tmp_path / "hidden", hidden=True) == 0


def test_what_cannot_be_built_says_why(tmp_path: Path) -> None:
    for values, told in (
        ({"retrieval.vector.hnsw_m": 1000}, "do not go together.*64"),
        ({"ingest.chunks.max_tokens": 16}, "do not go together.*half"),
        ({"retrieval.vectors.kind": "hnsw"}, r"no setting retrieval\.vectors\.kind"),
        ({"retrieval": 1}, "do not go together"),
    ):
        with pytest.raises(ConfigError, match=told):
            changed_settings(settings(), values)


def test_an_index_that_cannot_be_built_says_so(tmp_path: Path) -> None:
    # Four chunks cannot train 256 codes.
    with pytest.raises(StoreError, match="kind ivfpq cannot be built"):
        with_candidates(tmp_path, lambda c: c.observe({KIND: "ivfpq"}, QUESTIONS), HashEmbedder())


def test_settings_by_path_come_back_as_they_were() -> None:
    given = settings(("retrieval.fusion.ceiling", 0.5))
    values = flat(given)
    assert values["retrieval.fusion.ceiling"] == 0.5
    assert changed_settings(given, {}) == given
    assert changed_settings(given, values) == given


async def test_a_text_is_embedded_once_and_its_cost_remembered() -> None:
    inner = HashEmbedder()
    embedder = RememberingEmbedder(inner, SystemClock())
    await embedder.prepare(["问题", "question", "问题"])
    assert len(inner.calls) == 2
    first = await embedder.embed(["question", "问题"], kind="query")
    assert len(inner.calls) == 2
    assert first.data == (await inner.embed(["question", "问题"], kind="query")).data
    assert embedder.asked == {"问题", "question"}
    assert embedder.spent.keys() == {"问题", "question"}


def test_questions_without_a_document_are_left_out() -> None:
    asked = QuestionSet(
        "s",
        (
            Asked("1", "问", "zh", {"休假.md": 1, "b": 0}),
            Asked("2", "no answer", "en", answerable=False),
        ),
    )
    assert labelled(asked) == (Question("1", "问", (Target("休假.md", 1),)),)


async def test_without_labels_nothing_can_be_tuned_on(tmp_path: Path) -> None:
    parts = CorpusParts((), settings(), None, None, tmp_path, SystemClock())
    candidates = Candidates(parts)
    asked = QuestionSet("s", (Asked("2", "no answer", "en"),))
    with pytest.raises(InvalidRequest, match="leave --queries out"):
        await Labels(candidates, asked, 100).run(Settled())
    await candidates.close()


def test_documents_are_those_named_else_the_sets_else_the_kbs(tmp_path: Path) -> None:
    folder = tmp_path / "手册"
    folder.mkdir()
    (folder / "a.md").write_text("# A\n\ntext\n", encoding="utf-8")
    config = tmp_path / "forebay.toml"
    config.write_text(f"[knowledge.one]\npaths = [{json.dumps(str(folder))}]\n", encoding="utf-8")
    configured = load_settings(config, {}, {})[0]
    named = uploads_of(Settings(), TuneWords(paths=[folder]), None)
    assert [upload.document_id for upload in named] == ["手册/a.md"]
    assert uploads_of(configured, TuneWords(), None) == named
    with pytest.raises(InvalidRequest, match="name files or folders"):
        uploads_of(Settings(), TuneWords(), None)
    with pytest.raises(InvalidRequest, match="no file or folder"):
        uploads_of(settings(), TuneWords(paths=[tmp_path / "none"]), None)


def test_a_space_from_a_file_names_settings(tmp_path: Path) -> None:
    file = tmp_path / "space.toml"
    file.write_text(
        '[[parameters]]\ntype = "whole"\npath = "retrieval.candidates"\nlow = 10\nhigh = 50\n',
        encoding="utf-8",
    )
    assert space_of(file, settings()) == (Whole("retrieval.candidates", 10, 50),)
    file.write_text(file.read_text(encoding="utf-8").replace("candidates", "candidate"), "utf-8")
    with pytest.raises(ConfigError, match=r"no setting retrieval\.candidate;"):
        space_of(file, settings())
    file.write_text("[[parameters]]\ntype = 1\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="no search space"):
        space_of(file, settings())
    with pytest.raises(ConfigError, match="cannot read"):
        space_of(tmp_path / "none.toml", settings())


def edges(parameter: Parameter) -> Sequence[Value]:
    """Values that a parameter may draw: all of a few, else both bounds."""
    if isinstance(parameter, Choice):
        return parameter.values
    return (parameter.low, parameter.high)


@pytest.mark.parametrize("embedded", [True, False])
def test_every_value_of_the_usual_space_is_a_setting(embedded: bool) -> None:
    for parameter in default_space(
        Corpus(10**6, 8192, embedded=embedded, rerankers=("off", "light", "cascade"))
    ):
        for value in edges(parameter):
            changed_settings(settings(), {parameter.path: value})


def test_auto_is_searched_from_the_kind_it_stands_for() -> None:
    base = Figures(0.5, 1.0, 1.0, 1.0, 1, chunks=9000, words_only_share=0.0)
    corpus = Corpus(0, 8192)
    start = beginning(settings(), base, None, corpus).start
    assert start[KIND] == "hnsw"
    assert start["ingest.chunks.max_tokens"] == 256
    told = settings(("rerank.backend", "auto"))
    with_light = Corpus(0, 8192, rerankers=("off", "light"))
    assert beginning(told, base, None, with_light).start["rerank.backend"] == "light"
    small = msgspec.structs.replace(base, chunks=100)
    assert KIND not in beginning(settings(), small, None, corpus).start


class KnowingJudge:
    """Calls relevant what holds the word that the question ends with."""

    def __init__(self) -> None:
        self.asked = 0

    async def judge(self, question: Asked, passages: Sequence[Passage]) -> Judgement:
        self.asked += 1
        if question.text == "broken":
            raise Unavailable("裁判不在")
        word = question.text.split()[-1]
        scores = [0.9 if word in passage.text else 0.1 for passage in passages]
        return Judgement(tuple(Verdict(score, score) for score in scores))


def test_a_judge_labels_what_the_ways_of_searching_find(tmp_path: Path) -> None:
    asked = QuestionSet(
        "s",
        (
            Asked("en", "how much may a hotel cost 120", "en"),
            Asked("zh", "女职工休假多少天 一百五十八天", "zh"),
            Asked("none", "where is the moon", "en"),
            Asked("bad", "broken", "en"),
        ),
    )
    judge = KnowingJudge()

    async def work(candidates: Candidates) -> tuple[Settled, list[dict[str, float]], int]:
        opened = OpenJudge(judge, dict)
        reports = []
        for _ in range(2):
            labels = Labels(candidates, asked, 100, (opened, tmp_path / "j.labels"))
            settled, report = await labels.run(Settled())
            reports.append(report.after)
        assert labels.source == "judge"
        return settled, reports, judge.asked

    settled, reports, times = with_candidates(tmp_path / "work", work, HashEmbedder())
    found = {question.id: question.targets for question in settled.questions}
    assert found.keys() == {"en", "zh"}
    assert [target.document_id for target in found["zh"]] == ["休假.md"]
    assert found["en"][0].grade == 3 and found["en"][0].start is not None
    assert reports == [{"judged": 3, "failed": 1, "labelled": 2}, {"labelled": 2}]
    assert times == 4


def test_a_judge_that_is_never_there_ends_the_search(tmp_path: Path) -> None:
    asked = QuestionSet("s", tuple(Asked(str(n), "broken", "en") for n in range(9)))

    async def work(candidates: Candidates) -> None:
        await Labels(candidates, asked, 100, (OpenJudge(KnowingJudge(), dict), None)).run(Settled())

    with pytest.raises(Unavailable, match="裁判不在"):
        with_candidates(tmp_path, work, HashEmbedder())


def test_a_judge_needs_questions_and_a_model() -> None:
    delivery = Delivery(Output(as_json=True), None, None, "en")
    with pytest.raises(ConfigError, match="name them with --queries"):
        tune(None, {}, (TuneWords(), JudgeWords(judge="http://x", judge_model="m")), delivery)
    with pytest.raises(ConfigError, match="--judge-model"):
        tune(None, {}, (TuneWords(), JudgeWords(judge="http://x")), delivery)


@pytest.mark.parametrize(
    ("advice", "told"),
    [("take", "# Chosen"), ("cheaper", "latency or memory only"), ("keep", "not advised")],
)
def test_a_patch_says_whether_it_is_advised(advice: Advice, told: str) -> None:
    patch = patch_of({"retrieval.candidates": 50}, {"retrieval.candidates": 60}, advice)
    head, body = patch.split("\n\n")
    assert told in head and all(line.startswith("# ") for line in head.splitlines())
    assert "candidates = 60" in body
    assert "Nothing to change" in patch_of({"a.b": 1}, {"a.b": 1}, advice)
