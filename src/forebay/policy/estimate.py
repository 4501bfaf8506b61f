"""How much a request will probably write: its cap at first, then what its kind has written.

A reservation for the full cap wastes most of a quota, since answers rarely reach it; a guess that
is too low admits too much. So the cap counts until ``learn_after`` requests of the same tenant and
route have settled; from then on a high quantile of what those wrote, never over the cap.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Annotated

import msgspec
from msgspec import Meta

from forebay.policy.quantiles import RecentQuantiles

LEAST_SEEN = 10
EXPECTED_SHARE, NEAR = 0.6, 1.5


class EstimateSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How output lengths are learned."""

    learn_after: Annotated[
        int, Meta(description="Settled requests before the learned length replaces the cap.", ge=1)
    ] = 50
    quantile: Annotated[
        float, Meta(description="Share of answers the estimate covers.", gt=0.0, lt=1.0)
    ] = 0.9
    memory: Annotated[
        int, Meta(description="Recent answers that decide, for each tenant and route.", ge=10)
    ] = 500
    max_kinds: Annotated[
        int, Meta(description="Tenants times routes remembered at most.", ge=1)
    ] = 10_000


REFRESH_SHARE = 32
"""Lengths are read anew when one in so many is new: reading takes some microseconds."""


class _Lengths:
    """What one kind has written, and what was read of it."""

    __slots__ = ("_read_at", "learned", "long", "seen", "usual")

    def __init__(self, memory: int) -> None:
        self.seen = RecentQuantiles(least=1.0, memory=memory)
        self.learned = self.usual = self.long = 0.0
        self._read_at = 0

    def read(self, settings: EstimateSettings) -> None:
        """Have the quantiles as they are, or were a moment ago."""
        count = self.seen.count
        if count < self._read_at + max(1, min(count, settings.memory) // REFRESH_SHARE):
            return
        usual, long = self.seen.several((EXPECTED_SHARE, 0.9))
        learned = self.seen.at(settings.quantile)
        assert usual is not None
        assert long is not None
        assert learned is not None
        self.usual, self.long, self.learned, self._read_at = usual, long, learned, count


class OutputEstimates:
    """Lengths of answers by kind (a tenant and a route), the longest unused kinds forgotten."""

    def __init__(self, settings: EstimateSettings) -> None:
        self._settings = settings
        self._kinds: OrderedDict[str, _Lengths] = OrderedDict()

    def estimate(self, kind: str, cap_tokens: int) -> int:
        """Output tokens to reserve for a request of ``kind`` that may write ``cap_tokens``."""
        known = self._kinds.get(kind)
        if known is None or known.seen.count < self._settings.learn_after:
            return cap_tokens
        self._kinds.move_to_end(kind)
        known.read(self._settings)
        return min(cap_tokens, max(1, round(known.learned)))

    def expected(self, kind: str, cap_tokens: int) -> int | None:
        """Output tokens the next request of ``kind`` probably writes; None while nothing is known.

        A cap says what is allowed, not what will come, so no time may be forecast from one that is
        far over what such answers need; one that is near or below is likely to be reached.
        """
        known = self._kinds.get(kind)
        if known is None or known.seen.count < LEAST_SEEN:
            return None
        known.read(self._settings)
        return cap_tokens if cap_tokens <= NEAR * known.long else max(1, round(known.usual))

    def settled(self, kind: str, output_tokens: int) -> None:
        """Note what a request wrote in the end, whole or cut by its cap.

        Answers that a client or an error cut short say nothing about lengths: do not report them.
        """
        known = self._kinds.get(kind)
        if known is None:
            known = self._kinds[kind] = _Lengths(self._settings.memory)
            if len(self._kinds) > self._settings.max_kinds:
                self._kinds.popitem(last=False)
        else:
            self._kinds.move_to_end(kind)
        known.seen.add(output_tokens)

    def statistics(self) -> dict[str, int]:
        """Kinds remembered, and how many of them have been learned."""
        ready = self._settings.learn_after
        return {
            "kinds": len(self._kinds),
            "learned": sum(known.seen.count >= ready for known in self._kinds.values()),
        }
