"""Where a serving process's log lines go."""

from __future__ import annotations

import logging

from forebay.telemetry.logs import configure_logging
from forebay.telemetry.settings import TelemetrySettings

QUIET = ("faiss", "uvicorn.error", "mcp", "watchfiles")


def start_logging(settings: TelemetrySettings) -> None:
    """Log to standard error as configured; what libraries say of their own start is left out."""
    configure_logging(settings)
    for name in QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)
