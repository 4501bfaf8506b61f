"""What caches need of other parts: what a result rested on, which version may be served, events.

Nothing here decides. ``retrieval`` says what a change brings to a query that was asked before,
``coordination`` which version of a knowledge base this process may serve, and ``cache`` judges.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Literal, Protocol

import msgspec

from forebay.kernel.clock import Deadline


class LegList(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Chunk ids best first with their scores; ``full``: there may be more beyond the last."""

    ids: tuple[int, ...] = ()
    scores: tuple[float, ...] = ()
    full: bool = False


class Evidence(msgspec.Struct, frozen=True, array_like=True):
    """What a retrieval rested on: enough to tell whether a change could alter its hits.

    ``words`` and ``vectors`` are the legs' candidates (``vectors`` None: words alone answered, by
    choice), ``fused`` the hits with their fused scores, ``full`` when ``top_k`` were found.
    ``chunks``: how many lived. ``constants`` are the retriever's own (terms and their worth, the
    query's vector, weights), for no other eyes. ``limit``: how many candidates a leg hands over.
    ``lead``: the smallest lead of a hit over the next candidate, in fused score. ``moved``: how
    many chunks came or went since the retrieval, up to the version this holds for. ``edge``: the
    lead of the last hit alone. ``chosen_from``: the hits given were chosen by something else from
    so many of ``fused``; 0: they are its first. ``shift``: the sum of ``Changes.shift`` since the
    retrieval.
    """

    chunks: int
    words: LegList
    vectors: LegList | None
    fused: LegList
    constants: bytes
    limit: int
    lead: float
    moved: int = 0
    edge: float = 0.0
    chosen_from: int = 0
    shift: float = 0.0


class Arrival(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A new chunk, or one with a new vector, that would stand in a leg's list of candidates.

    Its scores are by the constants of the evidence; ``cosine`` None: it has no vector yet, and
    ``fused`` is the most it can be while the legs' best are the same. ``fused`` is infinite when
    the chunk would change more than its own place.
    """

    chunk_id: int
    words: float
    cosine: float | None
    fused: float


class Changes(msgspec.Struct, frozen=True):
    """What happened to a knowledge base since a version, as one query sees it.

    ``chunks`` live now; ``moved`` came or went. ``removed``: chunks that live no more,
    ``altered``: chunks whose vector is another; ``arrivals`` in id order, those alone that would
    enter a list of the evidence. ``shift``: how much closer two fused scores may have come because
    chunks came that hold terms of the query, which are worth less by that.
    """

    version: int
    chunks: int
    moved: int
    removed: frozenset[int] = frozenset()
    altered: frozenset[int] = frozenset()
    arrivals: tuple[Arrival, ...] = ()
    shift: float = 0.0


class ChangeBounds(Protocol):
    """Says what changes mean for a query that was answered before."""

    def changes(self, kb: str, since: int, evidence: Evidence) -> Changes | None:
        """What happened after version ``since``; None: that is not known any more, or too much.

        ``since`` is the version of a search result or of earlier ``Changes``. Takes at most
        fractions of a millisecond; does not block. ``NotFound``: no such kb.
        """
        ...


class Served(msgspec.Struct, frozen=True):
    """The version of a knowledge base that a query may be answered from, and is verified to be new.

    ``leased`` False: the authority is out of reach; the version is this process's own finding and
    nothing that other processes share may be used.
    """

    version: int
    leased: bool = True


class ServedVersions(Protocol):
    """Which version this process may serve: never older than what was acknowledged before."""

    def current(self, kb: str) -> Served | None:
        """What holds at this moment, without a wait; None: ask ``renew``. ``NotFound``: no kb."""
        ...

    async def renew(self, kb: str, deadline: Deadline) -> Served:
        """Bring the process up to date first; ``Unavailable`` or ``DeadlineExceeded`` if it
        cannot be in time.
        """
        ...


EventKind = Literal["documents", "rules", "template", "model", "purge"]


class ChangeEvent(msgspec.Struct, frozen=True):
    """Something that ends the truth of cached results.

    ``kb`` empty: every knowledge base. ``version`` is the kb's after the change (0: none).
    ``documents`` may name what changed, empty: not told. ``origin`` names the process.
    """

    kind: EventKind
    kb: str = ""
    version: int = 0
    documents: tuple[str, ...] = ()
    origin: str = ""


class Delivery(msgspec.Struct, frozen=True):
    """An event and the position after it, from which a later subscription goes on.

    ``gap``: events before this one may have been lost (the log was cut): trust nothing older.
    """

    event: ChangeEvent
    position: str
    gap: bool = False


class ChangeBus(Protocol):
    """Carries change events between processes: ordered per kb, replayed after a disconnect."""

    async def publish(self, event: ChangeEvent) -> None:
        """Hand an event over; ``Unavailable`` when it is not certain that it will be delivered."""
        ...

    def subscribe(self, after: str = "") -> AsyncIterator[Delivery]:
        """Events after a position ('': from now on); reconnects by itself, never ends by itself."""
        ...

    async def close(self) -> None:
        """Let connections go; subscriptions end."""
        ...


class SharedValues(Protocol):
    """A store of bytes that processes share; losing it loses time, never truth."""

    async def get(self, key: bytes) -> bytes | None:
        """The value; None also when the store does not answer in time."""
        ...

    async def put(self, key: bytes, value: bytes, life_s: float) -> None:
        """Keep a value for so long; silently given up when the store does not answer."""
        ...

    async def claim(self, key: bytes, holder: str, life_s: float) -> bool:
        """Whether ``holder`` is now the one who makes the value of ``key`` (again: prolongs).

        Also True when the store does not answer: work twice done beats work not done.
        """
        ...

    async def release(self, key: bytes, holder: str) -> None:
        """End a claim of ``holder`` soon after all that was put before can be got; never waits."""
        ...

    async def clear(self) -> None:
        """Forget every value; ``Unavailable`` when it is not certain that this was done."""
        ...
