"""The fragility watch of a process: what is normal for each knowledge base, and who hears of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import msgspec

from forebay.app.runtime import Reading, store_folder
from forebay.app.view_memory import ViewMemory
from forebay.context.attribution import unsupported_share
from forebay.kernel.errors import ForebayError, NotFound, first_error
from forebay.pipeline.fragility import Fragility, Spread
from forebay.policy.fragility import Bounds, FragilityChange
from forebay.retrieval import Snapshot
from forebay.retrieval.spread import FIRST, SpreadCalibration, calibrate_spread, hit_spread

log = logging.getLogger("forebay.fragility")

_LOOK_S = 5.0
"""A calibration is made once a corpus and again when its size has doubled: seconds late is soon."""
REMEMBERED = 8192
"""Spreads kept, some 300 bytes each."""
_decoder = msgspec.json.Decoder(SpreadCalibration)


class Calibrations:
    """What spread of hits is normal, by knowledge base; kept in files beside the store's.

    ``spread`` answers for searches; ``run`` makes what is missing, beside everything else.
    """

    def __init__(self, reading: Reading, folder: Path) -> None:
        self._reading = reading
        self._folder = folder
        self._known: dict[str, SpreadCalibration] = {}
        self._spreads: ViewMemory[float] = ViewMemory(REMEMBERED)

    async def spread(self, kb: str, chunk_ids: Sequence[int]) -> Spread | None:
        """How alike hits are, and what is normal; None where they have no vectors."""
        snapshot = self._snapshot(kb)
        if snapshot is None or not snapshot.vectors.rows:
            return None
        view, key = snapshot.vectors, (kb, tuple(chunk_ids[:FIRST]))
        value = self._spreads.get(view, key)
        if value is None:
            value = await self._reading.threads.run(partial(hit_spread, view, chunk_ids))
            if value is None:
                return None
            self._spreads.keep(view, key, value)
        return Spread(value, self._bounds(kb, snapshot))

    async def run(self) -> None:
        """Look for knowledge bases whose calibration is missing or of another time."""
        while True:
            await self.look()
            await asyncio.sleep(_LOOK_S)

    async def look(self) -> None:
        """Make what is missing now."""
        names = self._reading.indexes.names()
        self._known = {kb: kept for kb, kept in self._known.items() if kb in names}
        for kb in names:
            snapshot = self._snapshot(kb)
            if snapshot is None or self._bounds(kb, snapshot) is not None:
                continue
            with suppress(ForebayError):  # the next look tries again
                made = await self._reading.threads.run(partial(self._make, kb, snapshot))
                if made is not None:
                    self._known[kb] = made

    def _snapshot(self, kb: str) -> Snapshot | None:
        with suppress(NotFound):
            return self._reading.indexes.get(kb).snapshot()
        return None

    def _bounds(self, kb: str, snapshot: Snapshot) -> Bounds | None:
        kept = self._known.get(kb)
        if kept is None or not kept.holds(snapshot.vectors):
            return None
        settings = self._reading.settings.fragility
        return Bounds(
            kept.at(settings.spread_normal_percentile), kept.at(settings.spread_fragile_percentile)
        )

    def _make(self, kb: str, snapshot: Snapshot) -> SpreadCalibration | None:
        """Read the file, or search for the neighbourhoods of chosen chunks; blocking."""
        path = self._folder / f"{kb}.spread.json"
        with suppress(OSError, msgspec.DecodeError):
            kept = _decoder.decode(path.read_bytes())
            if kept.holds(snapshot.vectors):
                return kept
        made = calibrate_spread(
            snapshot.vectors, lambda vector, limit: snapshot.search_vectors(vector, limit, ())[0]
        )
        if made is not None:
            with suppress(OSError):  # it is made again at the next start
                self._folder.mkdir(parents=True, exist_ok=True)
                scratch = path.with_suffix(".new")
                scratch.write_bytes(msgspec.json.format(msgspec.json.encode(made)))
                scratch.replace(path)
        return made


@asynccontextmanager
async def open_fragility(reading: Reading) -> AsyncIterator[Fragility | None]:
    """The watch of a process; None where it is off. Calibrations are made beside the block."""
    settings = reading.settings.fragility
    if not settings.enabled:
        yield None
        return
    calibrations = Calibrations(reading, store_folder(reading.settings) / "calibration")
    watch = Fragility(settings, calibrations.spread, unsupported_share, tell)
    try:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(calibrations.run())
            try:
                yield watch
            finally:
                task.cancel()
    except BaseExceptionGroup as errors:
        raise first_error(errors) from None


def tell(change: FragilityChange) -> None:
    """One line for a rolling figure that changed its level."""
    level = logging.INFO if change.level == "normal" else logging.WARNING
    log.log(
        level,
        "retrieval is %s by its %s",
        change.level,
        change.sign,
        extra={"kb": change.kb, "was": change.was, "value": round(change.value, 4)},
    )
