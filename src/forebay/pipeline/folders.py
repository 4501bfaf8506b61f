"""A folder on disk becomes documents of a knowledge base, and stays in step with it.

Document ids are ``<folder name>/<relative path>`` with forward slashes. What a folder wrote is
marked with a hash of its absolute path, so that a vanished file removes only its own document.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import unicodedata
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Protocol

import msgspec

from forebay.kernel.clock import Clock
from forebay.kernel.documents import (
    ChunkDraft,
    CommitReceipt,
    DocumentDraft,
    Extracted,
    Outcome,
)
from forebay.kernel.errors import ForebayError, InvalidRequest, UnsupportedDocument, first_error

MAX_ID_CHARACTERS = 512
# Control characters, line and paragraph separators, halves of surrogate pairs.
_UNNAMEABLE = frozenset({"Cc", "Zl", "Zp", "Cs"})
ROOT_KEY = "_root"
"""Metadata key naming the folder a document came from; keys with ``_`` are not shown."""


class FolderSettings(msgspec.Struct, frozen=True):
    """How a folder is read."""

    max_batch_files: Annotated[
        int, msgspec.Meta(ge=1, description="Files read and parsed together at most.")
    ] = 32
    max_batch_bytes: Annotated[
        int, msgspec.Meta(ge=1, description="Bytes of files read and parsed together at most.")
    ] = 4 * 1024 * 1024
    commit_documents: Annotated[
        int, msgspec.Meta(ge=1, description="Documents in one commit of a folder at most.")
    ] = 256
    commit_characters: Annotated[
        int, msgspec.Meta(ge=1, description="Characters in one commit of a folder at most.")
    ] = 4_000_000
    max_file_bytes: Annotated[
        int, msgspec.Meta(ge=1, description="Larger files are skipped with that reason.")
    ] = 200_000_000
    batches_in_flight: Annotated[
        int, msgspec.Meta(ge=1, description="Batches of files under way at once.")
    ] = 3


class ParseJob(msgspec.Struct, frozen=True):
    """Bytes to parse and cut; ``name`` guides format detection."""

    name: str
    data: bytes
    media_type: str | None = None


class Parsed(Protocol):
    """What came out of a file."""

    @property
    def extracted(self) -> Extracted:
        """Text and what the file says of itself."""
        ...

    @property
    def chunks(self) -> tuple[ChunkDraft, ...]:
        """Its chunks, in order."""
        ...

    @property
    def provisional(self) -> bool:
        """Whether they are not as the settings ask, and the next ingest should try again."""
        ...


class BatchParser(Protocol):
    """Parses and chunks in worker processes."""

    @property
    def revision(self) -> str:
        """Changes when the same bytes would come out differently (parser or chunk settings)."""
        ...

    async def parse_many(self, jobs: Sequence[ParseJob]) -> Sequence[Parsed | ForebayError]:
        """One result or one error per job, in order; a bad file costs its own error only."""
        ...


class Known(msgspec.Struct, frozen=True):
    """What the record knows of a document without reading its text."""

    content_hash: str
    root: str


class FolderRecord(Protocol):
    """What a folder ingest needs of the record and the writer."""

    async def known(self, kb: str) -> Mapping[str, Known]:
        """Every document of the kb by id."""
        ...

    async def commit(
        self, kb: str, puts: Sequence[DocumentDraft], removes: Sequence[str]
    ) -> CommitReceipt:
        """One commit, published lexically when it returns."""
        ...


class FolderRequest(msgspec.Struct, frozen=True):
    """A file or folder to bring into a kb; defaults apply where a document declares nothing.

    ``adopt`` says that a folder of this name is this folder, wherever it stood before (a moved
    or restored one): its documents are taken over instead of refused.
    """

    kb: str
    path: str
    tags: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    remove_vanished: bool = True
    adopt: bool = False


class FileEvent(msgspec.Struct, frozen=True, tag="file"):
    """How one file ended; ``reason`` is a sentence for skipped and failed, or warnings."""

    document_id: str
    outcome: Outcome
    reason: str = ""
    chunks: int = 0


class IngestSummary(msgspec.Struct, frozen=True, tag="summary"):
    """How a folder ended: the version it reached and the count of each outcome."""

    kb: str
    version: int
    outcomes: dict[str, int]
    seconds: float


class FoundFile(msgspec.Struct, frozen=True):
    """A file of a folder, or the reason why it will not be read."""

    document_id: str
    path: str
    size_bytes: int
    reason: str = ""


class _Plan(msgspec.Struct, frozen=True):
    request: FolderRequest
    root: str
    name: str
    known: Mapping[str, Known]

    def owns(self, document_id: str, known: Known) -> bool:
        """Whether a known document is this folder's to change or remove."""
        if known.root == self.root:
            return True
        named = document_id == self.name or document_id.startswith(f"{self.name}/")
        return self.request.adopt and known.root != "" and named


class _Read(msgspec.Struct, frozen=True):
    events: list[FileEvent]
    drafts: list[DocumentDraft]
    removes: list[str]


class _Tally:
    def __init__(self, emit: Callable[[FileEvent], Awaitable[None]]) -> None:
        self._emit = emit
        self.counts: dict[str, int] = {}

    async def add(self, event: FileEvent) -> None:
        self.counts[event.outcome] = self.counts.get(event.outcome, 0) + 1
        await self._emit(event)


def scan(path: Path, settings: FolderSettings) -> Iterator[FoundFile]:
    """Walk a file or folder in name order; hidden entries are left out, links not followed."""
    if path.is_file():
        yield _found(path, path.name, settings)
        return
    for folder, folders, files in os.walk(path, followlinks=False):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            if name.startswith((".", "~$")):
                continue
            file = Path(folder, name)
            relative = file.relative_to(path).as_posix()
            yield _found(file, f"{path.name}/{relative}", settings)


def _found(file: Path, document_id: str, settings: FolderSettings) -> FoundFile:
    try:
        document_id.encode("utf-8")
    except UnicodeEncodeError:
        safe = document_id.encode("utf-8", "replace").decode("utf-8")
        return FoundFile(safe, str(file), 0, "its file name is not valid UTF-8; rename it")
    if wrong := id_problem(document_id):
        # Nobody could read or remove such a document by its id.
        return FoundFile(printable(document_id), str(file), 0, f"its path {wrong}; rename it")
    try:
        if file.is_symlink():
            return FoundFile(document_id, str(file), 0, "symbolic link; ingest its target instead")
        if not file.is_file():
            return FoundFile(document_id, str(file), 0, "not a regular file")
        size = file.stat().st_size
    except OSError as error:
        return FoundFile(document_id, str(file), 0, f"unreadable: {error.strerror}")
    if size > settings.max_file_bytes:
        limit = settings.max_file_bytes // (1024 * 1024)
        return FoundFile(
            document_id,
            str(file),
            size,
            f"over {limit} MB; split it or raise ingest.folders.max_file_bytes",
        )
    return FoundFile(document_id, str(file), size)


def id_problem(document_id: str) -> str | None:
    """What keeps ``document_id`` from naming a document, to follow "its path" or "the id"."""
    if not document_id.strip() or len(document_id) > MAX_ID_CHARACTERS:
        return f"has not 1 to {MAX_ID_CHARACTERS} characters"
    if any(unicodedata.category(character) in _UNNAMEABLE for character in document_id):
        return "has control characters"
    return None


def printable(text: str) -> str:
    """``text`` with what a terminal would obey shown as escapes."""
    return "".join(
        character.encode("unicode_escape").decode()
        if unicodedata.category(character) in _UNNAMEABLE
        else character
        for character in text
    )


def content_hash(data: bytes, revision: str, request: FolderRequest) -> str:
    """SHA-256 of the bytes, with what else decides the result: parser, default rights and tags."""
    digest = f"{hashlib.sha256(data).hexdigest()}:{revision}"
    if not request.tags and not request.groups:
        return digest
    defaults = msgspec.json.encode((sorted(request.tags), sorted(request.groups)))
    return f"{digest}:{hashlib.sha256(defaults).hexdigest()[:16]}"


def draft_of(
    parsed: Parsed, document_id: str, source: str, digest: str, request: FolderRequest
) -> DocumentDraft:
    """A document draft; what the document declares (front matter) beats the request's defaults."""
    declared = parsed.extracted.metadata
    return DocumentDraft(
        document_id=document_id,
        source=source,
        content_hash=f"{digest}:provisional" if parsed.provisional else digest,
        title=parsed.extracted.title,
        text=parsed.extracted.text,
        chunks=parsed.chunks,
        media_type=parsed.extracted.media_type,
        language=declared.get("language") or parsed.extracted.language,
        tags=_list(declared.get("tags")) or request.tags,
        groups=_list(declared.get("groups")) or request.groups,
        metadata={
            key: value
            for key, value in declared.items()
            if key not in ("title", "language", "tags", "groups") and not key.startswith("_")
        },
        warnings=parsed.extracted.warnings,
    )


def _list(text: str | None) -> tuple[str, ...]:
    return tuple(part.strip() for part in (text or "").split(",") if part.strip())


class FolderIngest:
    """Brings folders into knowledge bases; one instance per writer."""

    def __init__(
        self, parser: BatchParser, record: FolderRecord, settings: FolderSettings, clock: Clock
    ) -> None:
        self._parser = parser
        self._record = record
        self._settings = settings
        self._clock = clock

    async def run(
        self, request: FolderRequest, emit: Callable[[FileEvent], Awaitable[None]]
    ) -> IngestSummary:
        """Ingest a file or folder; ``emit`` is told how each file ended."""
        started = self._clock.now()
        path = Path(request.path)
        if not await asyncio.to_thread(path.exists):
            raise InvalidRequest(f"there is no file or folder {request.path}.", param="path")
        path = await asyncio.to_thread(path.resolve)
        root = hashlib.sha256(str(path).encode("utf-8", "surrogateescape")).hexdigest()[:16]
        plan = _Plan(request, root, path.name, await self._record.known(request.kb))
        files = await asyncio.to_thread(lambda: list(scan(path, self._settings)))
        tally = _Tally(emit)
        await self._changed(plan, files, tally)
        vanished = self._vanished(plan, files)
        receipt = await self._record.commit(request.kb, [], vanished)
        for document_id in vanished:
            await tally.add(FileEvent(document_id, "removed"))
        seconds = self._clock.now() - started
        return IngestSummary(request.kb, receipt.version, tally.counts, seconds)

    def _vanished(self, plan: _Plan, files: Sequence[FoundFile]) -> list[str]:
        if not plan.request.remove_vanished:
            return []
        seen = {file.document_id for file in files}
        return [
            document_id
            for document_id, known in plan.known.items()
            if plan.owns(document_id, known) and document_id not in seen
        ]

    async def _changed(self, plan: _Plan, files: Sequence[FoundFile], tally: _Tally) -> None:
        """Parse batches side by side, commit them in order."""
        ready: asyncio.Queue[asyncio.Task[_Read] | None] = asyncio.Queue(
            self._settings.batches_in_flight
        )

        try:
            async with asyncio.TaskGroup() as group:

                async def start() -> None:
                    for batch in self._split(files):
                        slot = group.create_task(self._read(plan, batch))
                        await ready.put(slot)
                    await ready.put(None)

                group.create_task(start())
                await self._collect(plan, ready, tally)
        except BaseExceptionGroup as errors:  # callers tell a full disk from a fault by class
            raise first_error(errors) from None

    async def _collect(
        self, plan: _Plan, ready: asyncio.Queue[asyncio.Task[_Read] | None], tally: _Tally
    ) -> None:
        drafts: list[DocumentDraft] = []
        removes: list[str] = []
        characters = 0
        while (task := await ready.get()) is not None:
            read = await task
            for event in read.events:
                await tally.add(event)
            drafts.extend(read.drafts)
            removes.extend(read.removes)
            characters += sum(len(draft.text) for draft in read.drafts)
            if (
                len(drafts) >= self._settings.commit_documents
                or characters >= self._settings.commit_characters
            ):
                await self._commit(plan, drafts, removes, tally)
                drafts, removes, characters = [], [], 0
        await self._commit(plan, drafts, removes, tally)

    def _split(self, files: Sequence[FoundFile]) -> Iterator[list[FoundFile]]:
        batch: list[FoundFile] = []
        size = 0
        for file in files:
            full = len(batch) >= self._settings.max_batch_files
            if batch and (full or size + file.size_bytes > self._settings.max_batch_bytes):
                yield batch
                batch, size = [], 0
            batch.append(file)
            size += file.size_bytes
        if batch:
            yield batch

    async def _read(self, plan: _Plan, batch: Sequence[FoundFile]) -> _Read:
        read = _Read([], [], [])
        jobs: list[ParseJob] = []
        digests: list[str] = []
        for file, data in await asyncio.to_thread(lambda: [_load(each) for each in batch]):
            known = plan.known.get(file.document_id)
            if isinstance(data, str):
                read.events.append(FileEvent(file.document_id, "skipped", data))
                continue
            digest = content_hash(data, self._parser.revision, plan.request)
            if known is not None and known.root and not plan.owns(file.document_id, known):
                reason = (
                    "another folder already holds a document of this id; rename this folder, or "
                    "say --moved when it is the same one"
                )
                read.events.append(FileEvent(file.document_id, "skipped", reason))
            elif known is not None and known == Known(digest, plan.root):
                read.events.append(FileEvent(file.document_id, "unchanged"))
            else:
                jobs.append(ParseJob(file.document_id, data))
                digests.append(digest)
        results = await self._parser.parse_many(jobs) if jobs else []
        for job, digest, parsed in zip(jobs, digests, results, strict=True):
            if isinstance(parsed, ForebayError):
                self._refuse(plan, job.name, parsed, read)
            else:
                draft = draft_of(parsed, job.name, job.name, digest, plan.request)
                marked = {**draft.metadata, ROOT_KEY: plan.root}
                read.drafts.append(msgspec.structs.replace(draft, metadata=marked))
        return read

    def _refuse(self, plan: _Plan, document_id: str, error: ForebayError, read: _Read) -> None:
        """A file that can no longer be read must not go on answering with what it once said."""
        if not isinstance(error, UnsupportedDocument):
            read.events.append(FileEvent(document_id, "failed", error.message))
            return
        reason = error.message
        if document_id in plan.known:
            read.removes.append(document_id)
            reason += " (its earlier content was removed)"
        read.events.append(FileEvent(document_id, "skipped", reason))

    async def _commit(
        self,
        plan: _Plan,
        drafts: Sequence[DocumentDraft],
        removes: Sequence[str],
        tally: _Tally,
    ) -> None:
        if not drafts and not removes:
            return
        receipt = await self._record.commit(plan.request.kb, drafts, removes)
        outcomes = dict(receipt.outcomes)
        for draft in drafts:
            outcome = outcomes.get(draft.document_id, "indexed")
            reason = "; ".join(draft.warnings)
            await tally.add(FileEvent(draft.document_id, outcome, reason, len(draft.chunks)))


def _load(file: FoundFile) -> tuple[FoundFile, bytes | str]:
    """A file's bytes, or the reason why there are none."""
    if file.reason:
        return file, file.reason
    try:
        return file, Path(file.path).read_bytes()
    except OSError as error:
        return file, f"unreadable: {error.strerror}"
