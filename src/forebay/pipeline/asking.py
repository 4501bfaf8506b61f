"""From a request's context to what it asks of admission."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from forebay.kernel.context import RequestContext
from forebay.kernel.stages import Message
from forebay.policy.admission import Admission, Ask, Claimant, Entry
from forebay.policy.quota import Limit


def ask_for(
    ctx: RequestContext,
    input_tokens: int,
    cap: int | None,
    *,
    passages: int = 0,
    session: str = "",
    whole: Entry | None = None,
) -> Ask:
    """What this caller asks of admission; ``cap`` is the output to reserve for, None: any.

    ``whole`` has reserved for it already.
    """
    return Ask(
        who=claimant(ctx),
        route="chat",
        priority=ctx.principal.priority,
        deadline_at=ctx.deadline.at,
        input_tokens=input_tokens,
        passages=passages,
        cap=cap,
        session=session,
        weight=ctx.principal.plan.weight,
        whole=whole,
        scene=ctx.scene,
    )


def claimant(ctx: RequestContext) -> Claimant:
    """Who asks, as the quotas see it."""
    principal, plan = ctx.principal, ctx.principal.plan
    limit = None
    if plan.tokens_per_minute is not None:
        burst = plan.burst_tokens or plan.tokens_per_minute
        limit = Limit(plan.tokens_per_minute / 60, burst)
    return Claimant(
        key=principal.key_id,
        user=principal.user or "",
        tenant=principal.tenant,
        line=principal.business_line,
        ip=ctx.address,
        tenant_limit=limit,
        max_in_flight=plan.max_in_flight,
    )


class Charges:
    """Quotas of requests that go through no pipeline: who is denied, and what others pay."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission

    def check(self, ctx: RequestContext) -> None:
        """Raise ``PermissionDenied`` for who is on the deny list."""
        desk = self._admission.desk
        if desk.denies:
            desk.check(claimant(ctx))

    async def charge(self, ctx: RequestContext, route: str, tokens: int) -> None:
        """Charge so many tokens; ``RateLimited`` when a quota is used up."""
        ctx.rate = await self._admission.charge(claimant(ctx), route, tokens)


def session_of(ctx: RequestContext, messages: Sequence[Message]) -> str:
    """What the turns of one conversation share: who asks, and how it began.

    A replica that has served one turn holds the prefix of the next.
    """
    begin = next((one.content for one in messages if one.role == "user"), "")[:4096]
    who = f"{ctx.principal.tenant}\0{ctx.principal.user}\0{begin}"
    return hashlib.blake2b(who.encode("utf-8", "replace"), digest_size=8).hexdigest()
