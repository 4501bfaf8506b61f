"""Which segments to merge: deltas into segments, segments in size tiers, the half-dead anew."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from forebay.retrieval.settings import VectorSettings


class SegmentSize(msgspec.Struct, frozen=True):
    """What the decision needs to know of one segment."""

    alive: int
    dead: int
    on_disk: bool

    @property
    def dead_share(self) -> float:
        """Share of rows that were removed."""
        return self.dead / max(1, self.alive + self.dead)


def choose_merge(
    sizes: Sequence[SegmentSize], settings: VectorSettings, *, force: bool = False
) -> tuple[int, ...]:
    """Return the positions of the segments to merge into one now; empty when nothing is due.

    Deltas are folded when they hold ``fold_rows`` together; a segment is rebuilt when more
    than ``dead_share_max`` of it is dead; ``tier_ratio`` segments of one tier (sizes within
    that ratio) become one of the next, so a vector is rewritten once per tier of its index.
    """
    deltas = [i for i, size in enumerate(sizes) if not size.on_disk]
    in_memory = sum(sizes[i].alive + sizes[i].dead for i in deltas)
    chosen = set(deltas) if in_memory >= settings.fold_rows or (force and in_memory) else set()
    chosen |= {
        i
        for i, size in enumerate(sizes)
        if size.on_disk and size.dead_share > settings.dead_share_max
    }
    rest = [i for i, size in enumerate(sizes) if size.on_disk and i not in chosen]
    while chosen or rest:
        total = sum(sizes[i].alive for i in chosen)
        tier = _tier(total, settings) if chosen else 0
        peers = [i for i in rest if _tier(sizes[i].alive, settings) <= tier]
        if len(peers) + bool(chosen) < settings.tier_ratio or not peers:
            break
        chosen |= set(peers)
        rest = [i for i in rest if i not in chosen]
    return tuple(sorted(chosen))


def _tier(rows: int, settings: VectorSettings) -> int:
    tier, bound = 0, settings.fold_rows * settings.tier_ratio
    while rows >= bound:
        tier, bound = tier + 1, bound * settings.tier_ratio
    return tier
