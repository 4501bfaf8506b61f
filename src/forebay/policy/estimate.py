"""How much a request will probably write: its cap at first, then what its kind has written.

A reservation for the full cap wastes most of a quota, since answers rarely reach it; a guess that
is too low admits too much. So the cap counts until ``learn_after`` requests of the same tenant and
route have settled; from then on a high quantile of what those wrote, never over the cap.

Whoever allows 2,000 tokens usually wants more of them than who allows 32, so the lengths of answers
with caps alike (within a factor of four) decide as soon as so many of them have settled; else a
route on which most answers are short would take the long ones for short, too.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

from forebay.policy.quantiles import RecentQuantiles

K = TypeVar("K")
LEAST_SEEN = 10
EXPECTED_SHARE, NEAR = 0.6, 1.5
REACHES = 0.5
"""Usual part of its cap from which an answer's length follows the cap."""


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

    __slots__ = ("_read_at", "learned", "long", "parts", "seen", "usual")

    def __init__(self, memory: int) -> None:
        self.seen = RecentQuantiles(least=1.0, memory=memory)
        # Of what was allowed; kept for kinds alone, whose sizes differ.
        self.parts = RecentQuantiles(least=0.001, memory=memory)
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
    """Lengths of answers by kind (a tenant and a route), and in it by the size of the cap.

    The longest unused kinds are forgotten, and so are the longest unused sizes.
    """

    def __init__(self, settings: EstimateSettings) -> None:
        self._settings = settings
        self._kinds: OrderedDict[str, _Lengths] = OrderedDict()
        self._sizes: OrderedDict[tuple[str, int], _Lengths] = OrderedDict()

    def estimate(self, kind: str, cap_tokens: int, wider: str = "") -> int:
        """Output tokens to reserve for a request of ``kind`` that may write ``cap_tokens``.

        ``wider``: the kind that counts while this one is not known.
        """
        known = self._known_or(kind, wider, cap_tokens, self._settings.learn_after)
        if known is None:
            return cap_tokens
        return min(cap_tokens, max(1, round(known.learned)))

    def expected(self, kind: str, cap_tokens: int, wider: str = "") -> int | None:
        """Output tokens the next request of ``kind`` probably writes; None while nothing is known.

        A cap says what is allowed, not what will come, so no time may be forecast from one that is
        far over what such answers need; one that is near or below is likely to be reached.
        """
        known = self._known_or(kind, wider, cap_tokens, LEAST_SEEN)
        if known is None:
            return None
        if (share := known.parts.at(EXPECTED_SHARE)) is not None and share >= REACHES:
            # Nothing of this size is known, and answers of other sizes reach what is allowed.
            return min(cap_tokens, max(1, round(share * cap_tokens)))
        return cap_tokens if cap_tokens <= NEAR * known.long else max(1, round(known.usual))

    def settled(self, kind: str, cap_tokens: int, output_tokens: int) -> None:
        """Note what a request wrote in the end, whole or cut by its cap.

        Answers that a client or an error cut short say nothing about lengths: do not report them.
        """
        self._add(self._kinds, kind, output_tokens)
        self._kinds[kind].parts.add(output_tokens / max(1, cap_tokens))
        self._add(self._sizes, (kind, _size(cap_tokens)), output_tokens)

    def statistics(self) -> dict[str, int]:
        """Kinds remembered, and how many of them have been learned."""
        ready = self._settings.learn_after
        return {
            "kinds": len(self._kinds),
            "learned": sum(known.seen.count >= ready for known in self._kinds.values()),
        }

    def _known_or(self, kind: str, wider: str, cap_tokens: int, least: int) -> _Lengths | None:
        known = self._known(kind, cap_tokens, least)
        return self._known(wider, cap_tokens, least) if known is None and wider else known

    def _known(self, kind: str, cap_tokens: int, least_seen: int) -> _Lengths | None:
        """What decides: answers with caps alike, else all of the kind."""
        size = kind, _size(cap_tokens)
        known = self._sizes.get(size)
        if known is not None and known.seen.count >= least_seen:
            self._sizes.move_to_end(size)
        else:
            known = self._kinds.get(kind)
            if known is None or known.seen.count < least_seen:
                return None
        if kind in self._kinds:
            self._kinds.move_to_end(kind)
        known.read(self._settings)
        return known

    def _add(self, lengths: OrderedDict[K, _Lengths], key: K, output_tokens: int) -> None:
        known = lengths.get(key)
        if known is None:
            known = lengths[key] = _Lengths(self._settings.memory)
            if len(lengths) > self._settings.max_kinds:
                lengths.popitem(last=False)
        else:
            lengths.move_to_end(key)
        known.seen.add(output_tokens)


def _size(cap_tokens: int) -> int:
    return cap_tokens.bit_length() // 2
