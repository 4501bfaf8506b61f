"""Documents cut by meaning: sentences are embedded, the least alike neighbours part (F3.10).

A parser that wraps a parser: what the worker processes read is embedded here, beside the writer,
and they cut it once more where meaning changes. Whatever cannot be embedded in time keeps the
chunks it has, with a note; such a document is cut again by the next ingest.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Sequence
from typing import Annotated, Any, Protocol

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Meta

from forebay.kernel.documents import ChunkDraft, Extracted, Vectors
from forebay.kernel.errors import ForebayError
from forebay.kernel.stages import Embedder
from forebay.pipeline.folders import BatchParser, Parsed, ParseJob

log = logging.getLogger("forebay.meaning")
_LEAST_SENTENCES = 4
"""Fewer make one chunk or two, whatever they mean."""
_SENTENCE_CHARACTERS = 1_000


class MeaningSettings(msgspec.Struct, frozen=True):
    """What finding out where meaning changes may cost."""

    batch_size: Annotated[
        int, Meta(description="Sentences handed to the embedder at once.", ge=1, le=1_000)
    ] = 32
    max_sentences: Annotated[
        int, Meta(description="Documents of more sentences are cut by structure.", ge=1)
    ] = 20_000
    timeout_s: Annotated[
        float,
        Meta(description="Longest time the sentences of one document may take, in seconds.", gt=0),
    ] = 300.0


class Outlined(Protocol):
    """What came out of a file, with the sentences whose likeness decides about its chunks."""

    @property
    def extracted(self) -> Extracted:
        """Text and what the file says of itself."""
        ...

    @property
    def chunks(self) -> tuple[ChunkDraft, ...]:
        """Its chunks by structure, in order."""
        ...

    @property
    def sentences(self) -> tuple[tuple[int, int], ...]:
        """Spans of its sentences, in order."""
        ...


class OutliningParser(Protocol):
    """Parses in worker processes, and cuts the same bytes again."""

    @property
    def revision(self) -> str:
        """Changes when the same bytes would come out differently."""
        ...

    async def parse_many(self, jobs: Sequence[ParseJob]) -> Sequence[Outlined | ForebayError]:
        """One result or one error per job, in order."""
        ...

    async def recut_many(
        self, jobs: Sequence[ParseJob], breaks: Sequence[tuple[int, ...]]
    ) -> Sequence[Outlined | ForebayError]:
        """The same, chunks ending before the sentences that start at ``breaks``."""
        ...


class CutDocument(msgspec.Struct, frozen=True):
    """A document as it is to be stored; ``provisional``: by structure, although not asked for."""

    extracted: Extracted
    chunks: tuple[ChunkDraft, ...]
    provisional: bool = False


class MeaningParser(BatchParser):
    """Wraps a parser; ``percentile`` (0..100) of a document's neighbouring sentences part."""

    def __init__(
        self,
        inner: OutliningParser,
        embedder: Embedder | None,
        percentile: float,
        settings: MeaningSettings,
    ) -> None:
        self._inner = inner
        self._embedder = embedder
        self._percentile = percentile
        self._settings = settings

    @property
    def revision(self) -> str:
        """Another embedder finds other breaks."""
        who = "none" if self._embedder is None else self._embedder.spec.fingerprint
        return hashlib.sha256(f"{self._inner.revision} {who}".encode()).hexdigest()[:16]

    async def parse_many(self, jobs: Sequence[ParseJob]) -> Sequence[Parsed | ForebayError]:
        """One result or one error per job, in order; one document's sentences at a time."""
        results: list[Parsed | ForebayError] = []
        again: list[int] = []
        breaks: list[tuple[int, ...]] = []
        for place, read in enumerate(await self._inner.parse_many(jobs)):
            if isinstance(read, ForebayError):
                results.append(read)
                continue
            found, note = await self._breaks(read)
            results.append(_noted(read, note, provisional=self._embedder is not None))
            if found:
                again.append(place)
                breaks.append(found)
        if again:
            cut = await self._inner.recut_many([jobs[place] for place in again], breaks)
            for place, read in zip(again, cut, strict=True):
                results[place] = read if isinstance(read, ForebayError) else _noted(read)
        return results

    async def _breaks(self, read: Outlined) -> tuple[tuple[int, ...], str]:
        """Where the meaning of a document changes, and why that is not known."""
        count = len(read.sentences)
        if count < _LEAST_SENTENCES:
            return (), ""
        if self._embedder is None:
            return (), "no embedder is configured"
        if count > self._settings.max_sentences:
            return (), f"it has more than {self._settings.max_sentences} sentences"
        try:
            async with asyncio.timeout(self._settings.timeout_s):
                cosines = await self._cosines(self._embedder, read)
        except TimeoutError:
            return (), f"the embedder took longer than {self._settings.timeout_s:g} s"
        except ForebayError as error:
            return (), f"the embedder failed ({error.message.rstrip('.')})"
        return breaks_of([start for start, _ in read.sentences], cosines, self._percentile), ""

    async def _cosines(self, embedder: Embedder, read: Outlined) -> npt.NDArray[np.float32]:
        text, size = read.extracted.text, self._settings.batch_size
        batches: list[Vectors] = []
        for at in range(0, len(read.sentences), size):
            some = read.sentences[at : at + size]
            sentences = [
                text[start : min(end, start + _SENTENCE_CHARACTERS)] for start, end in some
            ]
            batches.append(await embedder.embed(sentences, kind="passage"))
        # Twenty thousand vectors are 30 MB to multiply: not on the event loop.
        return await asyncio.to_thread(neighbour_cosines, batches)


def neighbour_cosines(batches: Sequence[Vectors]) -> npt.NDArray[np.float32]:
    """Return the cosine of each vector with the next, batches taken as one sequence."""
    found: list[npt.NDArray[np.float32]] = []
    last: npt.NDArray[np.float32] | None = None
    for vectors in batches:
        rows = np.frombuffer(vectors.data, "<f4").reshape(-1, vectors.dimensions)
        if last is not None:
            rows = np.concatenate([last, rows])
        found.append(np.einsum("ij,ij->i", rows[:-1], rows[1:]))
        last = rows[-1:]
    return np.concatenate(found) if found else np.empty(0, np.float32)


def breaks_of(
    starts: Sequence[int], cosines: npt.NDArray[np.floating[Any]], percentile: float
) -> tuple[int, ...]:
    """Return the starts of the sentences that are least like the one before.

    ``cosines[i]`` is the likeness of sentences ``i`` and ``i + 1``; those under the
    ``percentile`` (0..100) of all of them part.
    """
    if not len(cosines):
        return ()
    threshold = np.percentile(cosines, percentile)
    return tuple(starts[i + 1] for i in np.flatnonzero(cosines < threshold).tolist())


def _noted(read: Outlined, note: str = "", *, provisional: bool = False) -> CutDocument:
    if not note:
        return CutDocument(read.extracted, read.chunks)
    sentence = f"It was cut by structure, not by meaning: {note}."
    log.warning("a document was cut by structure, not by meaning: %s", note)
    extracted = msgspec.structs.replace(
        read.extracted, warnings=(*read.extracted.warnings, sentence)
    )
    return CutDocument(extracted, read.chunks, provisional)
