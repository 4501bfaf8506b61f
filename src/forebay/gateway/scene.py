"""The scene of a request at the door: what its client named, and the time that it gives."""

from __future__ import annotations

from forebay.gateway.exchange import Exchange
from forebay.kernel.context import RequestContext
from forebay.pipeline.messages import AnswerRequest
from forebay.pipeline.scenes import Scenes
from forebay.policy.admission.scenes import HEADER


def enter_scene(
    scenes: Scenes | None, ctx: RequestContext, x: Exchange | None, request: AnswerRequest
) -> None:
    """Note what the request is for; ``x`` None: it came by no HTTP request.

    A deadline that its client sent stays.
    """
    if scenes is None:
        return
    scenes.enter(ctx, request, None if x is None else x.headers.get(HEADER))
    deadline_ms = ctx.scene.deadline_ms
    if x is not None and deadline_ms is not None and "x-forebay-deadline-ms" not in x.headers:
        x.allow(deadline_ms / 1000)
