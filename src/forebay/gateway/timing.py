"""Stage records as a ``server-timing`` header and as part of an answer."""

from __future__ import annotations

import re

from forebay.kernel.context import RequestContext, StageRecord
from forebay.wire.chat import TimingBody

_NOT_TOKEN = re.compile(r"[^A-Za-z0-9!#$%&'*+.^_`|~-]")


def worked_s(ctx: RequestContext, record: StageRecord) -> float:
    """Seconds of work, also of a stage that is still running."""
    if record.running:
        return max(0.0, ctx.clock.now() - record.started_at - record.waited_s)
    return record.worked_s


def server_timing(ctx: RequestContext) -> str:
    """One entry for each stage that ran so far, in milliseconds."""
    return ", ".join(_entry(ctx, record) for record in ctx.stages)


def _entry(ctx: RequestContext, record: StageRecord) -> str:
    entry = f"{_NOT_TOKEN.sub('-', record.name)};dur={worked_s(ctx, record) * 1000:.2f}"
    if record.waited_s > 0:
        entry += f';desc="waited {record.waited_s * 1000:.2f} ms"'
    return entry


def timings(ctx: RequestContext) -> tuple[TimingBody, ...]:
    """The same for an answer's body."""
    return tuple(
        TimingBody(
            record.name,
            round(record.waited_s * 1000, 3),
            round(worked_s(ctx, record) * 1000, 3),
        )
        for record in ctx.stages
    )
