"""What ``forebay eval`` puts questions to: a store of its own, a knowledge base, or a server."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from forebay.app.keys import read_key
from forebay.app.operations import COMMAND_DEADLINE_S, context, load
from forebay.app.output import Output
from forebay.app.settings import Settings
from forebay.app.words import Words
from forebay.context import language_of
from forebay.kernel.clock import Deadline, SystemClock
from forebay.kernel.context import Principal, RequestContext
from forebay.kernel.errors import ConfigError, ForebayError, NotFound, first_error
from forebay.kernel.stages import Message, SearchRequest
from forebay.lab.evaluate.datasets import Document, Question, QuestionSet
from forebay.lab.evaluate.remote import Endpoint, open_remote
from forebay.lab.evaluate.target import Cited, Found, Passage, Said, Target
from forebay.pipeline.folders import FolderRequest
from forebay.pipeline.messages import AnswerDelta, AnswerEnd, Answering, AnswerRequest, Upload

PUT_AT_ONCE = 32
SENTENCES_WITHIN_S = 3600.0
PUT_WITHIN_S = 24 * 3600.0
NO_ANSWER_COUNT = 100
PATIENCE_MS = 60_000


class EvalWords(Words, frozen=True, kw_only=True):
    """What the command line says of an evaluation."""

    sets: list[Path]
    documents: list[Path] | None = None
    no_answer: list[Path] | None = None
    no_answer_count: int = NO_ANSWER_COUNT
    limit: int | None = None
    url: str | None = None
    kb: str | None = None
    put: bool = False
    key_file: Path | None = None
    store: Path | None = None
    top_k: int = 20
    search_only: bool = False
    patient: bool = False
    at_once: int = 1
    timeout: float = 60.0
    seed: int = 1
    config: Path | None = None


Opener = Callable[[QuestionSet], Any]
"""From a set to the target that its questions are put to, its documents indexed."""


@asynccontextmanager
async def open_targets(
    words: EvalWords, flags: dict[str, Any], output: Output
) -> AsyncIterator[Opener]:
    if words.url is not None:
        endpoint = Endpoint(url=words.url, kb=words.kb or "", api_key=read_key(words.key_file))
        async with open_remote(endpoint) as remote:
            await remote.reach()
            if not words.put:
                await remote.confirm_kb()

            async def at_server(asked: QuestionSet) -> Target:
                if words.put:
                    await _put_all(asked.documents, remote.put, asked.name, output)
                return remote

            yield at_server
        return
    settings = _uncached(load(words.config, flags))
    if words.patient:
        settings = _patient(settings)
    async with local_targets(words, settings, output) as local:
        yield local


def as_measured(settings: Settings) -> Settings:
    """Settings under which the same questions find the same things on any machine."""
    return _patient(_uncached(settings))


def _uncached(settings: Settings) -> Settings:
    """Without the tiers that would give an answer the vector its search has just made."""
    replace, cache = msgspec.structs.replace, settings.cache
    embedding = replace(cache.embedding, enabled=False)
    retrieval = replace(cache.retrieval, enabled=False)
    return replace(settings, cache=replace(cache, embedding=embedding, retrieval=retrieval))


def _patient(settings: Settings) -> Settings:
    """Without the time-outs and breakers of slow parts: the same questions find the same things
    on a fast and on a busy machine.
    """
    replace, retrieval = msgspec.structs.replace, settings.retrieval
    ladder = replace(
        retrieval.ladder,
        vector=replace(retrieval.ladder.vector, latency_ms=0.0, error_rate=1.0),
        words=replace(retrieval.ladder.words, latency_ms=0.0, error_rate=1.0),
    )
    retrieval = replace(
        retrieval,
        vector_timeout_ms=PATIENCE_MS,
        words_timeout_ms=PATIENCE_MS,
        ladder=ladder,
    )
    return replace(settings, retrieval=retrieval)


@asynccontextmanager
async def local_targets(
    words: EvalWords, settings: Settings, output: Output
) -> AsyncIterator[Opener]:
    """Targets in this process: the configured store as it is, or a store for the documents."""
    from forebay.app.composition import open_answerer, open_reading
    from forebay.app.runtime import open_process

    if words.kb is not None:
        if words.store is not None:
            settings = _stored_in(settings, str(words.store))
        async with open_reading(settings) as answerer:
            if words.kb not in answerer.kb_names():
                raise NotFound(f"there is no knowledge base {words.kb!r} in the store.")

            async def existing(_: QuestionSet) -> Target:
                return LocalTarget(answerer.answering, words.kb or "")

            yield existing
        return
    with tempfile.TemporaryDirectory(prefix="forebay-eval-") as folder:
        # Documents of sets belong to no configured knowledge base, least of all to a shared one.
        settings = _stored_in(settings, str(words.store or folder))
        settings = msgspec.structs.replace(settings, knowledge={})
        async with (
            open_process(settings, write=True) as process,
            open_answerer(process) as answerer,
        ):
            indexing = Indexing(process.writing, process.reading.reader, words, output)

            async def indexed(asked: QuestionSet) -> Target:
                kb = await indexing.of(asked)
                quoted = not words.search_only and is_across(asked)
                ordered = settings.rerank.backend != "off"
                if process.writing is not None and (quoted or ordered):
                    await process.writing.wait_sentences(kb, SENTENCES_WITHIN_S)
                return LocalTarget(answerer.answering, kb)

            yield indexed


def is_across(asked: QuestionSet) -> bool:
    """Whether a set may ask in another language than its documents', as far as it brings them."""
    there = {language_of(document.text) for document in asked.documents}
    return not there or any(language_of(one.text) not in there for one in asked.questions)


def _stored_in(settings: Settings, folder: str) -> Settings:
    store = msgspec.structs.replace(settings.store, path=folder)
    return msgspec.structs.replace(settings, store=store)


class LocalTarget:
    """The answering life of this process; nothing that was kept of earlier answers is used."""

    def __init__(self, answering: Answering, kb: str) -> None:
        self._answering = answering
        self._kb = kb

    async def search(self, question: Question, top_k: int) -> Found:
        """Retrieve as the server would."""
        request = SearchRequest(self._kb, question.text, top_k)
        found = await self._answering.search(_context(question), request)
        return Found(
            tuple(
                Passage(hit.chunk.document_id, hit.chunk.text, hit.score, hit.chunk.title)
                for hit in found.hits
            ),
            found.rung,
        )

    async def answer(self, question: Question) -> Said:
        """Answer as the server would."""
        request = AnswerRequest(self._kb, (Message("user", question.text),))
        text: list[str] = []
        async for event in self._answering.answer(_context(question), request):
            if isinstance(event, AnswerDelta):
                text.append(event.text)
            else:
                return _said("".join(text), event)
        raise ForebayError("the answer ended before it was complete.")


class Indexing:
    """Brings the documents of sets into knowledge bases of their own, each once."""

    def __init__(
        self, writing: Any, reader: Any, words: EvalWords, output: Output, *, or_kb: bool = True
    ) -> None:
        self._writing = writing
        self._or_kb = or_kb
        self._reader = reader
        self._words = words
        self._output = output

    async def of(self, asked: QuestionSet) -> str:
        """The kb that holds the documents of a set, vectors included."""
        paths = self._words.documents or []
        if not paths and not asked.documents:
            other = ", or the knowledge base that holds them with --kb" if self._or_kb else ""
            raise ConfigError(
                f"{asked.name} brings no documents; name some with --documents{other}."
            )
        kb = f"eval-{asked.corpus}" if not paths else "eval-documents"
        await self._writing.ensure(kb)
        for path in paths:
            request = FolderRequest(kb=kb, path=str(path.resolve()), remove_vanished=False)
            await self._writing.ingest(request, _quiet)
        if not paths and (await self._held(kb)) < len(asked.documents):

            async def put(document: Document) -> None:
                await self._writing.put(
                    kb,
                    Upload(
                        document.id,
                        document.text.encode(),
                        f"{asked.name}.txt",
                        "text/plain; charset=utf-8",
                        title=document.title,
                    ),
                    "committed",
                    Deadline.after(PUT_WITHIN_S, SystemClock()),
                )

            await _put_all(asked.documents, put, asked.name, self._output)
        await self._writing.wait_embedded(kb)
        return kb

    async def _held(self, kb: str) -> int:
        info = await asyncio.to_thread(self._reader.kb, kb)
        return int(info.documents)


async def _put_all(
    documents: Sequence[Document],
    put: Callable[[Document], Any],
    name: str,
    output: Output,
) -> None:
    """Put documents, a bounded number at a time."""
    waiting = iter(documents)
    with output.progress() as progress:
        bar = progress.add_task(f"{name}: documents", total=len(documents))

        async def some() -> None:
            for document in waiting:
                await put(document)
                progress.advance(bar)

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(PUT_AT_ONCE, len(documents))):
                    group.create_task(some())
        except BaseExceptionGroup as errors:
            raise first_error(errors) from None


async def _quiet(_: object) -> None:
    """What becomes of each file is not told."""


def _context(question: Question) -> RequestContext:
    plain = context(SystemClock())
    groups = None if question.groups is None else frozenset(question.groups)
    return RequestContext(
        request_id=plain.request_id,
        principal=Principal(admin=True, groups=groups),
        deadline=Deadline.after(COMMAND_DEADLINE_S, plain.clock),
        clock=plain.clock,
        no_cache=True,
    )


def _said(text: str, end: AnswerEnd) -> Said:
    cited = tuple(Cited(one.index, one.document_id, one.text) for one in end.citations)
    return Said(text, cited, end.refused, end.rung, end.unsure)
