"""Indexes for tuning: built once for what must be built, searched with any settings.

What a candidate changes decides what it costs: other chunks mean parsing, embedding (of texts that
were not embedded before) and an index; another index kind means an index over the same record;
anything else is only another way to search.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np

from forebay.app.records import BlockingPool
from forebay.app.reranking import Reranking, open_dear, open_rankers
from forebay.app.settings import Settings
from forebay.ingest import ChunkSettings
from forebay.ingest.frames import CounterChoice
from forebay.ingest.pool import ParsePool
from forebay.kernel.clock import Clock, Deadline
from forebay.kernel.context import Principal, RequestContext
from forebay.kernel.documents import DocumentDraft, Vectors
from forebay.kernel.errors import ConfigError, ForebayError, InvalidRequest, StoreError
from forebay.kernel.stages import Embedder, EmbedderSpec, Reranker, Retriever, SearchRequest
from forebay.lab.tune.objectives import Observed
from forebay.lab.tune.questions import Place, Question, headings, without_headings
from forebay.lab.tune.space import Value, Values
from forebay.pipeline.embedding import passage_text
from forebay.pipeline.folders import (
    BatchParser,
    FolderRequest,
    ParseJob,
    content_hash,
    draft_of,
)
from forebay.pipeline.meaning import MeaningParser
from forebay.retrieval import HybridRetriever, KbIndex, search_executor
from forebay.store import StoreReader, StoreWriter

KB = "tuning"
_DOCUMENTS_AT_ONCE = 64
_TEXTS_AT_ONCE = 32
_QUERY_MS = 60_000
_BY_HEADING = ChunkSettings(max_tokens=4096, min_tokens=0, overlap_tokens=0)
_BUILT = (
    "retrieval.lexical.",
    "retrieval.vector.kind",
    "retrieval.vector.exact_rows_max",
    "retrieval.vector.hnsw_m",
    "retrieval.vector.hnsw_ef_construction",
    "retrieval.vector.ivfpq_lists",
    "retrieval.vector.ivfpq_parts",
)
"""Settings an index is built with; all others of retrieval only steer a search."""


class Upload(msgspec.Struct, frozen=True):
    """A document as it came: ``title`` beats what the parser finds."""

    document_id: str
    name: str
    data: bytes
    title: str = ""


class Spent(msgspec.Struct, frozen=True):
    """What one text cost to embed."""

    wall_s: float
    cpu_s: float


class RememberingEmbedder:
    """An embedder that makes each text's vector once.

    A query's vector costs in every search what it cost when it was made, alone, by ``prepare``:
    ``asked`` holds the queries that were embedded since ``begin``, ``spent`` what each cost.
    """

    def __init__(self, embedder: Embedder, clock: Clock) -> None:
        self._embedder = embedder
        self._clock = clock
        self._vectors: dict[tuple[str, str], bytes] = {}
        self.spent: dict[str, Spent] = {}
        self.asked: set[str] = set()

    @property
    def spec(self) -> EmbedderSpec:
        """The embedder's own."""
        return self._embedder.spec

    def begin(self) -> None:
        """Forget which queries were embedded."""
        self.asked.clear()

    async def prepare(self, queries: Sequence[str]) -> None:
        """Make the vectors of ``queries``, one after the other, and note what each costs."""
        for text in queries:
            if text not in self.spent:
                wall, cpu = self._clock.now(), time.process_time()
                await self.embed([text], kind="query")
                self.spent[text] = Spent(self._clock.now() - wall, time.process_time() - cpu)

    async def embed(
        self, texts: Sequence[str], *, kind: Literal["query", "passage", "raw"]
    ) -> Vectors:
        """Embed what is not remembered."""
        missing = [text for text in dict.fromkeys(texts) if (kind, text) not in self._vectors]
        if missing:
            made = await self._embedder.embed(missing, kind=kind)
            size = made.dimensions * 4
            for at, text in enumerate(missing):
                self._vectors[kind, text] = made.data[at * size : (at + 1) * size]
        if kind == "query":
            self.asked.update(texts)
        data = b"".join(self._vectors[kind, text] for text in texts)
        return Vectors(tuple(range(len(texts))), self.spec.dimensions, data)


class CorpusParts(msgspec.Struct, frozen=True):
    """What candidates are made of and where."""

    uploads: Sequence[Upload]
    settings: Settings
    embedder: Embedder | None
    counter: CounterChoice | None
    folder: Path
    clock: Clock
    headings_hidden: bool = False
    repeats: int = 3


class Candidates:
    """``Evaluator`` over one corpus; ``close`` gives up what it opened.

    Records and indexes are kept under ``folder`` as long as this lives, so that a candidate that
    differs only in how it searches is measured without building anything.
    """

    def __init__(self, parts: CorpusParts) -> None:
        self._parts = parts
        self._embedder: RememberingEmbedder | None = None
        if parts.embedder is not None:
            self._embedder = RememberingEmbedder(parts.embedder, parts.clock)
        self._records: dict[str, StoreReader] = {}
        self._indexes: dict[str, Path] = {}
        self._headings: dict[str, frozenset[str]] = {}
        self._threads = BlockingPool(search_executor(1))
        self.built = 0

    @property
    def executor(self) -> ThreadPoolExecutor:
        """The thread that builds and searches."""
        return self._threads.executor

    async def close(self) -> None:
        """Close the records and the thread."""
        for reader in self._records.values():
            await self._threads.run(reader.close)
        self._threads.close()

    async def documents(self) -> list[DocumentDraft]:
        """The documents cut at every heading, headings in place."""
        settings = self._parts.settings
        ingest = msgspec.structs.replace(settings.ingest, chunks=_BY_HEADING)
        drafts = await self._cut(msgspec.structs.replace(settings, ingest=ingest))
        self._headings = {draft.document_id: headings(draft) for draft in drafts}
        return drafts

    async def _drafts(self, settings: Settings) -> list[DocumentDraft]:
        """The documents as they are indexed."""
        drafts = await self._cut(settings)
        if not self._parts.headings_hidden:
            return drafts
        if not self._headings:
            await self.documents()
        return [without_headings(draft, self._headings[draft.document_id]) for draft in drafts]

    async def rerankers(self) -> tuple[str, ...]:
        """The values of ``rerank.backend`` worth trying: none, the light one, the one in force."""
        settings = self._parts.settings
        tried = msgspec.structs.replace(settings.rerank, backend="auto")
        async with self._rankers(msgspec.structs.replace(settings, rerank=tried)) as ranking:
            if ranking.parts is None:
                return ()
        return ("off", "light", "cascade")[: 3 if settings.rerank.backend == "cascade" else 2]

    async def observe(self, values: Values, questions: Sequence[Question]) -> Observed:
        """Ask ``questions`` under the settings in force changed by ``values``."""
        settings = changed_settings(self._parts.settings, values)
        record = await self._record(settings)
        folder = await self._index(settings, record)
        index = await self._threads.run(lambda: self._open(folder, record, settings, False))
        try:
            asked = await self._asked(patient(settings), index, questions)
            chunks = index.snapshot().lexical.chunks
        finally:
            await self._threads.run(index.close)
        memory_bytes = await asyncio.to_thread(searched_bytes, folder)
        return msgspec.structs.replace(asked, memory_bytes=memory_bytes, chunks=chunks)

    async def _asked(
        self, settings: Settings, index: KbIndex, questions: Sequence[Question]
    ) -> Observed:
        # What the dear reranker embeds costs again in every round, so nothing of it is remembered.
        async with self._rankers(settings) as ranking:
            search = HybridRetriever(
                lambda kb: index,
                self._embedder,
                settings.retrieval,
                self.executor,
                with_vectors=ranking.parts is not None,
            )
            return await self._ask(ranking.over(search), questions)

    def _rankers(self, settings: Settings) -> AbstractAsyncContextManager[Reranking]:
        dear = settings.rerank.dear

        async def opened(embedder: Embedder, stack: AsyncExitStack) -> Reranker:
            if dear.backend == "late":
                raise ConfigError("late interaction is not tuned; set rerank.dear.backend anew.")
            return await open_dear(dear, settings, embedder, stack)

        return open_rankers(settings.rerank, self._parts.embedder, self.executor, opened)

    async def _ask(self, retriever: Retriever, questions: Sequence[Question]) -> Observed:
        found: dict[str, Sequence[Place]] = {}
        rounds: list[tuple[list[float], list[float]]] = []
        words_only = 0
        if self._embedder is not None:
            await self._embedder.prepare([question.text for question in questions])
        # The first round reads files for the first time: it finds, the others measure.
        for number in range(1 + self._parts.repeats):
            walls: list[float] = []
            cpus: list[float] = []
            for question in questions:
                places, spent = await self._search(retriever, question.text)
                found[question.id] = places
                words_only += number == 0 and not self._embedded(question.text)
                walls.append(spent.wall_s)
                cpus.append(spent.cpu_s)
            rounds.append((walls, cpus))
        wall_s = np.median([walls for walls, _ in rounds[1:]], axis=0)
        cpu_s = np.median([cpus for _, cpus in rounds[1:]], axis=0)
        return Observed(found, wall_s.tolist(), cpu_s.tolist(), 0, words_only=words_only)

    def _embedded(self, text: str) -> bool:
        return self._embedder is not None and text in self._embedder.asked

    async def _search(self, retriever: Retriever, text: str) -> tuple[list[Place], Spent]:
        clock = self._parts.clock
        ctx = RequestContext(
            request_id="tune",
            principal=Principal(admin=True),
            deadline=Deadline.after(_QUERY_MS / 1000, clock),
            clock=clock,
        )
        if self._embedder is not None:
            self._embedder.begin()
        wall, cpu = clock.now(), time.process_time()
        result = await retriever.retrieve(ctx, SearchRequest(KB, text, 20))
        wall_s, cpu_s = clock.now() - wall, time.process_time() - cpu
        if self._embedder is not None and self._embedded(text):
            embedding = self._embedder.spent[text]
            wall_s, cpu_s = wall_s + embedding.wall_s, cpu_s + embedding.cpu_s
        places = [
            Place(hit.chunk.document_id, hit.chunk.start, hit.chunk.end, hit.chunk.text)
            for hit in result.hits
        ]
        return places, Spent(wall_s, cpu_s)

    async def _record(self, settings: Settings) -> StoreReader:
        """The record of the documents cut as ``settings`` say; made when it is new."""
        ingest = settings.ingest
        key = msgspec.json.encode((ingest.chunks, ingest.meaning)).decode()
        if key not in self._records:
            folder = self._parts.folder / f"record-{len(self._records)}"
            drafts = await self._drafts(settings)
            self._records[key] = await self._threads.run(lambda: _commit(folder, drafts))
            await self._embed(folder)
        return self._records[key]

    async def _cut(self, settings: Settings) -> list[DocumentDraft]:
        ingest = settings.ingest
        pool = ParsePool(ingest.pool, ingest.limits, ingest.chunks, counter=self._parts.counter)
        parser: BatchParser = pool
        if ingest.chunks.kind == "meaning":
            percentile = ingest.chunks.break_percentile
            parser = MeaningParser(pool, self._embedder, percentile, ingest.meaning)
        drafts: list[DocumentDraft] = []
        uploads = self._parts.uploads
        try:
            for first in range(0, len(uploads), _DOCUMENTS_AT_ONCE):
                some = uploads[first : first + _DOCUMENTS_AT_ONCE]
                jobs = [ParseJob(upload.name, upload.data) for upload in some]
                for upload, parsed in zip(some, await parser.parse_many(jobs), strict=True):
                    # What cannot be read is not searched in production either.
                    if not isinstance(parsed, ForebayError):
                        drafts.append(_draft(parsed, upload, parser.revision))
        finally:
            await pool.close()
        if not drafts:
            raise InvalidRequest("none of the documents can be read; name others.")
        return drafts

    async def _embed(self, folder: Path) -> None:
        """Store the vectors of every chunk of a record."""
        embedder = self._embedder
        if embedder is None:
            return
        spec = embedder.spec
        writer = await self._threads.run(lambda: StoreWriter(folder))
        try:
            await self._threads.run(lambda: writer.begin_reembed(KB, spec))
            while rows := await self._threads.run(lambda: writer.pending(KB, _TEXTS_AT_ONCE)):
                made = await embedder.embed([passage_text(row) for row in rows], kind="passage")
                ids = tuple(row.chunk_id for row in rows)
                vectors = Vectors(ids, made.dimensions, made.data)
                await self._threads.run(_storing(writer, vectors, spec.fingerprint))
        finally:
            await self._threads.run(writer.close)

    async def _index(self, settings: Settings, record: StoreReader) -> Path:
        """The folder of an index over ``record`` as ``settings`` build it; built when new."""
        built = {path: value for path, value in flat(settings).items() if path.startswith(_BUILT)}
        key = f"{record.folder}:{sorted(built.items())}"
        if key not in self._indexes:
            folder = self._parts.folder / f"index-{len(self._indexes)}"
            try:
                await self._threads.run(lambda: self._build(folder, record, settings))
            except StoreError as error:
                kind = settings.retrieval.vector.kind
                raise StoreError(f"an index of kind {kind} cannot be built like this.") from error
            self._indexes[key] = folder
            self.built += 1
        return self._indexes[key]

    def _build(self, folder: Path, record: StoreReader, settings: Settings) -> None:
        index = self._open(folder, record, settings, True)
        try:
            while index.maintain(force=True):
                pass
        finally:
            index.close()

    def _open(self, folder: Path, record: StoreReader, settings: Settings, build: bool) -> KbIndex:
        fingerprint = None if self._embedder is None else self._embedder.spec.fingerprint
        return KbIndex.open(
            folder,
            KB,
            record,
            writable=build,
            settings=settings.retrieval,
            fingerprint=lambda: fingerprint,
        )


def patient(settings: Settings) -> Settings:
    """Return the settings without time-outs: on a busy machine these would decide what is found."""
    return msgspec.structs.replace(
        settings,
        retrieval=msgspec.structs.replace(
            settings.retrieval, vector_timeout_ms=_QUERY_MS, words_timeout_ms=_QUERY_MS
        ),
        rerank=msgspec.structs.replace(
            settings.rerank, timeout_ms=_QUERY_MS, dear_timeout_ms=_QUERY_MS
        ),
    )


def _commit(folder: Path, drafts: Sequence[DocumentDraft]) -> StoreReader:
    writer = StoreWriter(folder)
    try:
        for first in range(0, len(drafts), _DOCUMENTS_AT_ONCE):
            writer.commit(KB, drafts[first : first + _DOCUMENTS_AT_ONCE], ())
    finally:
        writer.close()
    return StoreReader(folder)


def _storing(writer: StoreWriter, vectors: Vectors, fingerprint: str) -> Callable[[], int]:
    return lambda: writer.store_vectors(KB, vectors, fingerprint)


def _draft(parsed: Any, upload: Upload, revision: str) -> DocumentDraft:
    request = FolderRequest(KB, "")
    digest = content_hash(upload.data, revision, request)
    draft = draft_of(parsed, upload.document_id, upload.document_id, digest, request)
    return msgspec.structs.replace(draft, title=upload.title) if upload.title else draft


def searched_bytes(folder: Path) -> int:
    """What a search of an index walks through: every file, but for the raw vectors of IVF-PQ.

    Of those it reads a few rows a query, wherever they lie.
    """
    files = [path for path in folder.rglob("*") if path.is_file()]
    compressed = {path.stem for path in files if path.suffix == ".ivfpq"}
    return sum(
        path.stat().st_size
        for path in files
        if not (path.suffix == ".faiss" and path.stem in compressed)
    )


def flat(settings: msgspec.Struct) -> dict[str, Value]:
    """Scalar settings by path."""
    found: dict[str, Value] = {}

    def walk(value: object, path: str) -> None:
        if isinstance(value, Mapping):
            for name, item in value.items():
                walk(item, f"{path}.{name}" if path else str(name))
        elif isinstance(value, bool | int | float | str):
            found[path] = value

    walk(msgspec.to_builtins(settings), "")
    return found


def changed_settings(settings: Settings, values: Values) -> Settings:
    """Return ``settings`` with ``values`` by path; ``ConfigError`` when they are none."""
    tree: dict[str, Any] = msgspec.to_builtins(settings)
    for path, value in values.items():
        *tables, key = path.split(".")
        place: Any = tree
        for table in tables:
            place = place.get(table) if isinstance(place, dict) else None
        if not isinstance(place, dict) or key not in place:
            raise ConfigError(f"there is no setting {path}; `forebay config` lists them.")
        place[key] = value
    try:
        return msgspec.convert(tree, Settings)
    except msgspec.ValidationError as error:
        raise ConfigError(f"these settings do not go together: {error}") from error
