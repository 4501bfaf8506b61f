"""Vector segments: immutable once built; exact, HNSW or IVF-PQ by size.

No FAISS object is written to after it is published: adding while others search crashes. Cosines
are inner products, because every vector is L2-normalised.
"""

from __future__ import annotations

import functools
import os
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock
from typing import Any, Literal

import faiss
import msgspec
import numpy as np
import numpy.typing as npt

from forebay.retrieval.settings import VectorSettings

Ids = npt.NDArray[np.int64]
Floats32 = npt.NDArray[np.float32]
Bits = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]
SegmentKind = Literal["exact", "hnsw", "ivfpq"]
Demands = tuple[tuple[str, ...], ...]

_BITMAPS_MAX = 32
_HNSW = "SearchParametersHNSW"


class SegmentFile(msgspec.Struct, frozen=True):
    """A segment on disk: its files' stem, kind, rows, and bytes per file for a damage check."""

    name: str
    kind: SegmentKind
    rows: int
    sizes: tuple[int, ...]


class VectorSegment:
    """Vectors of some chunks with a structure to search them; never written after building.

    ``flat`` holds the raw vectors (for exact scans and scores), ``index`` is what is searched
    (the same object for exact segments). ``file`` is None while a segment lives in memory only.
    ``version`` is a kb version that has all its chunks.
    """

    def __init__(
        self,
        ids: Ids,
        index: Any,
        flat: Any,
        *,
        kind: SegmentKind,
        version: int,
        file: SegmentFile | None = None,
    ) -> None:
        self.ids = ids
        self.index = index
        self.flat = flat
        self.kind = kind
        self.version = version
        self.file = file
        ascending = bool(len(ids) < 2 or (np.diff(ids) > 0).all())
        self._order: Ids | None = None if ascending else np.argsort(ids, kind="stable")
        self._sorted = ids if self._order is None else ids[self._order]
        # As long as nothing was removed, ids follow each other.
        self._gapless = bool(len(ids) and (np.diff(self._sorted) == 1).all())
        self._half = _half_precision(flat)
        self._bitmaps: OrderedDict[Demands, Mask] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self.ids)

    def positions(self, chunk_ids: Ids) -> npt.NDArray[np.int64]:
        """Return the row of each chunk, -1 where it is not in this segment."""
        if not len(self.ids):
            return np.full(len(chunk_ids), -1, np.int64)
        if self._gapless:
            place = chunk_ids - self._sorted[0]
            found = (place >= 0) & (place < len(self.ids))
        else:
            place = np.minimum(np.searchsorted(self._sorted, chunk_ids), len(self.ids) - 1)
            found = self._sorted[place] == chunk_ids
        rows = place if self._order is None else self._order.take(place, mode="clip")
        return np.where(found, rows, -1)

    def vectors(self, rows: npt.NDArray[np.int64]) -> Floats32:
        """Return copies of the raw vectors at ``rows``."""
        return self._half[rows].astype(np.float32)

    def remembered(self, demands: Demands) -> Mask | None:
        """Return the mask of rows that meet ``demands`` if it was remembered."""
        with self._lock:
            mask = self._bitmaps.get(demands)
            if mask is not None:
                self._bitmaps.move_to_end(demands)
            return mask

    def remember(self, demands: Demands, mask: Mask) -> None:
        """Keep a mask: a chunk's keys never change, so it holds as long as the segment."""
        with self._lock:
            self._bitmaps[demands] = mask
            if len(self._bitmaps) > _BITMAPS_MAX:
                self._bitmaps.popitem(last=False)

    def search(
        self, query: Floats32, limit: int, usable: Mask | None, settings: VectorSettings
    ) -> tuple[Ids, Floats32]:
        """Return ids and cosines of the best ``limit`` rows among ``usable`` (None: all)."""
        limit = min(limit, len(self.ids))
        passing = len(self.ids) if usable is None else int(np.count_nonzero(usable))
        if not limit or not passing:
            return np.empty(0, np.int64), np.empty(0, np.float32)
        bits = None if passing == len(self.ids) else np.packbits(_mask(usable), bitorder="little")
        share = passing / len(self.ids)
        if self.kind == "exact" or share < settings.filtered_scan_share:
            parameters = None if bits is None else _parameters("SearchParameters", bits)
            scores, rows = self.flat.search(query, limit, params=parameters)
        elif self.kind == "hnsw":
            wide = max(settings.hnsw_ef_search, limit)
            wide = min(int(wide / share), 4 * wide) if bits is not None else wide
            parameters = _as_wide(wide) if bits is None else _parameters(_HNSW, bits, efSearch=wide)
            scores, rows = self.index.search(query, limit, params=parameters)
        else:
            scores, rows = self._refined(query, limit, bits, settings)
        found = rows[0] >= 0
        return self.ids[rows[0][found]], scores[0][found]

    def _refined(
        self, query: Floats32, limit: int, bits: Bits | None, settings: VectorSettings
    ) -> tuple[Floats32, npt.NDArray[np.int64]]:
        """IVF-PQ proposes by compressed vectors; the raw ones decide."""
        proposals = min(limit * settings.ivfpq_refine, len(self.ids))
        parameters = _parameters("SearchParametersIVF", bits, nprobe=settings.ivfpq_nprobe)
        _, rows = self.index.search(query, proposals, params=parameters)
        rows = rows[0][rows[0] >= 0]
        scores = self.vectors(rows) @ query[0]
        order = np.argsort(-scores, kind="stable")[:limit]
        return scores[None, order], rows[None, order]


def _mask(usable: Mask | None) -> Mask:
    assert usable is not None
    return usable


@functools.lru_cache
def _as_wide(width: int) -> Any:
    """The parameters of a search of all rows of a graph; to make them takes it a twentieth."""
    return _parameters(_HNSW, None, efSearch=width)


def _parameters(kind: str, bits: Bits | None, **values: int) -> Any:
    """Make search parameters of ``kind``; FAISS's type stubs know none of their arguments."""
    make: Any = getattr(faiss, kind)
    if bits is None:
        return make(**values)
    selector: Any = faiss.IDSelectorBitmap
    return make(sel=selector(bits), **values)


def exact_segment(ids: Ids, vectors: Floats32, version: int) -> VectorSegment:
    """Build a segment that is searched by comparing with every vector."""
    flat = new_flat(vectors.shape[1])
    flat.add(np.ascontiguousarray(vectors, np.float32))
    return VectorSegment(ids, flat, flat, kind="exact", version=version)


def new_flat(dimensions: int) -> Any:
    """Return an empty exact index in half precision: what the record keeps, at half the memory
    and twice the speed of single precision.
    """
    return faiss.IndexScalarQuantizer(
        dimensions, faiss.ScalarQuantizer.QT_fp16, faiss.METRIC_INNER_PRODUCT
    )


def _half_precision(flat: Any) -> npt.NDArray[np.float16]:
    """A view of the vectors of ``new_flat``, which decodes them one number after the other."""
    data = faiss.rev_swig_ptr(flat.codes.data(), flat.ntotal * flat.code_size)
    view: npt.NDArray[np.float16] = data.view(np.float16).reshape(flat.ntotal, flat.d)
    return view


def choose_kind(rows: int, settings: VectorSettings) -> SegmentKind:
    """Return the structure for ``rows`` vectors under the settings."""
    if rows < settings.exact_rows_max:
        return "exact"
    if settings.kind != "auto":
        return settings.kind
    return "hnsw" if rows < settings.hnsw_rows_max else "ivfpq"


def new_hnsw(dimensions: int, settings: VectorSettings) -> Any:
    """Return an empty HNSW graph with the settings' degree and build width."""
    make: Any = faiss.IndexHNSWSQ
    half = faiss.ScalarQuantizer.QT_fp16
    index: Any = make(dimensions, half, settings.hnsw_m, faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efConstruction = settings.hnsw_ef_construction
    # Pruned links of near-duplicates are kept where there is room: chunks come in clusters, and
    # without this part of a cluster cannot be reached at any search width.
    index.keep_max_size_level0 = True
    return index


def new_ivfpq(vectors: Floats32, settings: VectorSettings) -> Any:
    """Return a trained and filled IVF-PQ index (F2.8: 4096 lists, 32 sub-vectors, 8 bits)."""
    rows, dimensions = vectors.shape
    lists = max(1, min(settings.ivfpq_lists, rows // 39))
    parts = next(m for m in (settings.ivfpq_parts, 32, 16, 8, 4, 2, 1) if dimensions % m == 0)
    quantizer = faiss.IndexFlatIP(dimensions)
    index = faiss.IndexIVFPQ(quantizer, dimensions, lists, parts, 8, faiss.METRIC_INNER_PRODUCT)
    index.cp.seed = index.pq.cp.seed = 1234
    index.train(vectors)
    index.add(vectors)
    return index


def write_segment(
    folder: Path, name: str, ids: Ids, index: Any, flat: Any, kind: SegmentKind
) -> SegmentFile:
    """Write a segment's files, synced and renamed into place; the manifest publishes them."""
    raw = index if kind in ("exact", "hnsw") else flat
    paths = [folder / f"{name}.ids.npy", folder / f"{name}.faiss"]
    _aside(paths[0], lambda p: np.save(p, ids))
    _aside(paths[1], lambda p: faiss.write_index(raw, str(p)))
    if kind == "ivfpq":
        paths.append(folder / f"{name}.ivfpq")
        _aside(paths[2], lambda p: faiss.write_index(index, str(p)))
    return SegmentFile(name, kind, len(ids), tuple(path.stat().st_size for path in paths))


def open_segment(folder: Path, file: SegmentFile, version: int) -> VectorSegment | None:
    """Open a written segment memory-mapped; None when a file is missing or damaged."""
    if not intact(folder, file):
        return None
    paths = _paths(folder, file)
    try:
        ids = np.load(paths[0])
        raw: Any = faiss.read_index(str(paths[1]), faiss.IO_FLAG_MMAP_IFC)
        index: Any = raw if len(paths) == 2 else faiss.read_index(str(paths[2]))
    except (OSError, ValueError, RuntimeError):
        return None
    if len(ids) != file.rows or raw.ntotal != file.rows:
        return None
    flat = faiss.downcast_index(raw.storage) if file.kind == "hnsw" else raw
    return VectorSegment(ids, index, flat, kind=file.kind, version=version, file=file)


def intact(folder: Path, file: SegmentFile) -> bool:
    """Whether the files are there in their sizes; a change inside them is not noticed."""
    try:
        return tuple(path.stat().st_size for path in _paths(folder, file)) == file.sizes
    except OSError:
        return False


def _paths(folder: Path, file: SegmentFile) -> list[Path]:
    suffixes = ("ids.npy", "faiss", "ivfpq")[: len(file.sizes)]
    return [folder / f"{file.name}.{suffix}" for suffix in suffixes]


def remove_segment(folder: Path, file: SegmentFile) -> None:
    """Delete a segment's files; readers that have them mapped keep reading."""
    for suffix in ("ids.npy", "faiss", "ivfpq"):
        (folder / f"{file.name}.{suffix}").unlink(missing_ok=True)


def decode(data: bytes, rows: int, dimensions: int) -> Floats32:
    """Return a matrix over the bytes of a feed's vectors."""
    return np.frombuffer(data, "<f4").reshape(rows, dimensions)


def concatenate(parts: Sequence[tuple[Ids, Floats32]], dimensions: int) -> tuple[Ids, Floats32]:
    """Return all rows of ``parts`` in ascending order of ids."""
    if not parts:
        return np.empty(0, np.int64), np.empty((0, dimensions), np.float32)
    ids = np.concatenate([part[0] for part in parts])
    vectors = np.concatenate([part[1] for part in parts])
    order = np.argsort(ids, kind="stable")
    return ids[order], np.ascontiguousarray(vectors[order])


def _aside(path: Path, write: Callable[[Path], object]) -> None:
    aside = path.with_name("new-" + path.name)
    write(aside)
    with aside.open("rb+") as file:
        os.fsync(file.fileno())
    aside.replace(path)
