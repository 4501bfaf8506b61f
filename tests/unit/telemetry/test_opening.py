"""Sinks as the settings say."""

from __future__ import annotations

from forebay.telemetry.logs import AccessLog
from forebay.telemetry.opening import open_telemetry
from forebay.telemetry.settings import TelemetrySettings


def test_without_a_collector_no_trace_is_kept() -> None:
    telemetry = open_telemetry(TelemetrySettings(sampling_ratio=1.0), "1")
    assert [type(sink) for sink in telemetry.sinks] == [AccessLog]
    assert telemetry.traces is None
    assert not telemetry.begin_trace(None).sampled
    telemetry.close()


def test_with_a_collector_traces_are_sampled_by_the_ratio() -> None:
    settings = TelemetrySettings(
        otlp_endpoint="http://127.0.0.1:9/v1/traces", sampling_ratio=1.0, access_log=False
    )
    telemetry = open_telemetry(settings, "1")
    assert telemetry.sinks == (telemetry.traces,)
    assert telemetry.begin_trace(None).sampled
    telemetry.close()
