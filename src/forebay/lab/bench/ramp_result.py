"""What a ramp found: every step, and the knee between two of them."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from forebay.kernel.errors import ConfigError
from forebay.lab.measure.reasons import Reason
from forebay.lab.measure.result import Run

RAMP_SCHEMA = 1


class RampStep(msgspec.Struct, frozen=True):
    """All runs at one rate, taken together; times are the last run's."""

    rate_per_s: float
    runs: int
    meant: int
    """Requests that were meant to be answered."""
    good: int
    goodput_share: float
    healthy: bool
    decided: bool
    """False when the point estimate had to decide: more requests would be needed."""
    goodput_per_s: float
    ttft_p50_s: float
    ttft_p99_s: float
    total_p50_s: float
    total_p99_s: float
    statuses: dict[str, int] = {}
    generator_valid: bool = True
    why_not: tuple[str, ...] = ()
    why: tuple[Reason, ...] = ()

    @property
    def verdict(self) -> Literal["healthy", "unhealthy", "undecided"]:
        """Undecided where answers were good but the generator, not the target, set the rate."""
        if not self.healthy:
            return "unhealthy"
        return "healthy" if self.generator_valid else "undecided"


class RampResult(msgspec.Struct, frozen=True):
    """The knee is the highest healthy rate; ``low`` and ``high`` bracket it."""

    run: Run
    wanted_share: float
    knee_per_s: float
    """0 when no rate was healthy."""
    high_per_s: float | None
    """The lowest rate that was not healthy; None when all were."""
    steps: tuple[RampStep, ...]
    sentences: tuple[str, ...]
    """The outcome and what limits it, in English."""
    kind: str = "ramp"
    schema: int = RAMP_SCHEMA


def load_ramp(path: Path) -> RampResult:
    """A stored ramp; ``ConfigError`` when it is none."""
    try:
        result = msgspec.json.decode(path.read_bytes(), type=RampResult)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}; name a ramp's result") from error
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{path} is not the result of a ramp ({error})") from error
    if result.kind != "ramp" or result.schema != RAMP_SCHEMA:
        raise ConfigError(f"{path} is not the result of a ramp of this version; run it again")
    return result
