"""A versioned tier whose changes a test decides, and requests to ask it with."""

from __future__ import annotations

from collections.abc import Mapping

from forebay.cache.carrying import carried
from forebay.cache.memory import MemorySettings, MemoryTier
from forebay.cache.retrieval import KeptHits
from forebay.cache.values import KIND_RETRIEVAL, StructCodec
from forebay.cache.versioned import Entry, TierParts, VersionedTier
from forebay.kernel.caching import Changes, Evidence, LegList, Served, SharedValues
from forebay.kernel.clock import Clock, Deadline, VirtualClock
from forebay.kernel.context import Principal, RequestContext
from forebay.kernel.documents import ChunkRow, Hit
from forebay.kernel.errors import Unavailable

EVIDENCE = Evidence(
    chunks=10_000,
    words=LegList((1, 2, 3), (9.0, 8.0, 7.0), full=True),
    vectors=None,
    fused=LegList((1, 2), (0.9, 0.8), full=True),
    constants=b"",
    limit=3,
    lead=0.1,
)


class World:
    """The knowledge base as the process knows it: its version, and what each change did."""

    def __init__(self) -> None:
        self.unreadable = False
        self.version = 1
        self.leased = True
        self.since: dict[int, Changes | None] = {}
        self.marks: dict[tuple[str, int], int] = {}
        self.renewals = 0

    def change(self, removed: frozenset[int] = frozenset()) -> None:
        """One more version, in which chunks were removed; by default one that touches nobody."""
        self.version += 1
        for version in range(self.version):
            before = self.since.get(version)
            gone = removed | (before.removed if before is not None else frozenset())
            self.since[version] = Changes(
                version=self.version, chunks=10_000, moved=1, removed=gone
            )

    # ``ChangeBounds``

    def changes(self, kb: str, since: int, evidence: Evidence) -> Changes | None:
        del kb, evidence
        return self.since.get(since)

    # ``ServedVersions``

    def current(self, kb: str) -> Served | None:
        del kb
        return Served(self.version, self.leased)

    async def renew(self, kb: str, deadline: Deadline) -> Served:
        del kb, deadline
        self.renewals += 1
        return Served(self.version, self.leased)

    async def mark_of(self, kb: str, version: int) -> int | None:
        if self.unreadable:
            raise Unavailable("too many reads of the store are under way.")
        return self.marks.get((kb, version), version * 7)


def tier_of(
    world: World,
    clock: VirtualClock,
    shared: SharedValues | None = None,
    wall: Clock | None = None,
) -> VersionedTier[KeptHits]:
    memory: MemoryTier[bytes] = MemoryTier(MemorySettings(1 << 20), clock)
    return VersionedTier(
        TierParts(
            memory=memory,
            codec=StructCodec(KIND_RETRIEVAL, Entry[KeptHits]),
            bounds=world,
            judge=carried,
            clock=wall or clock,
            shared=shared,
            mark_of=world.mark_of,
        )
    )


def entry_of(version: int = 1, life_s: float = 60.0, made_at: float = 0.0) -> Entry[KeptHits]:
    return Entry("k", version, 2, made_at, life_s, EVIDENCE, KeptHits((hit(1), hit(2)), "bm25"))


def hit(chunk_id: int, text: str = "text", tags: tuple[str, ...] = ()) -> Hit:
    metadata: Mapping[str, str] = {}
    row = ChunkRow(
        chunk_id=chunk_id,
        document_id=f"d{chunk_id}",
        ordinal=0,
        start=0,
        end=len(text),
        text=text,
        context="",
        tokens=1,
        page=None,
        heading_path=(),
        title="",
        source="",
        language="en",
        tags=tags,
        groups=(),
        metadata=metadata,
        version=1,
    )
    return Hit(row, 1.0 / chunk_id)


def context_of(clock: VirtualClock, principal: Principal | None = None) -> RequestContext:
    return RequestContext(
        request_id="r",
        principal=principal or Principal(),
        deadline=Deadline.after(10.0, clock),
        clock=clock,
    )
