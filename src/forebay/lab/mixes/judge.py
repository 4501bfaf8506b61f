"""Whether small requests were safe, and whether what they left was used.

Kinds are ordered by work; kinds within a factor of two of each other are of one size. A set of the
smallest kinds *fits alone* when the engines, offered nothing else and sent everything straight on,
answer at least 97 % of each of its kinds in time. The largest such set is protected.

Rule 1: with everything offered, each protected kind has at least 97 % of the answers it has alone,
and at least 90 % in every second from the third on. A second counts when 50 of the kind's requests
are good alone; where they are fewer, it is lengthened to the next second until they are. Fifty is
what chance asks for: of a kind that loses 3 % here and there, as the first clause allows, a second
of ten requests falls under 90 % once in 28 seconds, one of fifty once in 270. One request lost is
never a fault.

Rule 2: work answered in time is at least 90 % of the clairvoyant schedule's, and not below that of
sending straight on. Both leave one of the largest requests of grace, since a run holds few of them.
Sending straight on counts up to the clairvoyant's work where it breaks rule 1: no schedule that
keeps the rule can be asked for more.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from forebay.lab.mixes.outcome import Flags

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

FITS = 0.97
MIN_SHARE = 0.97
MIN_SECOND_SHARE = 0.9
FROM_S = 2.0
MIN_COUNT = 50
ONE_SIZE = 2.0
MIN_OF_CLAIRVOYANT = 0.9
MIN_OF_STRAIGHT = 0.99
"""Not below, but for what one run differs from another by chance."""


class Offered(msgspec.Struct, frozen=True):
    """The requests of a mix as columns, by number."""

    at_s: Floats
    kind: Ints
    work_s: Floats
    names: tuple[str, ...]

    def done_s(self, good: Flags) -> float:
        """Engine seconds of what was answered in time."""
        return float(self.work_s[good].sum())

    def shares(self, good: Flags) -> dict[str, float]:
        """Share of each kind that was answered in time."""
        return {
            name: float(good[self.kind == place].mean())
            for place, name in enumerate(self.names)
            if (self.kind == place).any()
        }


def sizes(offered: Offered) -> list[tuple[int, ...]]:
    """Sets of the smallest kinds, each within the next; the last one is all that were offered."""
    found = [place for place in range(len(offered.names)) if (offered.kind == place).any()]
    means = {place: float(offered.work_s[offered.kind == place].mean()) for place in found}
    found.sort(key=lambda place: means[place])
    cuts = [
        number
        for number in range(1, len(found))
        if means[found[number]] >= ONE_SIZE * means[found[number - 1]]
    ]
    return [tuple(found[:cut]) for cut in (*cuts, len(found))] if found else []


def fits(offered: Offered, kinds: Sequence[int], alone: Flags) -> bool:
    """Whether a run of these kinds alone answered nearly all of each in time."""
    return all(_allowed(offered.kind == place, alone, FITS) for place in kinds)


def _allowed(asked: Flags, good: Flags, share: float) -> bool:
    count, done = int(asked.sum()), int((asked & good).sum())
    return count - done <= max(1.0, (1 - share) * count)


class Safety(msgspec.Struct, frozen=True):
    """How one protected kind fared beside the others, over how it fares alone."""

    kind: str
    share: float
    later_share: float
    """Of those from the third second on."""
    worst_second: float
    worst_at_s: float
    alone: int
    safe: bool


def safety(offered: Offered, place: int, good: Flags, alone: Flags) -> Safety:
    """Judge one kind by rule 1."""
    asked = alone & (offered.kind == place)
    kept = asked & good
    count, done = int(asked.sum()), int((good & (offered.kind == place)).sum())
    later = asked & (offered.at_s >= FROM_S)
    worst, worst_at_s = 1.0, 0.0
    last_s = int(offered.at_s.max(initial=0.0)) + 1
    of_second = np.bincount(offered.at_s[asked].astype(np.int64), minlength=last_s)
    kept_second = np.bincount(offered.at_s[kept].astype(np.int64), minlength=last_s)
    counts = np.concatenate([[0], np.cumsum(of_second)])
    keeps = np.concatenate([[0], np.cumsum(kept_second)])
    for start in range(int(FROM_S), last_s):
        end = int(np.searchsorted(counts, counts[start] + MIN_COUNT))
        if end > last_s:
            break
        end = max(end, start + 1)
        share = float((keeps[end] - keeps[start]) / (counts[end] - counts[start]))
        if share < worst:
            worst, worst_at_s = share, float(start)
    share = done / count if count else 1.0
    enough = count - done <= max(1.0, (1 - MIN_SHARE) * count)
    return Safety(
        offered.names[place],
        share,
        float(good[later].mean()) if later.any() else 1.0,
        worst,
        worst_at_s,
        count,
        enough and worst >= MIN_SECOND_SHARE,
    )


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What the judge says of one router on one mix; work in engine seconds."""

    safeties: tuple[Safety, ...]
    safe: bool
    """Rule 1."""
    work_s: float
    straight_s: float
    clairvoyant_s: float
    offered_s: float
    straight_safe: bool
    of_clairvoyant: float
    of_straight: float
    used: bool
    """Rule 2."""
    shares: dict[str, float]
    reasons: dict[str, int] = {}

    @property
    def passed(self) -> bool:
        """Both rules kept."""
        return self.safe and self.used

    @property
    def worst_share(self) -> float:
        """Of the protected kinds' shares; 1 where none is protected."""
        return min((one.share for one in self.safeties), default=1.0)

    @property
    def worst_second(self) -> float:
        """Of the protected kinds' seconds; 1 where none is protected."""
        return min((one.worst_second for one in self.safeties), default=1.0)


class Reference(msgspec.Struct, frozen=True):
    """What no gate decides: which kinds are protected, and what other schedules achieve."""

    protected: tuple[int, ...]
    alone: Flags
    """Good requests of the protected kinds, offered alone."""
    straight: Flags
    clairvoyant: Flags


def keeps_rule_1(offered: Offered, protected: Sequence[int], good: Flags, alone: Flags) -> bool:
    """Whether every protected kind is safe."""
    return all(safety(offered, place, good, alone).safe for place in protected)


def judge(
    offered: Offered, reference: Reference, good: Flags, reasons: dict[str, int] | None = None
) -> Verdict:
    """Judge a run by both rules."""
    found = tuple(safety(offered, place, good, reference.alone) for place in reference.protected)
    straight_safe = keeps_rule_1(offered, reference.protected, reference.straight, reference.alone)
    done_s = offered.done_s(good)
    clairvoyant_s = offered.done_s(reference.clairvoyant)
    straight_s = offered.done_s(reference.straight)
    wanted_s = straight_s if straight_safe else min(straight_s, clairvoyant_s)
    grace_s = float(offered.work_s.max(initial=0.0))
    used = (
        done_s + grace_s >= MIN_OF_CLAIRVOYANT * clairvoyant_s
        and done_s + grace_s >= MIN_OF_STRAIGHT * wanted_s
    )
    return Verdict(
        safeties=found,
        safe=all(one.safe for one in found),
        work_s=done_s,
        straight_s=straight_s,
        clairvoyant_s=clairvoyant_s,
        offered_s=float(offered.work_s.sum()),
        straight_safe=straight_safe,
        of_clairvoyant=done_s / clairvoyant_s if clairvoyant_s else 1.0,
        of_straight=done_s / wanted_s if wanted_s else 1.0,
        used=used,
        shares=offered.shares(good),
        reasons=reasons or {},
    )
