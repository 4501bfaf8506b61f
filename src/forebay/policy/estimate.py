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


class OutputEstimates:
    """Lengths of answers by kind (a tenant and a route), the longest unused kinds forgotten."""

    def __init__(self, settings: EstimateSettings) -> None:
        self._settings = settings
        self._kinds: OrderedDict[str, RecentQuantiles] = OrderedDict()

    def estimate(self, kind: str, cap_tokens: int) -> int:
        """Output tokens to reserve for a request of ``kind`` that may write ``cap_tokens``."""
        seen = self._kinds.get(kind)
        if seen is None or seen.count < self._settings.learn_after:
            return cap_tokens
        self._kinds.move_to_end(kind)
        learned = seen.at(self._settings.quantile)
        assert learned is not None
        return min(cap_tokens, max(1, round(learned)))

    def expected(self, kind: str, cap_tokens: int) -> int | None:
        """Output tokens the next request of ``kind`` probably writes; None while nothing is known.

        A cap says what is allowed, not what will come, so no time may be forecast from one that is
        far over what such answers need; one that is near or below is likely to be reached.
        """
        seen = self._kinds.get(kind)
        if seen is None or seen.count < LEAST_SEEN:
            return None
        usual, long = seen.several((EXPECTED_SHARE, 0.9))
        assert usual is not None
        assert long is not None
        return cap_tokens if cap_tokens <= NEAR * long else max(1, round(usual))

    def settled(self, kind: str, output_tokens: int) -> None:
        """Note what a request wrote in the end, whole or cut by its cap.

        Answers that a client or an error cut short say nothing about lengths: do not report them.
        """
        seen = self._kinds.get(kind)
        if seen is None:
            seen = RecentQuantiles(least=1.0, memory=self._settings.memory)
            self._kinds[kind] = seen
            if len(self._kinds) > self._settings.max_kinds:
                self._kinds.popitem(last=False)
        else:
            self._kinds.move_to_end(kind)
        seen.add(output_tokens)

    def statistics(self) -> dict[str, int]:
        """Kinds remembered, and how many of them have been learned."""
        ready = self._settings.learn_after
        return {
            "kinds": len(self._kinds),
            "learned": sum(seen.count >= ready for seen in self._kinds.values()),
        }
