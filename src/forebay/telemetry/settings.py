"""The ``[telemetry]`` section: logs, traces and the bounds of labels."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec


class TelemetrySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is told about requests, to whom, and how much of it."""

    log_format: Annotated[
        Literal["json", "text"], msgspec.Meta(description="Shape of log lines on standard error.")
    ] = "json"
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], msgspec.Meta(description="Least level.")
    ] = "info"
    access_log: Annotated[bool, msgspec.Meta(description="One log line for each request.")] = True
    environment: Annotated[
        str, msgspec.Meta(description="`env` of logs and traces, such as production.")
    ] = "development"
    region: Annotated[str, msgspec.Meta(description="`region` of logs and traces.")] = ""
    service_name: Annotated[str, msgspec.Meta(description="`service.name` of traces.")] = "forebay"
    max_tenants: Annotated[
        int,
        msgspec.Meta(ge=1, description="Tenants with a label of their own; the rest are `other`."),
    ] = 100
    otlp_endpoint: Annotated[
        str,
        msgspec.Meta(
            description="OTLP/HTTP traces address such as http://127.0.0.1:4318/v1/traces; "
            "empty: no traces."
        ),
    ] = ""
    sampling_ratio: Annotated[
        float,
        msgspec.Meta(ge=0, le=1, description="Share of good requests traced; bad ones always are."),
    ] = 0.1
    genai_names: Annotated[
        Literal["current", "legacy", "both"],
        msgspec.Meta(description="Generation of OpenTelemetry GenAI attribute names on spans."),
    ] = "current"
    export_queue: Annotated[
        int, msgspec.Meta(ge=1, description="Finished traces waiting for export; more are dropped.")
    ] = 512
    export_timeout_s: Annotated[
        float, msgspec.Meta(gt=0, description="Longest export of one batch.")
    ] = 5.0
