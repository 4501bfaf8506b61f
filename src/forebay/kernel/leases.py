"""What processes say to the authority over the versions of knowledge bases that machines share.

A process may use what is shared for a version only under a lease. A change is acknowledged when
nobody holds a lease of an older version any more. The authority's own time decides; lengths of
time travel, points in time do not. One process at a time is the writer of a kb, and a store takes
over only if its history holds what the authority knows to be in force.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

CLOCK_RATE = 0.001
"""How much faster or slower two clocks may run; real ones differ by less than a tenth of it."""

EVERYBODY = (1 << 53) - 1
"""What all have confirmed where nobody holds a lease; a number that scripts hold exactly."""

TAKEN = "taken"
"""Another writer is registered and has not run out."""

YOUNG = "young"
"""The authority began to know of the kb less than a lease ago: it may have forgotten a writer."""

FOREIGN = "foreign"
"""The claim does not name the version in force by its mark."""

GONE = "gone"
"""The mark of a version in which the kb was dropped: only the store that did so goes on."""


class Claim(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """``holder`` wants to be, or stay, the writer of ``kb`` with the store of that identity.

    ``mark`` is what its history has at ``version``, the version it last heard to be in force; an
    authority that remembers its writer asks a newcomer only. ``held``: it was the writer when it
    last heard.
    """

    kb: str
    store: str
    version: int = -1
    mark: str = ""
    held: bool = False


class Seat(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What became of a claim: "" is granted, for one lease; the version in force and its mark."""

    refusal: str
    version: int = -1
    mark: str = ""


class Pending(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A change of ``kb`` is about to be committed to ``version``; ``change`` is its own name.

    ``mark`` tells the version from others of its number; "" adds nothing to what is known.
    """

    kb: str
    version: int
    change: str
    mark: str = ""


class LeaseCall(msgspec.Struct, frozen=True, array_like=True):
    """One exchange, carried out in the order of the fields.

    ``claims``: to be the writer. ``begun``: changes that will be committed. ``done``: changes that
    were, or were not, with the version that is in force now; both count from the writer alone.
    ``confirmed``: by kb the version that ``holder`` answers from at
    least; it asks for a lease of each. ``leaves``: ``holder`` gives up all it has in ``asked``.
    ``asked``: kbs whose lowest confirmed version is wanted.
    """

    holder: str
    lease_s: float
    claims: tuple[Claim, ...] = ()
    begun: tuple[Pending, ...] = ()
    done: tuple[Pending, ...] = ()
    confirmed: tuple[tuple[str, int], ...] = ()
    asked: tuple[str, ...] = ()
    leaves: bool = False


class Grant(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What became of one ``confirmed``: a lease for ``lasts_s`` from now, 0: refused.

    ``version`` is the one in force, -1: the authority does not know; ``change`` the name of the
    change that is pending, if any.
    """

    lasts_s: float
    version: int
    change: str = ""


class LeaseReply(msgspec.Struct, frozen=True, array_like=True):
    """``grants`` by ``confirmed``, ``lowest`` by ``asked``: no lease of a lower version lives.

    ``seats`` by ``claims``.
    """

    grants: tuple[Grant, ...] = ()
    lowest: tuple[int, ...] = ()
    seats: tuple[Seat, ...] = ()


class VersionAuthority(Protocol):
    """Keeps versions and leases of all processes."""

    async def exchange(self, call: LeaseCall) -> LeaseReply:
        """Carry out one call, in one round trip.

        ``Unavailable`` when the authority is not reached or refuses to work. Whoever calls bounds
        the wait; a call that was cut off may still be carried out, at any time.
        """
        ...

    async def close(self) -> None:
        """Let connections go."""
        ...
