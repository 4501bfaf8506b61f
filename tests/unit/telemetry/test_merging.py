"""The figures of several processes on one page."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from forebay.telemetry.merging import Page, TenantCap, merged, text_of
from forebay.telemetry.metrics import Metrics


def process(*, requests: int, in_flight: float, level: float, reason: str = "drain") -> Page:
    metrics = Metrics()
    metrics.watch_in_flight(lambda: in_flight, 10)
    pool = {"in_flight": in_flight, "level": level, "tail_ratio": level + 1}
    metrics.watch_pools(lambda: {"short": pool})
    for _ in range(requests):
        metrics.shed(reason)
        metrics.itl(0.3)
    return metrics.page()


def values(page: Page, missing: int = 0) -> dict[str, float]:
    found = {}
    for family in text_string_to_metric_families(text_of(page, missing).decode()):
        for one in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sorted(one.labels.items()))
            found[f"{one.name}{{{labels}}}" if labels else one.name] = one.value
    return found


def test_counters_histograms_and_gauges_by_their_nature() -> None:
    first = process(requests=3, in_flight=2, level=0)
    second = process(requests=4, in_flight=5, level=2)
    page = values(merged([first, second], []), missing=1)
    assert page["forebay_shed_total{reason=drain}"] == 7
    assert page["forebay_itl_seconds_count"] == 7
    assert page["forebay_itl_seconds_bucket{le=+Inf}"] == 7
    assert page["forebay_itl_seconds_bucket{le=0.12}"] == 0
    assert abs(page["forebay_itl_seconds_sum"] - 2.1) < 1e-9
    assert page["forebay_requests_in_flight"] == 7
    assert page["forebay_requests_in_flight_limit"] == 20
    assert page["forebay_pool_in_flight{pool=short}"] == 7
    assert page["forebay_pool_alert_level{pool=short}"] == 2
    assert page["forebay_pool_tail_ratio{pool=short}"] == 3
    assert page["forebay_metrics_missing_processes"] == 1


def test_the_page_of_one_process_is_what_its_registry_shows() -> None:
    metrics = Metrics()
    metrics.itl(0.3)
    assert metrics.render() == text_of(merged([metrics.page()], []), 0)


def test_of_an_ended_process_stays_what_it_counted() -> None:
    page = values(
        merged(
            [process(requests=1, in_flight=1, level=0)],
            [process(requests=2, in_flight=9, level=2, reason="full")],
        )
    )
    assert page["forebay_shed_total{reason=drain}"] == 1
    assert page["forebay_shed_total{reason=full}"] == 2
    assert page["forebay_requests_in_flight"] == 1
    assert page["forebay_pool_alert_level{pool=short}"] == 0


def test_counters_began_when_the_first_process_did() -> None:
    first, second = (
        process(requests=1, in_flight=0, level=0),
        process(requests=1, in_flight=0, level=0),
    )
    name = "forebay_itl_seconds_created"
    both = values(merged([first, second], []))[name]
    assert both == min(values(first)[name], values(second)[name])


def tenants(*names: str) -> Page:
    metrics = Metrics()
    for name in names:
        metrics._bound(metrics._tenant_requests, name, "ok")()
    return metrics.page()


def test_tenants_stay_bounded_whichever_process_saw_them() -> None:
    cap = TenantCap(2)
    first = cap.apply(tenants("a", "b", "c"))
    second = cap.apply(tenants("d", "b", "c"))
    page = values(merged([first, second], []))
    counted = {
        name: value
        for name, value in page.items()
        if name.startswith("forebay_tenant_requests_total")
    }
    assert counted == {
        "forebay_tenant_requests_total{outcome=ok,tenant=a}": 1,
        "forebay_tenant_requests_total{outcome=ok,tenant=b}": 2,
        "forebay_tenant_requests_total{outcome=ok,tenant=other}": 3,
    }
