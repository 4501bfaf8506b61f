"""A record of chunks in memory with the store's version rules: what an index is fed from."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from forebay.kernel.documents import ChangeSet, ChunkRow, Vectors
from forebay.kernel.errors import Gone


class MemoryIndexFeed:
    """An ``IndexFeed`` whose every call sees one committed state."""

    def __init__(self, dimensions: int = 16) -> None:
        self.version = 0
        self._floor = 0
        self.dimensions = dimensions
        self._lock = threading.Lock()
        self._next_id = 1
        self.live: dict[int, ChunkRow] = {}
        self._born: dict[int, int] = {}
        self._died: dict[int, int] = {}
        self._embedded: dict[int, int] = {}
        self.stored: dict[int, np.ndarray] = {}

    def add(self, *texts: str, document: str = "d", **fields: object) -> list[int]:
        """Commit chunks of one document; keyword fields go into the rows."""
        with self._lock:
            self.version += 1
            ids = []
            for ordinal, text in enumerate(texts):
                ids.append(self._add(text, document, ordinal, fields))
            return ids

    def _add(self, text: str, document: str, ordinal: int, fields: Mapping[str, object]) -> int:
        row = ChunkRow(
            chunk_id=self._next_id,
            document_id=document,
            ordinal=ordinal,
            start=0,
            end=len(text),
            text=text,
            context="",
            tokens=len(text) // 4 + 1,
            page=None,
            heading_path=(),
            title="",
            source=f"{document}.md",
            language="",
            tags=(),
            groups=(),
            metadata={},
            version=self.version,
        )
        row = msgspec.structs.replace(row, **fields)
        self._next_id += 1
        self.live[row.chunk_id] = row
        self._born[row.chunk_id] = self.version
        return row.chunk_id

    def remove(self, *chunk_ids: int) -> None:
        """Commit the removal of chunks."""
        with self._lock:
            self.version += 1
            for chunk_id in chunk_ids:
                del self.live[chunk_id]
                self.stored.pop(chunk_id, None)
                self._died[chunk_id] = self.version

    def embed(self, vectors: Mapping[int, np.ndarray]) -> None:
        """Commit vectors of living chunks, kept in half precision as the store does."""
        with self._lock:
            self.version += 1
            for chunk_id, vector in vectors.items():
                self.stored[chunk_id] = np.asarray(vector, np.float16).astype(np.float32)
                self._embedded[chunk_id] = self.version

    def prune(self) -> None:
        """Forget what happened up to now: older questions are answered by ``Gone``."""
        with self._lock:
            self._floor = self.version

    def changes(self, kb: str, since: int) -> ChangeSet:
        with self._lock:
            if since and not self._floor <= since <= self.version:
                raise Gone("these changes are not kept.", code="changes_pruned")
            return ChangeSet(
                since=since,
                version=self.version,
                added=tuple(i for i in sorted(self.live) if self._born[i] > since),
                removed=tuple(
                    i for i, at in sorted(self._died.items()) if at > since >= self._born[i]
                ),
                embedded=tuple(i for i in sorted(self.stored) if self._embedded[i] > since),
            )

    def rows(self, kb: str, chunk_ids: Sequence[int]) -> Sequence[ChunkRow]:
        with self._lock:
            return [self.live[i] for i in chunk_ids if i in self.live]

    def vectors(self, kb: str, chunk_ids: Sequence[int]) -> Vectors:
        with self._lock:
            ids = tuple(i for i in chunk_ids if i in self.stored)
            data = b"".join(self.stored[i].astype("<f4").tobytes() for i in ids)
            return Vectors(ids, self.dimensions, data)
