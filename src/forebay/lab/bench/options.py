"""What a bench run is told: the target, the load, and the generator's own bounds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from forebay.lab.workload.plan import Workload


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """Where requests go and in what form."""

    base_url: str
    """http or https, with or without ``/v1``."""
    model: str = ""
    """Empty: the first of ``/v1/models``."""
    api_key: str = ""
    """For requests whose tenant has no key of its own."""
    headers: dict[str, str] = {}
    stream: bool = True
    include_usage: bool = True
    extra_body: dict[str, Any] = {}
    """Further fields of every request (``temperature``, ``ignore_eos`` …)."""
    verify_tls: bool = True
    timeout_s: float = 60.0
    """For requests without a deadline, from the intended start."""
    deadline_grace_s: float = 5.0
    """How long after its deadline an answer is still waited for."""


class GeneratorBounds(msgspec.Struct, frozen=True, kw_only=True):
    """What the generator may use, and from when on it, not the target, was the bottleneck."""

    max_connections: int = 4_096
    max_in_flight: int = 20_000
    """Requests sent or waiting for a connection; beyond that one is *not sent*."""
    accept_not_sent: bool = False
    """Keep the result valid although requests were not sent."""
    max_lateness_p99_s: float = 0.010
    max_cpu_share: float = 0.9
    processes: int = 1


class BenchOptions(msgspec.Struct, frozen=True, kw_only=True):
    """One run: what, against what, how recorded."""

    target: Target
    workload: Workload
    seed: int = 1
    bounds: GeneratorBounds = GeneratorBounds()
    slice_s: float = 1.0
    warmup_s: float = 0.0
    """Requests of the first seconds are sent and shown, but not counted."""


class RampOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How the knee is looked for: doubling, then bisection."""

    bench: BenchOptions
    start_per_s: float = 10.0
    max_per_s: float = 10_000.0
    goodput_share: float = 0.99
    step_s: float = 20.0
    """Length of one step's load."""
    settle_s: float = 5.0
    """Pause between steps, in which the target finishes what it still holds."""
    resolution: float = 0.05
    """Bisection ends when the bracket is this narrow, relative to the rate."""
    confidence: float = 0.95
    max_repeats: int = 3
    """How often an undecided step is run again before its point estimate decides."""
    max_steps: int = 40


class Snapshot(msgspec.Struct, frozen=True):
    """The run so far, for a live view; ``recent_*`` look at the last seconds only."""

    elapsed_s: float
    sent: int = 0
    finished: int = 0
    ok: int = 0
    good: int = 0
    in_flight: int = 0
    not_sent: int = 0
    statuses: dict[str, int] = {}
    recent_sent_per_s: float = 0.0
    recent_ok_per_s: float = 0.0
    recent_good_share: float = 0.0
    recent_tokens_per_s: float = 0.0
    recent_ttft_p50_s: float = 0.0
    recent_ttft_p99_s: float = 0.0
    recent_total_p50_s: float = 0.0
    recent_total_p99_s: float = 0.0
    lateness_p99_s: float = 0.0
    cpu_share: float = 0.0
    label: str = ""
    """Which step of a ramp this is."""


Observer = Callable[[Snapshot], None]
"""Called on the loop every half second; must return at once."""
