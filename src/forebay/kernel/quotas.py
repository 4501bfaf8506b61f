"""What processes that share quotas say to the one place that keeps them.

One exchange carries a batch: amounts that go to or come from buckets whatever is in them, then
reservations, each all or none over its buckets, then leases on top for requests to come. The
authority's time decides, and what it grants is charged at once: a process that dies with a lease
has spent it.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

LEASE_SHARE = 0.1
"""Most of a bucket's level that one lease on top may take. A tenth also means that a bucket with
less than ten requests' worth left leases nothing (see ``SharedBucket.unit``)."""

PRESENCE_S = 5.0
"""How long a process counts as present after it named itself."""


class SharedBucket(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One bucket of an exchange: its limit, and what moves beside the reservations.

    ``charge`` is taken whatever is there (into debt, down to minus one burst), negative gives
    back. ``extra`` asks for a lease of so much at most; it is granted in ``LEASE_SHARE`` of what
    is left after the reservations, and not at all when that is less than ``unit``, about one
    request.
    """

    dimension: str
    key: str
    rate_per_s: float
    burst: float
    charge: float = 0.0
    extra: float = 0.0
    unit: float = 0.0


class WorkPlaces(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The places at work of a tenant, as one process has them.

    It ``held`` so many of ``most`` when it spoke, wants ``wanted`` more for requests that wait,
    and may get up to ``extra`` on top, in ``LEASE_SHARE`` of those that are left then.
    """

    key: str
    most: int
    held: int
    wanted: int = 0
    extra: int = 0


class QuotaCall(msgspec.Struct, frozen=True, array_like=True):
    """A batch from one process.

    ``reservations`` name buckets by their place in ``buckets``, with the amount each must pay.
    ``process`` is a name that counts it among those present; empty: it was named a moment ago.
    ``places`` say all that the named process holds of theirs; what it does not say for
    ``PRESENCE_S`` is free again. A call with a ``number`` that is not above the one before came
    late: it changes no places.
    """

    buckets: tuple[SharedBucket, ...] = ()
    reservations: tuple[tuple[tuple[int, float], ...], ...] = ()
    process: str = ""
    places: tuple[WorkPlaces, ...] = ()
    number: int = 0


class QuotaReply(msgspec.Struct, frozen=True, array_like=True):
    """What became of a call.

    ``levels`` and ``extras`` are by bucket, after everything; ``refusals`` by reservation: None
    when it was granted, else the bucket that pays last and the seconds until it can. ``untaken`` is
    what of each bucket's charge would have gone below minus one burst, so that nobody paid it.
    ``processes`` counts those present, 0 when the call named none. ``places`` are how many more of
    each the process has, and how many are left then.
    """

    levels: tuple[float, ...] = ()
    extras: tuple[float, ...] = ()
    refusals: tuple[tuple[int, float] | None, ...] = ()
    processes: int = 0
    places: tuple[tuple[int, int], ...] = ()
    untaken: tuple[float, ...] = ()


class QuotaAuthority(Protocol):
    """Keeps the buckets of all processes."""

    async def exchange(self, call: QuotaCall) -> QuotaReply:
        """Carry out a batch, in one round trip.

        ``Unavailable`` when the authority is not reached or refuses to work; ``AllInUse`` when
        every way to it is taken: then nothing was sent, and nothing is wrong. Whoever calls bounds
        the wait; a call that was cut off may still be carried out.
        """
        ...

    async def close(self) -> None:
        """Let connections go."""
        ...
