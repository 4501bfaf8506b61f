"""The record in memory, with the rules of the real one."""

from __future__ import annotations

from collections.abc import Sequence
from threading import RLock

import msgspec

from forebay.kernel.documents import (
    ChangeSet,
    ChunkDraft,
    ChunkRow,
    CommitReceipt,
    DocumentDraft,
    KbInfo,
    Outcome,
    Vectors,
)
from forebay.kernel.errors import Gone, NotFound, ReembedNeeded
from forebay.kernel.stages import EmbedderSpec


class _Document:
    __slots__ = ("draft", "ids", "version")

    def __init__(self, draft: DocumentDraft, ids: range, version: int) -> None:
        self.draft = draft
        self.ids = ids
        self.version = version


class _Kb:
    def __init__(self, version: int) -> None:
        self.version = version
        self.log_floor = version
        self.documents: dict[str, _Document] = {}
        self.owner: dict[int, _Document] = {}
        self.vectors: dict[int, tuple[int, bytes]] = {}
        self.removed: list[tuple[int, int, int]] = []
        self.fingerprint: str | None = None
        self.dimensions = 0
        self.embedder: str | None = None


class MemoryFeed:
    """A record in memory: ``commit``, ``store_vectors`` and the ``IndexFeed`` of what they did.

    Vectors come back as they were stored; the real record rounds them to half precision.
    """

    def __init__(self) -> None:
        self._lock = RLock()
        self._kbs: dict[str, _Kb] = {}
        self._next_id = 1
        self._floor = 0

    def commit(
        self, kb: str, puts: Sequence[DocumentDraft], removes: Sequence[str]
    ) -> CommitReceipt:
        """Remove and put documents as one version; nothing changed, nothing raised."""
        with self._lock:
            if kb not in self._kbs:
                if not puts:
                    raise NotFound(f"there is no knowledge base {kb!r}.")
                self._kbs[kb] = _Kb(self._floor)
            state = self._kbs[kb]
            before = state.version
            outcomes: list[tuple[str, Outcome]] = []
            for document_id in removes:
                if document_id in state.documents:
                    self._delete(state, document_id, before + 1)
                    outcomes.append((document_id, "removed"))
            outcomes += [(draft.document_id, self._put(state, draft, before + 1)) for draft in puts]
            if any(outcome != "unchanged" for _, outcome in outcomes):
                state.version = before + 1
            waiting = any(
                chunk_id not in state.vectors
                for draft in puts
                for chunk_id in state.documents[draft.document_id].ids
            )
            return CommitReceipt(kb, state.version, tuple(outcomes), not waiting)

    def _put(self, state: _Kb, draft: DocumentDraft, version: int) -> Outcome:
        old = state.documents.get(draft.document_id)
        if old is not None and _head(old.draft) == _head(draft):
            return "unchanged"
        kept: dict[object, bytes] = {}
        if old is not None:
            if old.draft.title == draft.title:
                kept = {
                    _content(chunk): state.vectors[chunk_id][1]
                    for chunk_id, chunk in zip(old.ids, old.draft.chunks, strict=True)
                    if chunk_id in state.vectors
                }
            self._delete(state, draft.document_id, version)
        ids = range(self._next_id, self._next_id + len(draft.chunks))
        self._next_id = ids.stop
        document = _Document(draft, ids, version)
        state.documents[draft.document_id] = document
        for chunk_id, chunk in zip(ids, draft.chunks, strict=True):
            state.owner[chunk_id] = document
            if _content(chunk) in kept:
                state.vectors[chunk_id] = (version, kept[_content(chunk)])
        return "replaced" if old is not None else "indexed"

    def _delete(self, state: _Kb, document_id: str, version: int) -> None:
        document = state.documents.pop(document_id)
        for chunk_id in document.ids:
            del state.owner[chunk_id]
            state.vectors.pop(chunk_id, None)
            state.removed.append((chunk_id, document.version, version))

    def drop(self, kb: str) -> None:
        """Forget a kb; versions of a later one start above."""
        with self._lock:
            state = self._state(kb)
            self._floor = max(self._floor, state.version + 1)
            del self._kbs[kb]

    def begin_reembed(self, kb: str, spec: EmbedderSpec) -> int:
        """Make ``spec`` the kb's embedder; another one's vectors go, as one version."""
        with self._lock:
            state = self._state(kb)
            if state.fingerprint not in (None, spec.fingerprint):
                state.vectors.clear()
                state.version += 1
            state.fingerprint, state.dimensions = spec.fingerprint, spec.dimensions
            state.embedder = spec.name
            return state.version

    def store_vectors(self, kb: str, vectors: Vectors, fingerprint: str) -> int:
        """Store vectors of living chunks as one version."""
        with self._lock:
            state = self._state(kb)
            if state.fingerprint not in (None, fingerprint):
                raise ReembedNeeded("re-embed needed.")
            if state.fingerprint is None and vectors.ids:
                state.fingerprint = state.embedder = fingerprint
                state.dimensions = vectors.dimensions
            size = vectors.dimensions * 4
            living = [(at, i) for at, i in enumerate(vectors.ids) if i in state.owner]
            if living:
                state.version += 1
            for at, chunk_id in living:
                data = vectors.data[at * size : (at + 1) * size]
                state.vectors[chunk_id] = (state.version, data)
            return state.version

    def prune(self, kb: str, oldest_needed: int) -> None:
        """Forget removals up to a version."""
        with self._lock:
            state = self._state(kb)
            state.log_floor = min(state.version, max(state.log_floor, oldest_needed))
            state.removed = [entry for entry in state.removed if entry[2] > state.log_floor]

    def pending(self, kb: str, limit: int, document_id: str | None = None) -> list[ChunkRow]:
        """Chunks without a vector, oldest first; of all or one document."""
        with self._lock:
            state = self._state(kb)
            lacking = [
                i
                for i in sorted(state.owner)
                if i not in state.vectors
                and document_id in (None, state.owner[i].draft.document_id)
            ]
            return list(self.rows(kb, lacking[:limit]))

    def kb(self, name: str) -> KbInfo:
        """One kb's figures."""
        with self._lock:
            state = self._state(name)
            return KbInfo(
                name,
                state.version,
                len(state.documents),
                len(state.owner),
                len(state.vectors),
                sum(len(document.draft.text) for document in state.documents.values()),
                state.embedder,
                0.0,
            )

    def version(self, kb: str) -> int:
        """The kb's version."""
        return self.kb(kb).version

    def changes(self, kb: str, since: int) -> ChangeSet:
        """What happened after ``since``; ``Gone`` when that is not known."""
        with self._lock:
            state = self._state(kb)
            if since and not state.log_floor <= since <= state.version:
                raise Gone("index again from the beginning.", code="changes_pruned")
            return ChangeSet(
                since,
                state.version,
                tuple(i for i in sorted(state.owner) if state.owner[i].version > since),
                tuple(sorted(i for i, born, died in state.removed if born <= since < died)),
                tuple(i for i in sorted(state.vectors) if state.vectors[i][0] > since),
            )

    def rows(self, kb: str, chunk_ids: Sequence[int]) -> Sequence[ChunkRow]:
        """Rows that exist, in the order asked."""
        with self._lock:
            owner = self._state(kb).owner
            return [_row(owner[i], i) for i in chunk_ids if i in owner]

    def vectors(self, kb: str, chunk_ids: Sequence[int]) -> Vectors:
        """Vectors that exist, in the order asked."""
        with self._lock:
            state = self._state(kb)
            ids = tuple(i for i in chunk_ids if i in state.vectors)
            return Vectors(ids, state.dimensions, b"".join(state.vectors[i][1] for i in ids))

    def _state(self, kb: str) -> _Kb:
        if kb not in self._kbs:
            raise NotFound(f"there is no knowledge base {kb!r}.")
        return self._kbs[kb]


def _head(draft: DocumentDraft) -> DocumentDraft:
    return msgspec.structs.replace(draft, text="", chunks=(), warnings=())


def _content(chunk: ChunkDraft) -> tuple[tuple[str, ...], str, str]:
    return chunk.heading_path, chunk.context, chunk.text


def _row(document: _Document, chunk_id: int) -> ChunkRow:
    draft = document.draft
    chunk = draft.chunks[chunk_id - document.ids.start]
    return ChunkRow(
        chunk_id=chunk_id,
        document_id=draft.document_id,
        ordinal=chunk.ordinal,
        start=chunk.start,
        end=chunk.end,
        text=chunk.text,
        context=chunk.context,
        tokens=chunk.tokens,
        page=chunk.page,
        heading_path=chunk.heading_path,
        title=draft.title,
        source=draft.source,
        language=draft.language,
        tags=draft.tags,
        groups=draft.groups,
        metadata=draft.metadata,
        version=document.version,
    )
