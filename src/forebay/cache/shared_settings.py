"""Settings of the values that processes share."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta


class SharedValuesSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the shared store may cost: losing it loses time, never truth."""

    timeout_ms: Annotated[
        float,
        Meta(description="Longest wait of a request for the shared store.", gt=0.0, le=10_000.0),
    ] = 10.0
    probe_ms: Annotated[
        float,
        Meta(
            description="While it does not answer it is asked this often, by nobody's request.",
            ge=10.0,
            le=60_000.0,
        ),
    ] = 1000.0
    max_connections: Annotated[
        int,
        Meta(
            description="Requests at it at once; one more is a miss.",
            ge=1,
            le=1024,
        ),
    ] = 16
    max_value_bytes: Annotated[int, Meta(description="Larger values are not shared.", ge=1024)] = (
        1_000_000
    )
    queue_bytes: Annotated[
        int,
        Meta(description="Values waiting to be written; beyond it new ones are not.", ge=1024),
    ] = 16_000_000
