"""Two kinds beside each other, light ones and others: mixes on which one fixed line has failed."""

from __future__ import annotations

from forebay.lab.mixes.double import DOUBLE
from forebay.lab.mixes.mix import Mix
from forebay.lab.workload.arrivals import PoissonArrivals
from forebay.lab.workload.kinds import Kind
from forebay.lab.workload.plan import WorkloadSpec

LIGHT = "light"
OTHER = "other"
SEED = 1


def rows() -> tuple[Mix, ...]:
    """All of them: half an engine of light requests, and a quick engine with its memory free."""
    half = [
        _row(f"{inputs}/{outputs} {share:.0%}", 80.0 / (1 - share), (inputs, outputs), share)
        for inputs, outputs, share in (
            (1_800, 400, 0.10),
            (3_000, 800, 0.10),
            (3_900, 1_500, 0.10),
            (6_000, 1_000, 0.02),
            (12_000, 500, 0.02),
            (12_000, 500, 0.10),
        )
    ]
    quick = [
        _row(
            f"{DOUBLE} {inputs}/{outputs} {share:.0%}",
            200.0,
            (inputs, outputs),
            share,
            profile=DOUBLE,
        )
        for inputs, outputs, share in ((6_300, 512, 0.05), (2_400, 400, 0.20))
    ]
    return (*half, *quick)


def _row(
    name: str, rate: float, other: tuple[int, int], share: float, *, profile: str = "h100/8b"
) -> Mix:
    light = (200, 32) if profile != DOUBLE else (250, 32)
    duration_s = 60.0 if profile != DOUBLE else 30.0
    kinds = (
        Kind(
            name=LIGHT,
            share=1 - share,
            input_tokens=light[0],
            output_tokens=light[1],
            deadline_s=2.0,
        ),
        Kind(
            name=OTHER,
            share=share,
            input_tokens=other[0],
            output_tokens=other[1],
            deadline_s=30.0,
        ),
    )
    spec = WorkloadSpec(
        name=name, arrivals=PoissonArrivals(rate=rate, duration_s=duration_s), kinds=kinds
    )
    bare = Mix(seed=SEED, workload=spec, profile=profile)
    mean_s = (1 - share) * bare.work.work_s(*light) + share * bare.work.work_s(*other)
    return Mix(seed=SEED, workload=spec, profile=profile, load=rate * mean_s)
