"""What a stage's record says while it runs and after it: waiting, then working."""

from __future__ import annotations

from forebay.gateway.timing import server_timing, timings, worked_s
from forebay.kernel.clock import Deadline, VirtualClock
from forebay.kernel.context import Principal, RequestContext, StageRecord


def test_a_stage_waits_then_works_and_one_that_ended_works_no_longer() -> None:
    clock = VirtualClock(50.0)
    ctx = RequestContext(
        request_id="r-1", principal=Principal(), deadline=Deadline.after(9, clock), clock=clock
    )
    ctx.stages.append(StageRecord("admission", clock.now()))
    clock.advance(0.5)
    with ctx.stage("embedding", waited_s=0.25) as record:
        assert record.started_at == 50.25
        clock.advance(0.125)
        assert worked_s(ctx, record) == 0.125
    clock.advance(1.0)
    assert server_timing(ctx) == 'admission;dur=0.00, embedding;dur=125.00;desc="waited 250.00 ms"'
    assert [(each.waited_ms, each.worked_ms) for each in timings(ctx)] == [(0, 0), (250, 125)]
