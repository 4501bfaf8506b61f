"""``forebay distill``: gathers candidates, asks a teacher, trains a reranker on them.

What the light reranker and late interaction have in common is here, and the light one;
``distilling_late`` is the other.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec
import numpy as np

from forebay.app.eval_targets import SENTENCES_WITHIN_S, EvalWords, Indexing
from forebay.app.judging import JudgeWords, open_judge
from forebay.app.keys import read_key
from forebay.app.nearest import NearestSentences, nearest_sentences
from forebay.app.operations import load, run
from forebay.app.output import Output
from forebay.app.reranking import sentences_of
from forebay.app.runtime import Reading
from forebay.app.settings import Settings
from forebay.app.words import Words
from forebay.kernel.clock import Deadline, SystemClock
from forebay.kernel.context import Principal, RequestContext
from forebay.kernel.documents import Hit
from forebay.kernel.errors import ConfigError
from forebay.kernel.stages import Embedder, Reranker, Retriever, SearchRequest, SearchResult
from forebay.lab.distill.light import LightTraining, Parameters, train
from forebay.lab.distill.light_data import (
    LightRow,
    Ordered,
    Ordering,
    curves_of,
    examples_of,
    is_held_out,
    measured,
    ndcg_of,
    scores_of,
)
from forebay.lab.distill.light_export import LightDescription, light_graph
from forebay.lab.evaluate.datasets import Question, QuestionSet, load_set
from forebay.lab.evaluate.target import Passage
from forebay.pipeline.reranking import text_of
from forebay.rerank.cross_encoder import CrossEncoder, CrossEncoderReranker
from forebay.rerank.endpoint import EndpointReranker
from forebay.rerank.features import FEATURES_VERSION, candidates_of
from forebay.rerank.sentences import SentenceReranker
from forebay.rerank.settings import CrossEncoderSettings, EndpointSettings

Row = TypeVar("Row")
Teacher = Callable[[Question, Sequence[Hit]], Awaitable[Sequence[float]]]
"""From a question and its candidates to one relevance in 0..1 each."""
RowOf = Callable[[str, Question, SearchResult], Awaitable[Row | None]]
"""From a set's name, a question and what was found to what is learnt from; None: nothing."""
OpenRows = Callable[[Reading, Teacher | None], RowOf[Row]]
TEACHERS = ("labels", "endpoint", "onnx", "judge", "sentences")
OWN_KNOWLEDGE = ("labels", "states")
"""Teachers that are asked nothing while candidates are gathered."""
ASK_S = 600.0
LEAST_ROWS = 8
TEMPERATURE = 0.7
"""A teacher's shares over thirty candidates are flat. Chosen by how well students of one half of
the training questions foretell the teacher's first on the other (benchmarks/rerank)."""
_NEVER = 1e-6


class DistillWords(Words, frozen=True, kw_only=True):
    """What the command line says of a distillation."""

    sets: list[Path]
    write: Path
    teacher: str = "labels"
    endpoint: str = ""
    model: str = ""
    key_file: Path | None = None
    logits: bool = False
    folder: Path | None = None
    documents: list[Path] | None = None
    store: Path | None = None
    limit: int | None = None
    candidates: int = 30
    epochs: int | None = None
    temperature: float | None = None
    seed: int = 7
    config: Path | None = None


class Taught(Ordered, Protocol):
    """A question's candidates and what a teacher said of them, as logits."""

    @property
    def teacher(self) -> Sequence[float]:
        """One a candidate; empty: none was asked."""
        ...


class Distilled(msgspec.Struct, frozen=True):
    """What came of it: nDCG@5 of held-out questions by set, and of the teacher where one spoke.

    ``alone``: the same in the new model's own order, where ``held_out`` is beside the search's.
    """

    file: str
    bytes: int
    trained_on: int
    held_out: dict[str, Ordering]
    teacher: dict[str, float]
    alone: dict[str, float] = {}


def distill(words: DistillWords, flags: dict[str, Any], output: Output) -> int:
    """Train, write the model, say how well it orders questions it was not trained on."""
    check(words, TEACHERS)
    sets = [load_set(path) for path in words.sets]
    rows, embedder = run(gathered(words, flags, sets, output, _light_rows, by_sentences=True))
    learning = [row for row in rows if not row.held_out]
    check_enough(sum(bool(row.teacher) or bool(row.relevant.any()) for row in learning))
    training = LightTraining(seed=words.seed)
    if words.epochs is not None:
        training = msgspec.structs.replace(training, epochs=words.epochs)
    with output.progress() as progress:
        bar = progress.add_task("training", total=training.epochs)
        model = train(
            examples_of(learning, words.temperature or TEMPERATURE),
            training,
            lambda *_: progress.advance(bar),
        )
    tell(_written(words, model, rows, embedder), output)
    return 0


def check_enough(learning: int) -> None:
    """``ConfigError`` unless ``learning`` questions are enough."""
    if learning < LEAST_ROWS:
        raise ConfigError(
            f"fewer than {LEAST_ROWS} questions have something to learn from; give more, or a "
            "teacher that needs no labels (--teacher)."
        )


def reservations(found: Distilled) -> list[str]:
    """Why the new model should not be served, in sentences."""
    return [
        f"The new model orders the held-out questions of {name} worse than the search does: do "
        "not serve it; train it on more questions or by another teacher."
        for name, one in found.held_out.items()
        if one.high < 0
    ]


def check(words: DistillWords, teachers: Sequence[str]) -> None:
    """``ConfigError`` for a teacher that is none of ``teachers``, or lacks its address."""
    if words.teacher not in teachers:
        raise ConfigError(f"--teacher is one of {', '.join(teachers)}, not {words.teacher!r}.")
    if words.teacher in ("endpoint", "judge") and not words.endpoint:
        raise ConfigError(f"--teacher {words.teacher} needs its address: --endpoint.")
    if words.teacher == "judge" and not words.model:
        raise ConfigError("--teacher judge asks a model: name it with --model.")
    if words.teacher == "onnx" and words.folder is None:
        raise ConfigError("--teacher onnx needs the folder of a cross-encoder: --folder.")


async def gathered(
    words: DistillWords,
    flags: dict[str, Any],
    sets: Sequence[QuestionSet],
    output: Output,
    rows_of: OpenRows[Row],
    *,
    by_sentences: bool = False,
) -> tuple[list[Row], str]:
    """What every question teaches, and whose vectors found it.

    ``by_sentences``: those of candidates' sentences are waited for, where any are made.
    """
    from forebay.app.runtime import open_process
    from forebay.retrieval import HybridRetriever

    settings = load(words.config, flags)
    with tempfile.TemporaryDirectory(prefix="forebay-distill-") as folder:
        store = msgspec.structs.replace(settings.store, path=str(words.store or folder))
        settings = msgspec.structs.replace(settings, store=store, knowledge={})
        async with open_process(settings, write=True) as process:
            reading = process.reading
            if reading.embedder is None:
                raise ConfigError("rerankers are trained on vectors: set embedding.backend.")
            asked = EvalWords(sets=words.sets, documents=words.documents)
            indexing = Indexing(process.writing, reading.reader, asked, output, or_kb=False)
            patient = msgspec.structs.replace(
                settings.retrieval, vector_timeout_ms=int(1e3 * ASK_S)
            )
            retriever = HybridRetriever(
                reading.indexes.get,
                reading.embedder,
                patient,
                reading.threads.executor,
                with_vectors=True,
            )
            rows: list[Row] = []
            async with _teacher(words, settings, reading.embedder) as teacher:
                row_of = rows_of(reading, teacher)
                for one in sets:
                    kb = await indexing.of(one)
                    if by_sentences and process.writing is not None:
                        await process.writing.wait_sentences(kb, SENTENCES_WITHIN_S)
                    rows += await _rows(retriever, kb, one, row_of, words, output)
            return rows, reading.embedder.spec.fingerprint


async def _rows(
    retriever: Retriever,
    kb: str,
    asked: QuestionSet,
    row_of: RowOf[Row],
    words: DistillWords,
    output: Output,
) -> list[Row]:
    rows: list[Row] = []
    questions = asked.questions[: words.limit]
    with output.progress() as progress:
        bar = progress.add_task(f"{asked.name}: candidates", total=len(questions))
        for question in questions:
            found = await retriever.retrieve(
                _context(), SearchRequest(kb, question.text, words.candidates)
            )
            row = await row_of(asked.name, question, found)
            if row is not None:
                rows.append(row)
            progress.advance(bar)
    return rows


def _light_rows(reading: Reading, teacher: Teacher | None) -> RowOf[LightRow]:
    return partial(_light_row, nearest_sentences(reading), teacher)


async def _light_row(
    sentences: NearestSentences | None,
    teacher: Teacher | None,
    group: str,
    question: Question,
    found: SearchResult,
) -> LightRow | None:
    """One question's candidates; None where words alone were sure and nothing is ordered anew."""
    if found.vectors is None or len(found.hits) < 2:
        return None
    vectors = found.vectors
    if sentences is not None:
        vectors = await asyncio.to_thread(sentences.of, found.hits, vectors)
    made = candidates_of(question.text, found.hits, vectors)
    return LightRow(
        group=group,
        question=question.text,
        features=made.features,
        query=made.query,
        vectors=made.vectors,
        documents=tuple(hit.chunk.document_id for hit in found.hits),
        relevance=question.relevance,
        held_out=is_held_out(question.text),
        teacher=await logits_of(teacher, question, found.hits),
    )


async def logits_of(
    teacher: Teacher | None, question: Question, hits: Sequence[Hit]
) -> tuple[float, ...]:
    """What the teacher says of each hit, in log-odds; empty without one."""
    told = () if teacher is None else await teacher(question, hits)
    kept = np.clip(np.array(told, np.float64), _NEVER, 1 - _NEVER)
    logits: list[float] = np.log(kept / (1 - kept)).tolist()
    return tuple(logits)


@asynccontextmanager
async def _teacher(
    words: DistillWords, settings: Settings, embedder: Embedder
) -> AsyncIterator[Teacher | None]:
    """Who is asked; None: labels."""
    if words.teacher in OWN_KNOWLEDGE:
        yield None
    elif words.teacher == "judge":
        named = JudgeWords(
            judge=words.endpoint, judge_model=words.model, judge_key_file=words.key_file
        )
        async with open_judge(named) as opened:
            assert opened is not None
            judge = opened.judge

            async def judged(question: Question, hits: Sequence[Hit]) -> Sequence[float]:
                passages = [
                    Passage(hit.chunk.document_id, hit.chunk.text, hit.score, hit.chunk.title)
                    for hit in hits
                ]
                judgement = await judge.judge(question, passages)
                return [verdict.corrected for verdict in judgement.verdicts]

            yield judged
    else:
        reranker = await _reranker(words, settings, embedder)

        async def scored(question: Question, hits: Sequence[Hit]) -> Sequence[float]:
            return await reranker.rerank(_context(), question.text, [text_of(hit) for hit in hits])

        try:
            yield scored
        finally:
            if isinstance(reranker, EndpointReranker | CrossEncoderReranker):
                await reranker.close()


async def _reranker(words: DistillWords, settings: Settings, embedder: Embedder) -> Reranker:
    if words.teacher == "endpoint":
        return EndpointReranker(
            EndpointSettings(
                base_url=words.endpoint,
                model=words.model,
                api_key=read_key(words.key_file) or "",
                logits=words.logits,
                timeout_s=ASK_S,
            )
        )
    if words.teacher == "onnx":
        folder = CrossEncoderSettings(path=str(words.folder), timeout_s=ASK_S, max_waiting=1024)
        return CrossEncoderReranker(await asyncio.to_thread(CrossEncoder, folder), folder)
    return SentenceReranker(embedder, sentences_of(settings))


def _context() -> RequestContext:
    clock = SystemClock()
    return RequestContext(
        request_id="distill",
        principal=Principal(admin=True),
        deadline=Deadline.after(ASK_S, clock),
        clock=clock,
    )


def _written(
    words: DistillWords, model: Parameters, rows: list[LightRow], embedder: str
) -> Distilled:
    curves = curves_of(model, [row for row in rows if not row.held_out])
    names = ", ".join(path.name for path in words.sets)
    description = LightDescription(
        embedder=embedder,
        features_version=FEATURES_VERSION,
        curves=curves,
        trained_on=f"{words.teacher} of {names}: questions whose text has an even CRC-32",
    )
    data = light_graph(model, description)
    words.write.write_bytes(data)
    held = [row for row in rows if row.held_out and any(row.relevance.values())]
    return Distilled(
        file=words.write.name,
        bytes=len(data),
        trained_on=sum(not row.held_out for row in rows),
        held_out=measured(held, scores_of(model, held), 5) if held else {},
        teacher=by_teacher(held),
    )


def by_teacher(rows: Sequence[Taught]) -> dict[str, float]:
    """nDCG@5 of held-out questions in the teacher's own order, by set."""
    found: dict[str, float] = {}
    for group in dict.fromkeys(row.group for row in rows if row.teacher):
        own = [row for row in rows if row.group == group]
        scores = [np.array(row.teacher, np.float32) for row in own]
        found[group] = round(float(ndcg_of(own, scores, 5).mean()), 4)
    return found


def tell(found: Distilled, output: Output) -> None:
    """Say what came of it, and what speaks against serving it."""
    _tell(found, output)
    for sentence in reservations(found):
        output.alarm(sentence)


def _tell(found: Distilled, output: Output) -> None:
    if output.as_json:
        output.result(found)
        return
    output.line(f"{found.file}: {found.bytes} bytes, trained on {found.trained_on} questions")
    rows = [
        (
            name,
            one.questions,
            f"{one.search:.3f}",
            f"{one.reranked:.3f}",
            f"{one.gain:+.3f} ({one.low:+.3f} to {one.high:+.3f})",
            *(f"{of[name]:.3f}" if name in of else "-" for of in (found.teacher, found.alone)),
        )
        for name, one in found.held_out.items()
    ]
    if rows:
        output.line("nDCG@5 of questions that were held out:")
        heads = ("set", "questions", "search", "reranked", "gain", "teacher", "alone")
        shown = len(heads) if found.alone else len(heads) - 1
        output.table(heads[:shown], [row[:shown] for row in rows])
