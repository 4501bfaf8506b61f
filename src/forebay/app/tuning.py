"""``forebay tune``: settings that suit the user's own documents and questions."""

from __future__ import annotations

import asyncio
import tempfile
import tomllib
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from forebay.app.bearer_keys import embedding_keys
from forebay.app.candidates import Candidates, CorpusParts, Upload, changed_settings, flat
from forebay.app.counting import chunk_counter
from forebay.app.delivery import Delivery
from forebay.app.judging import JudgeWords, OpenJudge, open_judge
from forebay.app.operations import load, run
from forebay.app.output import Output
from forebay.app.settings import Settings, environment, model_cache
from forebay.app.tuning_answers import answers_changed, to_ask, worth_asking
from forebay.app.words import Words
from forebay.embedding.opening import open_embedder
from forebay.kernel.clock import SystemClock
from forebay.kernel.errors import ConfigError, ForebayError, InvalidRequest, Unavailable
from forebay.lab.evaluate.datasets import QuestionSet, load_set
from forebay.lab.evaluate.judging.panel import Judging
from forebay.lab.measure.machine import describe_commit, describe_machine, describe_versions
from forebay.lab.tune.labels import Panel, label_by_judge
from forebay.lab.tune.objectives import Figures
from forebay.lab.tune.patch import changed, write_patch
from forebay.lab.tune.pipeline import Settled, StepReport, run_pipeline
from forebay.lab.tune.questions import Question, Target, asked_by_headings, sample
from forebay.lab.tune.result import Advice, Source, TuneResult
from forebay.lab.tune.retrieval import Beginning, RetrievalTuning, TuneRetrieval
from forebay.lab.tune.space import (
    Corpus,
    Parameter,
    SpaceFile,
    Value,
    Values,
    check_space,
    default_space,
)
from forebay.lab.tune.study import StudySettings, Trial, open_optuna
from forebay.pipeline.folders import scan
from forebay.retrieval.segments import choose_kind

_KIND = "retrieval.vector.kind"
_RERANKER = "rerank.backend"
_WAYS: tuple[Values, ...] = (
    {},
    {"retrieval.early_exit_confidence": 2.0, "retrieval.fusion.ceiling": 1.0},
    {"retrieval.early_exit_confidence": 2.0, "retrieval.fusion.ceiling": 0.0},
)
"""As configured, mostly by words, mostly by vectors: a judge sees what each finds."""

_NOTES: Mapping[Advice, tuple[str, ...]] = {
    "take": ("Chosen by forebay tune; add it to forebay.toml.",),
    "cheaper": (
        "Chosen by forebay tune; quality is within noise on the held-out questions:",
        "add it to forebay.toml for its latency or memory only.",
    ),
    "keep": (
        "Tried by forebay tune, not advised: keep the settings in force. What speaks against it on",
        "questions that nobody tuned on is in the report.",
    ),
}


class TuneWords(Words, frozen=True, kw_only=True):
    """What the command line says of a search."""

    paths: list[Path] | None = None
    queries: Path | None = None
    kb: str | None = None
    trials: int = 40
    budget_s: float | None = None
    seed: int = 1
    sampler: str = "tpe"
    latency: str = "cpu"
    depth: int = 10
    quality_loss: float = 0.02
    limit: int = 200
    repeats: int = 3
    space: Path | None = None
    study: Path | None = None
    patch: Path | None = None
    svg: Path | None = None
    answers: bool = True


def tune(
    config: Path | None,
    flags: dict[str, Any],
    told: tuple[TuneWords, JudgeWords],
    delivery: Delivery,
) -> int:
    """Search, write the patch and the reports, say what came of it."""
    words, judging = told
    open_optuna()
    judging.check()
    if judging.wanted and words.queries is None:
        raise ConfigError("a judge is asked about questions: name them with --queries.")
    if words.kb is not None and words.paths:
        raise ConfigError("name files and folders to tune on, or a knowledge base by --kb: one.")
    study = _study(words)
    settings = load(config, flags)
    for path in (words.patch, words.svg, words.study):
        if path is not None and (path.is_dir() or not path.resolve().parent.is_dir()):
            raise ConfigError(f"{path} cannot be written: name a file in a folder that exists.")
    result = run(_tune(settings, told, study, delivery.output))
    return _deliver(result, words, delivery)


async def _tune(
    settings: Settings, told: tuple[TuneWords, JudgeWords], study: StudySettings, output: Output
) -> TuneResult:
    words, judging = told
    asked = None if words.queries is None else await asyncio.to_thread(load_set, words.queries)
    uploads = await asyncio.to_thread(_uploads, settings, words, asked)
    clock = SystemClock()
    embedding = await asyncio.to_thread(embedding_keys, settings.embedding, environment())
    embedder = await open_embedder(embedding, cache=model_cache(settings), clock=clock)
    with tempfile.TemporaryDirectory(prefix="forebay-tune-") as folder:
        candidates = Candidates(
            CorpusParts(
                uploads=uploads,
                settings=settings,
                embedder=embedder,
                counter=chunk_counter(settings.embedding, model_cache(settings)),
                folder=Path(folder),
                clock=clock,
                headings_hidden=asked is None,
                repeats=words.repeats,
            )
        )
        try:
            async with open_judge(judging) as judge:
                job = _Job(settings, words, study, candidates, asked, judge)
                result, tuned = await _search(job, output)
        finally:
            await candidates.close()
            if embedder is not None:
                await embedder.close()
    if asked is not None and words.answers and worth_asking(settings, result):
        files = words.paths or ([] if asked.documents else _paths_of(settings, words))
        some = to_ask(asked, tuned, words.limit)
        output.note("asking for answers, before and after")
        try:
            changes = await answers_changed(settings, result.after, some, files, words.seed)
            result = msgspec.structs.replace(result, answers=changes)
        except ForebayError as error:
            # What was found in an hour is not lost for it.
            output.alarm(f"answers were not compared: {error.message}")
    before = {**flat(settings), **result.before}
    patch = _patch(before, result.after, result.advised)
    return msgspec.structs.replace(result, patch=patch, advice=result.advised)


class _Job(msgspec.Struct, frozen=True):
    """What one search works with."""

    settings: Settings
    words: TuneWords
    study: StudySettings
    candidates: Candidates
    asked: QuestionSet | None
    judge: OpenJudge | None = None


async def _search(job: _Job, output: Output) -> tuple[TuneResult, tuple[Question, ...]]:
    """What was found, its patch still to be written, and the questions, both halves."""
    settings, words, study, asked = job.settings, job.words, job.study, job.asked
    clock = SystemClock()
    given = await asyncio.to_thread(_space, words.space, settings)
    kept = None if words.study is None else words.study.with_name(words.study.name + ".labels")
    judge = None if job.judge is None else (job.judge, kept)
    corpus = Corpus(
        chunks=0,
        exact_rows_max=settings.retrieval.vector.exact_rows_max,
        headings_hidden=asked is None,
        embedded=settings.embedding.backend != "none",
        rerankers=await job.candidates.rerankers(),
    )
    labels = Labels(job.candidates, asked, words.limit, judge)
    with output.progress() as progress:
        bar = progress.add_task("tuning", total=study.trials)

        def moved(trial: Trial) -> None:
            progress.update(bar, completed=trial.number + 1)

        step = TuneRetrieval(
            RetrievalTuning(
                evaluator=job.candidates,
                begin=lambda base: _beginning(settings, base, given, corpus),
                settings=study,
                clock=clock,
                quality_loss=words.quality_loss,
                journal=words.study,
                progress=moved,
            )
        )
        settled, reports = await run_pipeline((labels, step), Settled(), clock)
    assert step.found is not None
    assert step.beginning is not None
    half = len(settled.questions) - step.found.held_out.questions
    found = TuneResult(
        corpus=_named(words, asked),
        source=labels.source,
        tuning_questions=half,
        settings=study,
        quality_loss=words.quality_loss,
        space=step.beginning.space,
        before=step.beginning.start,
        found=step.found,
        patch="",
        steps=reports,
        machine=describe_machine(),
        commit=describe_commit(),
        versions=describe_versions("optuna", "faiss-cpu", "tantivy", "numpy"),
    )
    return found, settled.questions


class Labels:
    """The first step: questions with labels, as given, by a judge, or made of headings.

    What a judge says is kept in the file beside it: asked again, it might say something else.
    """

    name = "labels"

    def __init__(
        self,
        candidates: Candidates,
        asked: QuestionSet | None,
        most: int,
        judge: tuple[OpenJudge, Path | None] | None = None,
    ) -> None:
        self._candidates = candidates
        self._asked = asked
        self._most = most
        self._judge = judge
        self.source: Source = "headings" if asked is None else "labels" if not judge else "judge"

    async def run(self, settled: Settled) -> tuple[Settled, StepReport]:
        """Return the questions that have a target, at most so many."""
        before: dict[str, float]
        after: dict[str, float] = {}
        if self._asked is None:
            found = asked_by_headings(await self._candidates.documents())
            before = {"questions": len(found)}
        elif self._judge is None:
            found = labelled(self._asked)
            before = {"questions": len(self._asked.questions)}
        else:
            found, before, after = await self._by_judge(self._asked, *self._judge)
        if not found:
            raise InvalidRequest(
                "no question has a document that answers it; give `documents` with each question, "
                "or leave --queries out to ask by the documents' own headings."
            )
        chosen = sample(found, self._most)
        report = StepReport(self.name, before, {**after, "labelled": len(chosen)})
        return msgspec.structs.replace(settled, questions=chosen), report

    async def _by_judge(
        self, asked: QuestionSet, judge: OpenJudge, file: Path | None
    ) -> tuple[tuple[Question, ...], dict[str, float], dict[str, float]]:
        chosen = sorted(asked.questions, key=lambda each: zlib.crc32(each.id.encode()))
        some = msgspec.structs.replace(asked, questions=tuple(chosen[: self._most]))
        before: dict[str, float] = {
            "questions": len(asked.questions),
            "labelled": len(labelled(some)),
        }
        if file is not None and await asyncio.to_thread(file.exists):
            kept = await asyncio.to_thread(file.read_bytes)
            return msgspec.json.decode(kept, type=tuple[Question, ...]), before, {}
        panel = Panel(judge.judge, Judging(), _WAYS)
        found, judged = await label_by_judge(some, self._candidates, panel)
        if judged.gave_up:
            raise Unavailable(f"the judge cannot be asked: {judged.error}")
        if file is not None:
            await asyncio.to_thread(file.write_bytes, msgspec.json.encode(found))
        return found, before, {"judged": len(judged.questions), "failed": judged.failed}


def labelled(asked: QuestionSet) -> tuple[Question, ...]:
    """The questions of a set that name a relevant document."""
    found = []
    for question in asked.questions:
        targets = tuple(
            Target(document, grade)
            for document, grade in sorted(question.relevance.items())
            if grade > 0
        )
        if targets:
            found.append(Question(question.id, question.text, targets))
    return tuple(found)


def _study(words: TuneWords) -> StudySettings:
    for option, word, known in (
        ("sampler", words.sampler, ("tpe", "nsga2")),
        ("latency", words.latency, ("cpu", "p99")),
    ):
        if word not in known:
            raise ConfigError(
                f"an option cannot be read: --{option} is {' or '.join(known)}, not {word!r}."
            )
    given = {
        "trials": words.trials,
        "budget_s": words.budget_s,
        "seed": words.seed,
        "sampler": words.sampler,
        "objectives": {"depth": words.depth, "latency": words.latency},
    }
    try:
        return msgspec.convert(given, StudySettings)
    except msgspec.ValidationError as error:
        raise ConfigError(f"an option cannot be read: {error}.") from error


def _uploads(settings: Settings, words: TuneWords, asked: QuestionSet | None) -> list[Upload]:
    """The documents: those named, else the set's own, else those of the knowledge base."""
    if words.paths:
        return _files(words.paths, settings)
    if asked is not None and asked.documents:
        return [
            Upload(each.id, f"{number}.txt", each.text.encode() or b" ", each.title)
            for number, each in enumerate(asked.documents)
        ]
    return _files(_paths_of(settings, words), settings)


def _paths_of(settings: Settings, words: TuneWords) -> list[Path]:
    known = settings.knowledge
    name = words.kb or (next(iter(known)) if len(known) == 1 else None)
    if name is None or name not in known:
        raise InvalidRequest(
            "say which documents to tune on: name files or folders, or --kb with one of "
            f"{', '.join(known) or 'the configured knowledge bases'}."
        )
    return [Path(path) for path in known[name].paths]


def _files(paths: Sequence[Path], settings: Settings) -> list[Upload]:
    uploads: list[Upload] = []
    for path in paths:
        if not path.exists():
            raise InvalidRequest(f"there is no file or folder {path}.", param="path")
        for found in scan(path.resolve(), settings.ingest.folders):
            if not found.reason:
                file = Path(found.path)
                uploads.append(Upload(found.document_id, file.name, file.read_bytes()))
    if not uploads:
        raise InvalidRequest(f"{', '.join(map(str, paths))} holds no document; name another.")
    return uploads


def _space(file: Path | None, settings: Settings) -> tuple[Parameter, ...] | None:
    """The space a file says; None: the one that suits the corpus."""
    if file is None:
        return None
    try:
        told = tomllib.loads(file.read_text(encoding="utf-8"))
        parameters = msgspec.convert(told, SpaceFile).parameters
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise ConfigError(f"{file} is no search space: {error}.") from error
    check_space(parameters)
    for parameter in parameters:
        changed_settings(settings, {parameter.path: flat(settings).get(parameter.path, "")})
    return parameters


def _beginning(
    settings: Settings, base: Figures, given: tuple[Parameter, ...] | None, corpus: Corpus
) -> Beginning:
    """What may change on this corpus, and where the settings in force stand in it."""
    vector = settings.retrieval.vector
    space = given or default_space(msgspec.structs.replace(corpus, chunks=base.chunks))
    values = flat(settings)
    start: dict[str, Value] = {
        parameter.path: values[parameter.path] for parameter in space if parameter.path in values
    }
    if start.get(_KIND) == "auto":
        start[_KIND] = choose_kind(base.chunks, vector)
    if start.get(_RERANKER) == "auto":
        start[_RERANKER] = "light" if corpus.rerankers else "off"
    return Beginning(tuple(space), start)


def _patch(before: dict[str, Value], after: dict[str, Value], advice: Advice) -> str:
    if not changed(before, after):
        return "# Nothing to change: the settings in force are at the knee already.\n"
    return write_patch(before, after, _NOTES[advice])


def _named(words: TuneWords, asked: QuestionSet | None) -> str:
    if words.paths:
        return ", ".join(path.name or str(path) for path in words.paths)
    if asked is not None and asked.documents:
        return asked.name
    return words.kb or "the knowledge base"


def _deliver(result: TuneResult, words: TuneWords, delivery: Delivery) -> int:
    from forebay.lab.tune.report import (
        answers_tables,
        change_sentence,
        held_out_table,
        tuning_words,
        write_tuning_report,
        write_tuning_svg,
    )

    texts = tuning_words(delivery.language)
    if words.patch is not None:
        words.patch.write_text(result.patch, encoding="utf-8")
    if words.svg is not None:
        write_tuning_svg(result, words.svg, delivery.language)

    def tell(output: Output) -> None:
        table = held_out_table(result, texts)
        output.line(
            texts("tune_asked").format(
                tuning=result.tuning_questions, held=result.found.held_out.questions
            )
        )
        output.table(table.columns, table.rows)
        output.line(change_sentence(result, texts))
        for answers in answers_tables(result, texts):
            output.line()
            output.line(answers.caption)
            output.table(answers.columns, answers.rows)
        output.line()
        output.line(result.patch.rstrip())
        for path in (words.patch, words.svg):
            if path is not None:
                output.note(f"written: {path}")

    delivery.give(
        msgspec.json.encode(result),
        lambda path, language: write_tuning_report(result, path, language),
        tell,
    )
    if result.warning:
        delivery.output.alarm(f"{texts(result.warning)}: {change_sentence(result, texts)}")
    return 0
