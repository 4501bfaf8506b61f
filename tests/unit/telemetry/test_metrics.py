"""Names of figures are a promise: this list is what dashboards and alerts hold on to."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from forebay.kernel.clock import Deadline, VirtualClock
from forebay.kernel.context import Principal, RequestContext, Scene
from forebay.telemetry.ids import begin_trace
from forebay.telemetry.metrics import Metrics
from forebay.telemetry.report import RequestOutcome, RequestReport

GOLDEN = {
    "forebay_stage_seconds": ("histogram", {"stage"}),
    "forebay_stage_wait_seconds": ("histogram", {"stage"}),
    "forebay_request_seconds": ("histogram", set()),
    "forebay_ttft_seconds": ("histogram", set()),
    "forebay_itl_seconds": ("histogram", set()),
    "forebay_loop_lag_seconds": ("histogram", set()),
    "forebay_requests": ("counter", {"outcome"}),
    "forebay_tokens": ("counter", {"kind"}),
    "forebay_cache": ("counter", {"tier", "result"}),
    "forebay_shed": ("counter", {"reason"}),
    "forebay_degraded": ("counter", {"stage", "rung"}),
    "forebay_scene_requests": ("counter", {"scene"}),
    "forebay_tenant_requests": ("counter", {"tenant", "outcome"}),
    "forebay_tenant_tokens": ("counter", {"tenant", "kind"}),
    "forebay_requests_in_flight": ("gauge", set()),
    "forebay_requests_in_flight_limit": ("gauge", set()),
    "forebay_metrics_missing_processes": ("gauge", set()),
    "forebay_sentences_under_way": ("gauge", set()),
}


def report(
    *, tenant: str = "acme", outcome: RequestOutcome = "ok", ctx: bool = True
) -> RequestReport:
    clock = VirtualClock(100.0)
    context = RequestContext(
        request_id="r", principal=Principal(tenant), deadline=Deadline.after(9, clock), clock=clock
    )
    with context.stage("retrieval", waited_s=0.5):
        clock.advance(0.25)
    context.cache["retrieval"] = "hit"
    context.degrade("retrieval", "bm25", "vectors are slow")
    context.scene = Scene("faq")
    return RequestReport(
        request_id="r",
        method="POST",
        route="chat",
        status=200,
        outcome=outcome,
        ended_at=1.7e9,
        arrived_at=100.0,
        duration_s=0.75,
        client="",
        trace=begin_trace(None),
        ctx=context if ctx else None,
        ttft_s=0.5,
        prompt_tokens=30,
        completion_tokens=4,
    )


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, labels)


def test_names_types_and_labels() -> None:
    metrics = Metrics()
    metrics.finished(report())
    metrics.shed("in_flight")
    seen = {}
    for family in text_string_to_metric_families(metrics.render().decode()):
        if family.name.endswith("_created"):
            continue
        labels = set().union(*(sample.labels for sample in family.samples)) - {"le"}
        seen[family.name] = (family.type, labels)
    assert seen == GOLDEN
    text = metrics.render().decode()
    assert 'forebay_requests_total{outcome="ok"} 1.0' in text


def test_a_finished_request_is_counted_everywhere() -> None:
    metrics = Metrics()
    metrics.finished(report())
    metrics.finished(report(outcome="shed", ctx=False))
    assert value(metrics, "forebay_request_seconds_count") == 2
    assert value(metrics, "forebay_stage_seconds_sum", stage="retrieval") == 0.25
    assert value(metrics, "forebay_stage_wait_seconds_sum", stage="retrieval") == 0.5
    assert value(metrics, "forebay_requests_total", outcome="shed") == 1
    assert value(metrics, "forebay_tokens_total", kind="prompt") == 60
    assert value(metrics, "forebay_cache_total", tier="retrieval", result="hit") == 1
    assert value(metrics, "forebay_cache_total", tier="answer", result="off") is None
    assert value(metrics, "forebay_degraded_total", stage="retrieval", rung="bm25") == 1


def test_tenants_beyond_the_cap_share_a_label() -> None:
    metrics = Metrics(max_tenants=2)
    for tenant in ("a", "b", "c", "d", "a"):
        metrics.finished(report(tenant=tenant))
    requests = {
        tenant: value(metrics, "forebay_tenant_requests_total", tenant=tenant, outcome="ok")
        for tenant in ("a", "b", "c", "other")
    }
    assert requests == {"a": 2, "b": 1, "c": None, "other": 2}


def test_two_processes_parts_do_not_share_a_registry() -> None:
    one, other = Metrics(), Metrics()
    one.loop_lag(0.1)
    assert value(other, "forebay_loop_lag_seconds_count") == 0


def test_shared_quotas_show_who_decided() -> None:
    metrics = Metrics()
    ledger = {"decided_on_lease": 90.0, "asked": 8.0, "decided_alone": 2.0, "lost": 60.0}
    metrics.watch_quotas(lambda: {**ledger, "calls": 9.0, "alone": 1.0})
    for by, count in (("lease", 90), ("keeper", 8), ("alone", 2)):
        assert value(metrics, "forebay_quota_decisions_total", by=by) == count
    assert value(metrics, "forebay_quota_calls_total") == 9
    assert value(metrics, "forebay_quota_lost_tokens_total") == 60
    assert value(metrics, "forebay_quota_alone") == 1
