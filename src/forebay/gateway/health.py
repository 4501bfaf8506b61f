"""Liveness, readiness and figures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

from forebay.gateway.exchange import Exchange
from forebay.gateway.parts import GatewayParts
from forebay.gateway.rendering import share_told
from forebay.wire.encoding import encode_json

_FIGURES = "text/plain; version=1.0.0; charset=utf-8"


class Health(msgspec.Struct, frozen=True):
    """GET /healthz: the process answers."""

    status: Literal["ok"] = "ok"


class ReadyAnswer(msgspec.Struct, frozen=True):
    """GET /readyz: whether requests can be served, and what is missing or reduced.

    ``embedded_share``: of all chunks of all knowledge bases, those that meaning can find; None
    where no embedder was set up.
    """

    status: Literal["ready", "degraded", "starting", "draining"]
    reasons: tuple[str, ...] = ()
    embedded_share: float | None = None


class HealthRoutes:
    """What orchestrators and scrapers ask."""

    def __init__(self, parts: GatewayParts, draining: Callable[[], bool]) -> None:
        self._parts = parts
        self._draining = draining

    async def healthz(self, x: Exchange) -> None:
        """Answer GET /healthz."""
        await x.reply_json(Health())

    async def readyz(self, x: Exchange) -> None:
        """Answer GET /readyz: 200 when ready (also degraded), else 503."""
        readiness = self._parts.readiness()
        if self._draining():
            answer = ReadyAnswer("draining", ("this server is shutting down",))
        elif not readiness.ready:
            answer = ReadyAnswer("starting", readiness.reasons)
        elif readiness.degraded:
            answer = ReadyAnswer("degraded", readiness.degraded)
        else:
            answer = ReadyAnswer("ready")
        answer = msgspec.structs.replace(
            answer, embedded_share=share_told(readiness.embedded_share)
        )
        status = 200 if answer.status in ("ready", "degraded") else 503
        headers = (("retry-after", "1"),) if status == 503 else ()
        await x.reply(encode_json(answer), status=status, headers=headers)

    async def figures(self, x: Exchange) -> None:
        """Answer GET /metrics."""
        parts = self._parts
        page = parts.metrics.render() if parts.figures is None else await parts.figures()
        await x.reply(page, content_type=_FIGURES)
