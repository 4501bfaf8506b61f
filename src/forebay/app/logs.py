"""Where a serving process's log lines go."""

from __future__ import annotations

import logging

from forebay.telemetry.settings import TelemetrySettings


def start_logging(settings: TelemetrySettings) -> None:
    """Log to standard error at the configured level."""
    logging.basicConfig(
        level=settings.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s %(message)s"
    )
    logging.getLogger("faiss").setLevel(logging.WARNING)
