"""A random mix of requests from a seed, and the engines it is offered to.

Sizes are log-uniform, shares lie anywhere between equal numbers and equal work, and the load is
0.3 to 5 times what the engines can just do. A mix is a workload file: whatever runs those runs it.
"""

from __future__ import annotations

import math
from functools import cached_property
from random import Random
from typing import Literal

import msgspec

from forebay.lab.mixes.double import DOUBLE, LinearSteps, double_config
from forebay.lab.mixes.work import EngineWork
from forebay.lab.sim.config import EngineConfig
from forebay.lab.sim.fleet import Pool, PoolConfig
from forebay.lab.sim.profiles import find_profile
from forebay.lab.sim.steps import StepModel
from forebay.lab.workload.arrivals import GammaArrivals, PoissonArrivals, PulseArrivals
from forebay.lab.workload.distributions import LogNormal
from forebay.lab.workload.kinds import Kind, Tenant
from forebay.lab.workload.plan import Workload, WorkloadSpec
from forebay.lab.workload.request import PlannedRequest

INPUT_TOKENS = (10, 30_000)
OUTPUT_TOKENS = (5, 4_000)
LOAD = (0.3, 5.0)
MAX_MODEL_LEN = 32_768
DURATION_S = (20.0, 120.0)
MAX_REQUESTS = 5_000
WANTED_REQUESTS = 3_000
"""A run lasts until so many came, within the bounds of its duration."""
MIN_DEADLINE_S = 1.0
PATIENCE = (2.0, 10.0)
MAX_PATIENCE_S = 60.0
"""Nobody waits longer than this, but for answers that take half of it on an empty engine."""
READINGS = 1.5
"""Everybody has time for so many of the longest prompts before his own. An engine reads prompts in
the order of their arrival, so a prompt longer than the others' patience could never be let in."""
_PROFILES = ("a100/8b", "l20/8b/fp8", "h100/8b/fp8", "h200/8b")


class Mix(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """Requests and engines; ``load`` is the mean offered work over what the engines can do."""

    seed: int
    workload: WorkloadSpec
    profile: str = "h100/8b"
    replicas: int = 1
    load: float = 0.0

    @cached_property
    def engine(self) -> tuple[PoolConfig, StepModel]:
        """The pool and its step model."""
        config: EngineConfig
        steps: StepModel
        if self.profile == DOUBLE:
            config, steps = double_config(MAX_MODEL_LEN), LinearSteps()
        else:
            found = find_profile(self.profile)
            config = found.engine_config(max_model_len=MAX_MODEL_LEN)
            steps = found.step_model()
        return PoolConfig(engine=config, name="default", replicas=self.replicas), steps

    @cached_property
    def work(self) -> EngineWork:
        """Sizes of requests on one of the engines."""
        pool, steps = self.engine
        return EngineWork(pool.engine, steps)

    def requests(self) -> list[PlannedRequest]:
        """All requests in time order, numbered from 0; equal for equal mixes."""
        return list(Workload(self.workload).requests(self.seed))

    def pools(self) -> list[Pool]:
        """Fresh engines."""
        return [Pool(*self.engine)]

    def command(self, file: str) -> str:
        """How to run the mix from its workload file."""
        return (
            f"forebay simulate run --workload {file} --seed {self.seed} -p {self.profile} "
            f"--replicas {self.replicas} --set max_model_len={MAX_MODEL_LEN} --router admission"
        )


def random_mix(seed: int) -> Mix:
    """The mix of this seed."""
    draw = Random(seed)  # noqa: S311 - no secret
    profile, replicas = "h100/8b", 1
    if draw.random() < 0.2:
        profile = draw.choice(_PROFILES)
    if draw.random() < 0.2:
        replicas = draw.randint(2, 3)
    bare = Mix(seed=seed, workload=WorkloadSpec(), profile=profile, replicas=replicas)
    work = bare.work
    sizes = [_size(draw) for _ in range(draw.randint(2, 5))]
    seconds = [work.work_s(*size) for size in sizes]
    # 0: shares of requests, so that the biggest do nearly all work; 1: shares of work.
    lean = draw.random()
    shares = [draw.expovariate(1) * one**-lean for one in seconds]
    shares = [max(share / sum(shares), 1e-4) for share in shares]
    mean_s = sum(s * w for s, w in zip(shares, seconds, strict=True)) / sum(shares)
    load = _log_uniform(draw, *LOAD)
    rate = min(load * replicas / mean_s, MAX_REQUESTS / DURATION_S[0])
    duration_s = min(max(WANTED_REQUESTS / rate, DURATION_S[0]), DURATION_S[1])
    reading_s = max(work.prefill_s(inputs) for inputs, _ in sizes)
    kinds = tuple(
        _kind(draw, work, f"kind{place}", size, share, reading_s)
        for place, (size, share) in enumerate(zip(sizes, shares, strict=True))
    )
    spec = WorkloadSpec(
        name=f"mix-{seed}",
        arrivals=_arrivals(draw, rate, round(duration_s, 1)),
        kinds=kinds,
        tenants=_tenants(draw),
    )
    return msgspec.structs.replace(bare, workload=spec, load=rate * mean_s / replicas)


def _size(draw: Random) -> tuple[int, int]:
    return round(_log_uniform(draw, *INPUT_TOKENS)), round(_log_uniform(draw, *OUTPUT_TOKENS))


def _kind(
    draw: Random,
    work: EngineWork,
    name: str,
    size: tuple[int, int],
    share: float,
    reading_s: float,
) -> Kind:
    inputs, outputs = size
    low_out, high_out = _around(outputs, OUTPUT_TOKENS)
    low_in, high_in = _around(inputs, INPUT_TOKENS)
    high_in = min(high_in, MAX_MODEL_LEN - high_out)
    cv = draw.uniform(0.02, 0.2)
    longest_s = work.alone_s(high_in, high_out)
    patience_s = max(MIN_DEADLINE_S, draw.uniform(*PATIENCE) * longest_s)
    least_s = PATIENCE[0] * longest_s + READINGS * reading_s
    patience_s = max(min(patience_s, MAX_PATIENCE_S), least_s)
    return Kind(
        name=name,
        share=share,
        input_tokens=LogNormal(mean=inputs, cv=cv, min=min(low_in, high_in), max=high_in),
        output_tokens=LogNormal(mean=outputs, cv=cv, min=low_out, max=high_out),
        deadline_s=round(patience_s, 2),
    )


def _around(tokens: int, bounds: tuple[int, int]) -> tuple[int, int]:
    """A third to and fro: kinds differ more than requests of one kind."""
    low, high = bounds
    return max(low, math.floor(tokens / 1.3)), min(high, math.ceil(tokens * 1.3))


def _arrivals(
    draw: Random, rate: float, duration_s: float
) -> PoissonArrivals | PulseArrivals | GammaArrivals:
    shape: Literal["poisson", "pulse", "bursts"] = draw.choices(
        ("poisson", "pulse", "bursts"), (6, 2, 2)
    )[0]
    if shape == "bursts":
        return GammaArrivals(rate=rate, cv=draw.uniform(1.5, 3.0), duration_s=duration_s)
    if shape == "pulse":
        third = duration_s / 3
        steep = draw.uniform(2.0, 5.0)
        calm = 3 * rate / (2 + steep)
        return PulseArrivals(
            calm_rate=calm, peak_rate=steep * calm, calm_s=third, pulse_s=third, after_s=third,
            duration_s=duration_s,
        )  # fmt: skip
    return PoissonArrivals(rate=rate, duration_s=duration_s)


def _tenants(draw: Random) -> tuple[Tenant, ...]:
    count = round(_log_uniform(draw, 1, 20))
    return tuple(
        Tenant(name=f"tenant{number}", share=max(draw.expovariate(1), 0.01))
        for number in range(count)
    )


def _log_uniform(draw: Random, low: float, high: float) -> float:
    return math.exp(draw.uniform(math.log(low), math.log(high)))
