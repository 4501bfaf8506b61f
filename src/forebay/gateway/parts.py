"""What the gateway is handed: the lives of the pipeline, two stages, settings, sinks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import msgspec

from forebay.gateway.admission import QuotaKeeper
from forebay.gateway.identity import Identity
from forebay.gateway.settings import ServerSettings
from forebay.kernel.chance import RandomNames
from forebay.kernel.clock import Clock, WallClock
from forebay.kernel.context import RequestContext
from forebay.kernel.stages import Embedder, Reranker
from forebay.pipeline.chunk_keys import ChunkService
from forebay.pipeline.messages import Answering, Knowledge
from forebay.pipeline.recollection import Recollecting
from forebay.pipeline.scenes import Scenes
from forebay.telemetry.ids import TraceIds, begin_trace
from forebay.telemetry.metrics import Metrics
from forebay.telemetry.opening import Sink


class Readiness(msgspec.Struct, frozen=True):
    """Whether requests can be served.

    ``reasons`` say what is still missing when not ready; ``degraded`` what works at less than
    its best although ready. ``embedded_share`` of all chunks have a vector; None: none is wanted.
    """

    ready: bool
    reasons: tuple[str, ...] = ()
    degraded: tuple[str, ...] = ()
    embedded_share: float | None = None


def always_ready() -> Readiness:
    """Readiness of parts that need no warming."""
    return Readiness(True)


def random_ids() -> Callable[[], str]:
    """Answers 96 random bits as hex, others at each call."""
    return RandomNames(12)


class Charging(Protocol):
    """Quotas of requests that go through no pipeline."""

    def check(self, ctx: RequestContext) -> None:
        """Raise ``PermissionDenied`` for who is on the deny list."""
        ...

    async def charge(self, ctx: RequestContext, route: str, tokens: int) -> None:
        """Charge so many tokens; ``RateLimited`` when a quota is used up."""
        ...


class GatewayParts(msgspec.Struct, frozen=True):
    """Everything the gateway works with; it builds none of it.

    ``embedder`` None answers /v1/embeddings, ``reranker`` None /v1/rerank, with 404; ``quotas``
    None leaves /v1/admission out, ``chunks`` None the keys of chunks.
    ``figures`` answers /metrics for every process of the service; None: this one shows its own.
    ``recollecting`` remembers answers for equal requests in ``replays_max_bytes``.
    ``count_tokens`` counts an embedding request's tokens off the event loop; without it the
    count is an estimate from characters.
    ``charging`` charges what needs no engine and knows who is denied; None: nobody is.
    ``engines``: an engine writes answers; else they are quotations. ``scenes`` says what requests
    are for; None: nobody does.
    """

    answering: Answering
    knowledge: Knowledge
    identity: Identity
    metrics: Metrics
    clock: Clock
    settings: ServerSettings = ServerSettings()
    embedder: Embedder | None = None
    reranker: Reranker | None = None
    readiness: Callable[[], Readiness] = always_ready
    sinks: tuple[Sink, ...] = ()
    wall_clock: Clock = WallClock()
    new_id: Callable[[], str] = msgspec.field(default_factory=random_ids)
    begin_trace: Callable[[str | None], TraceIds] = begin_trace
    quotas: QuotaKeeper | None = None
    chunks: ChunkService | None = None
    figures: Callable[[], Awaitable[bytes]] | None = None
    recollecting: Recollecting | None = None
    replays_max_bytes: int = 0
    count_tokens: Callable[[Sequence[str]], int] | None = None
    charging: Charging | None = None
    engines: bool = True
    scenes: Scenes | None = None
    version: str = "0"
