"""The vector side of an index: deltas in memory, segments on disk, a manifest that publishes.

Life of a vector: the record stores it; ``catch_up`` puts it into a small exact delta in memory;
``fold`` writes deltas as a segment and merges segments in size tiers; the manifest, renamed into
place, publishes the segments to reader processes and to the next start. Nothing on disk is
needed for correctness: what is missing or damaged is read from the record again.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np

from forebay.kernel.errors import Gone
from forebay.kernel.stages import IndexFeed
from forebay.retrieval.files import read_struct, sync_folder, write_struct
from forebay.retrieval.segments import (
    Floats32,
    Ids,
    SegmentFile,
    VectorSegment,
    concatenate,
    decode,
    exact_segment,
    intact,
    open_segment,
    remove_segment,
)
from forebay.retrieval.settings import VectorSettings
from forebay.retrieval.vector_view import LiveSegment, VectorView, spread_hash

_FORMAT = 1
_ROWS_PER_DELTA = 16_384
_OPEN_ATTEMPTS = 5


class Manifest(msgspec.Struct, frozen=True):
    """The published segments: every vector stored up to ``version`` is in one of them."""

    format: int
    serial: int
    fingerprint: str
    version: int
    segments: tuple[SegmentFile, ...] = ()


class VectorStore:
    """One knowledge base's vectors. Calls are serialised by the owner; views are shared."""

    def __init__(self, folder: Path, kb: str, feed: IndexFeed, settings: VectorSettings) -> None:
        self.folder = folder
        self._kb = kb
        self.feed = feed
        self.settings = settings
        self._manifest: Manifest | None = None
        self._sealed: frozenset[int] = frozenset()
        self.view = VectorView((), fingerprint=None, version=0, settings=settings)

    @property
    def manifest_path(self) -> Path:
        """The file whose renaming publishes segments."""
        return self.folder / "vectors"

    def open(self, fingerprint: str | None) -> None:
        """Load what is published for ``fingerprint`` and read the rest from the record."""
        for _ in range(_OPEN_ATTEMPTS):
            manifest = read_struct(self.manifest_path, Manifest)
            if manifest is None or manifest.format != _FORMAT:
                manifest = None
                break
            if manifest.fingerprint != fingerprint:
                manifest = None
                break
            opened = [
                open_segment(self.folder, file, manifest.version) for file in manifest.segments
            ]
            if all(segment is not None for segment in opened):
                self._load(manifest, [s for s in opened if s is not None], fingerprint)
                return
            # The writer may have replaced the segments between our reading the manifest and
            # opening its files; a second look then finds the new ones.
        self._manifest = None
        self._load(None, [], fingerprint)

    def _load(
        self, manifest: Manifest | None, segments: list[VectorSegment], fingerprint: str | None
    ) -> None:
        self._manifest = manifest
        everything = self.feed.changes(self._kb, 0)
        if fingerprint is None:
            self.view = VectorView(
                (), fingerprint=None, version=everything.version, settings=self.settings
            )
            return
        living = np.asarray(everything.embedded, np.int64)
        fresh = living
        if manifest is not None:
            try:
                newer = self.feed.changes(self._kb, manifest.version).embedded
            except Gone:
                # Which vectors were stored anew since is no longer known: take all of them anew.
                segments, self._manifest = [], None
            else:
                fresh = np.asarray(newer, np.int64)
        held: list[LiveSegment] = []
        for segment in segments:
            gone = np.concatenate([np.setdiff1d(segment.ids, living), fresh])
            held.append(LiveSegment(segment).without(gone))
        stored = [live.alive()[0] for live in held]
        known = np.concatenate(stored) if stored else np.empty(0, np.int64)
        missing = np.setdiff1d(living, known)
        deltas = self._deltas(missing, everything.version)
        self.view = VectorView(
            (*held, *deltas),
            fingerprint=fingerprint,
            version=everything.version,
            settings=self.settings,
        )

    def _deltas(self, ids: Ids, version: int) -> list[LiveSegment]:
        """Read vectors from the record into exact segments in memory."""
        made: list[LiveSegment] = []
        for start in range(0, len(ids), _ROWS_PER_DELTA):
            wanted = ids[start : start + _ROWS_PER_DELTA].tolist()
            found = self.feed.vectors(self._kb, wanted)
            if found.ids:
                part = (
                    np.asarray(found.ids, np.int64),
                    decode(found.data, len(found.ids), found.dimensions),
                )
                ordered = concatenate([part], found.dimensions)
                made.append(LiveSegment(exact_segment(*ordered, version)))
        return made

    def catch_up(self, fingerprint: str | None) -> bool:
        """Take in what the record stored and removed since; True when the view changed."""
        if fingerprint != self.view.fingerprint:
            self.open(fingerprint)
            return True
        try:
            changes = self.feed.changes(self._kb, self.view.version)
        except Gone:
            self.open(fingerprint)
            return True
        if changes.version == self.view.version:
            return False
        if fingerprint is None or not (changes.removed or changes.embedded):
            self._show(self.view.segments, changes.version, touched=None)
            return True
        embedded = np.asarray(changes.embedded, np.int64)
        gone = np.concatenate([np.asarray(changes.removed, np.int64), embedded])
        segments = [each.without(gone) for each in self.view.segments]
        deltas = self._deltas(embedded, changes.version)
        self._show(tuple(self._compacted([*segments, *deltas])), changes.version, touched=gone)
        return True

    def _show(self, segments: Sequence[LiveSegment], version: int, *, touched: Ids | None) -> None:
        """Publish a view; the background is chosen again only when ``touched`` bears on it."""
        background: tuple[Ids, Floats32] | None = self.view.background_rows
        chosen = self.view.background_rows[0]
        if touched is not None and len(touched):
            full = len(chosen) and self.view.rows > len(chosen)
            bound = spread_hash(chosen).max() if full else np.uint64(2**64 - 1)
            if (spread_hash(touched) <= bound).any():
                background = None
        self.view = VectorView(
            tuple(segments),
            fingerprint=self.view.fingerprint,
            version=version,
            settings=self.settings,
            background=background,
        )

    def _compacted(self, segments: list[LiveSegment]) -> list[LiveSegment]:
        """Join neighbouring deltas of like size, so that their number stays logarithmic."""
        while len(segments) >= 2 and all(self._joinable(each) for each in segments[-2:]):
            last, before = segments[-1], segments[-2]
            if len(before) > 2 * len(last) or len(before) + len(last) > _ROWS_PER_DELTA:
                break
            segments[-2:] = [_joined([before, last])]
        return segments

    def _joinable(self, each: LiveSegment) -> bool:
        return each.segment.file is None and id(each.segment) not in self._sealed

    def seal(self) -> tuple[LiveSegment, ...]:
        """Return all segments and keep them whole until ``replace`` or ``unseal``."""
        self._sealed = frozenset(id(each.segment) for each in self.view.segments)
        return self.view.segments

    def unseal(self) -> None:
        """Let deltas be joined again."""
        self._sealed = frozenset()

    def replace(
        self, old: Sequence[LiveSegment], new: Sequence[SegmentFile], *, covered: int
    ) -> None:
        """Put written segments in the place of ``old`` ones and publish them.

        What died while they were built is dead in them too.
        """
        opened = [open_segment(self.folder, file, self.view.version) for file in new]
        segments = [segment for segment in opened if segment is not None]
        if len(segments) != len(new):
            raise OSError("a segment that was just written cannot be opened")
        gone_segments = {id(each.segment) for each in old}
        current = [each for each in self.view.segments if id(each.segment) in gone_segments]
        kept = [each for each in self.view.segments if id(each.segment) not in gone_segments]
        alive = [each.alive()[0] for each in current]
        living = np.concatenate(alive) if alive else np.empty(0, np.int64)
        fresh = [
            LiveSegment(segment).without(np.setdiff1d(segment.ids, living)) for segment in segments
        ]
        on_disk = [each for each in kept if each.segment.file is not None]
        in_memory = [each for each in kept if each.segment.file is None]
        self._show((*on_disk, *fresh, *in_memory), self.view.version, touched=None)
        files = [each.segment.file for each in (*on_disk, *fresh)]
        self._publish(tuple(file for file in files if file is not None), covered)

    def _publish(self, files: tuple[SegmentFile, ...], covered: int) -> None:
        # What is on disk may be damaged and so not be ours; a reader must still see a new serial.
        before = self._manifest or read_struct(self.manifest_path, Manifest)
        manifest = Manifest(
            format=_FORMAT,
            serial=1 if before is None else before.serial + 1,
            fingerprint=self.view.fingerprint or "",
            version=covered,
            segments=files,
        )
        sync_folder(self.folder)
        write_struct(self.manifest_path, manifest)
        sync_folder(self.folder)
        self._manifest = manifest
        names = {file.name for file in files}
        for path in self.folder.glob("segment-*.ids.npy"):
            name = path.name.removesuffix(".ids.npy")
            if name not in names:
                remove_segment(self.folder, SegmentFile(name, "exact", 0, ()))

    def follow(self, fingerprint: str | None) -> bool:
        """As a reader: take over newly published segments, then catch up."""
        manifest = read_struct(self.manifest_path, Manifest)
        mine = self._manifest
        if (
            manifest is not None
            and manifest.fingerprint == fingerprint
            and (mine is None or (mine.fingerprint, mine.serial) != (fingerprint, manifest.serial))
        ):
            self.open(fingerprint)
            return True
        return self.catch_up(fingerprint)

    def harmed(self) -> bool:
        """Whether the files of a segment in use are gone or have changed in size."""
        files = [each.segment.file for each in self.view.segments]
        return not all(intact(self.folder, file) for file in files if file is not None)

    @property
    def covered(self) -> int:
        """The kb version up to which vectors are in published segments."""
        return 0 if self._manifest is None else self._manifest.version


def _joined(parts: Sequence[LiveSegment]) -> LiveSegment:
    matrices = []
    for each in parts:
        ids, rows = each.alive()
        matrices.append((ids, each.segment.vectors(rows)))
    dimensions = parts[0].segment.flat.d
    version = max(each.segment.version for each in parts)
    return LiveSegment(exact_segment(*concatenate(matrices, dimensions), version))
