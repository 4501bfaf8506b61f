"""Signs of fragile retrieval as figures."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest

from forebay.telemetry.fragility import FragilityCollector

COUNTS = {"spread_fragile": 2.0, "confidence_fragile": 0.0, "unsupported_fragile": 1.0}


def test_the_worst_knowledge_base_is_shown_and_all_are_counted() -> None:
    registry = CollectorRegistry()
    figures = {"a": {"spread": 0.02, **COUNTS}, "b": {"spread": 0.05, **COUNTS}}
    registry.register(FragilityCollector(lambda: figures))
    page = generate_latest(registry).decode()
    assert 'forebay_fragility{sign="spread"} 0.05' in page
    assert 'forebay_fragility{sign="confidence"}' not in page
    assert 'forebay_fragile_total{sign="spread"} 4.0' in page
    assert 'forebay_fragile_total{sign="unsupported"} 2.0' in page
