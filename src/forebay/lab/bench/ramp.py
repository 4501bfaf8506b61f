"""Finds the knee: the highest rate that a target still serves well."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable

import msgspec

from forebay.kernel.errors import ConfigError
from forebay.lab.bench.knee import KneeSearch, judge
from forebay.lab.bench.options import BenchOptions, Observer, RampOptions, Snapshot
from forebay.lab.bench.ramp_result import RampResult, RampStep
from forebay.lab.bench.run import run_bench
from forebay.lab.measure.result import Run, RunResult
from forebay.lab.workload.arrivals import ConstantArrivals, GammaArrivals, PoissonArrivals
from forebay.lab.workload.plan import Workload

RunOnce = Callable[[BenchOptions, Observer | None], Awaitable[RunResult]]
StepDone = Callable[[RampStep], None]


async def run_ramp(
    options: RampOptions,
    observer: Observer | None = None,
    *,
    on_step: StepDone | None = None,
    stop: asyncio.Event | None = None,
    run_once: RunOnce | None = None,
) -> RampResult:
    """Double, then bisect; each step is run again while a binomial test cannot decide it.

    ``on_step`` hears of each step; ``stop`` ends the search with what is known by then.
    ``run_once`` is ``run_bench`` unless something else (a simulation) is to be ramped.
    """
    check_ramp(options)
    stop = stop or asyncio.Event()

    async def bench(bench_options: BenchOptions, watch: Observer | None) -> RunResult:
        return await run_bench(bench_options, watch, stop=stop)

    stepper = _Stepper(options, run_once or bench, observer, stop)
    search = KneeSearch(options.start_per_s, options.max_per_s, options.resolution)
    steps: list[RampStep] = []
    while (rate := search.rate) is not None and len(steps) < options.max_steps:
        step = await stepper.step(rate)
        if stop.is_set():
            break
        steps.append(step)
        if on_step is not None:
            on_step(step)
        search.tell(step.healthy and step.generator_valid)
        if search.rate is not None:
            await stepper.pause(options.settle_s)
    return RampResult(
        run=stepper.described(),
        wanted_share=options.goodput_share,
        knee_per_s=search.low or 0.0,
        high_per_s=search.high,
        steps=tuple(steps),
        sentences=tuple(_sentences(options, search, steps, stop.is_set())),
    )


def check_ramp(options: RampOptions) -> None:
    """``ConfigError`` for a ramp that cannot be run."""
    if not 0 < options.start_per_s <= options.max_per_s:
        raise ConfigError("a ramp starts above 0 requests/s and not above its highest rate")
    if not 0 < options.goodput_share < 1:
        raise ConfigError("the wanted share of good answers lies between 0 and 1, like 0.99")
    if not 0 < options.resolution < 1 or not 0.5 < options.confidence < 1:
        raise ConfigError("resolution lies between 0 and 1, confidence between 0.5 and 1")
    if options.step_s <= options.bench.warmup_s or options.settle_s < 0:
        raise ConfigError("a step lasts longer than its warm-up, and no pause is negative")
    if not math.isfinite(options.step_s + options.settle_s + options.max_per_s):
        raise ConfigError("steps, pauses and the highest rate of a ramp are finite numbers")
    _at_rate(options.bench.workload, options.start_per_s, options.step_s)


def _at_rate(workload: Workload, rate: float, duration_s: float) -> Workload:
    """The same requests at another steady rate."""
    arrivals = workload.spec.arrivals
    if not isinstance(arrivals, ConstantArrivals | PoissonArrivals | GammaArrivals):
        raise ConfigError(
            "a ramp needs a steady rate to change: use constant, poisson or gamma arrivals"
        )
    steady = msgspec.structs.replace(arrivals, rate=rate, duration_s=duration_s, count=None)
    spec = msgspec.structs.replace(workload.spec, arrivals=steady)
    return Workload(spec, workload.folder)


class _Stepper:
    """Runs one rate until it is decided; every run has a seed of its own."""

    def __init__(
        self,
        options: RampOptions,
        run_once: RunOnce,
        observer: Observer | None,
        stop: asyncio.Event,
    ) -> None:
        self._options = options
        self._run_once = run_once
        self._observer = observer
        self._stop = stop
        self._seed = options.bench.seed
        self._last: RunResult | None = None

    async def step(self, rate: float) -> RampStep:
        options = self._options
        workload = _at_rate(options.bench.workload, rate, options.step_s)
        runs = good = meant = 0
        while True:
            bench = msgspec.structs.replace(options.bench, workload=workload, seed=self._seed)
            self._seed += 1
            result = self._last = await self._run_once(bench, self._labelled(rate))
            runs += 1
            total = result.total
            good += total.good
            meant += total.sent + total.not_sent - total.disconnected
            verdict = judge(good, meant, options.goodput_share, options.confidence)
            generator = result.generator
            invalid = generator is not None and not generator.valid
            over = runs >= options.max_repeats or self._stop.is_set() or invalid
            if verdict != "undecided" or over:
                break
            await self.pause(options.settle_s)
        share = good / meant if meant else 0.0
        healthy = share >= options.goodput_share if verdict == "undecided" else verdict == "healthy"
        return RampStep(
            rate_per_s=rate,
            runs=runs,
            meant=meant,
            good=good,
            goodput_share=share,
            healthy=healthy,
            decided=verdict != "undecided",
            goodput_per_s=total.goodput_per_s,
            ttft_p50_s=total.ttft.p50_s,
            ttft_p99_s=total.ttft.p99_s,
            total_p50_s=total.total.p50_s,
            total_p99_s=total.total.p99_s,
            statuses=total.statuses,
            generator_valid=not invalid,
            why_not=generator.why_not if generator is not None else (),
            why=generator.why if generator is not None else (),
        )

    async def pause(self, seconds: float) -> None:
        """Let the target finish what it still holds; ``stop`` ends the pause."""
        if seconds <= 0:
            return
        try:
            async with asyncio.timeout(seconds):
                await self._stop.wait()
        except TimeoutError:
            return

    def described(self) -> Run:
        """What the last run said of target and machine, with the ramp's own options."""
        if self._last is None:
            return Run(source="bench")
        own = {
            name: getattr(self._options, name)
            for name in RampOptions.__struct_fields__
            if name != "bench"
        }
        run = self._last.run
        return msgspec.structs.replace(
            run,
            seed=self._options.bench.seed,
            fingerprint=self._options.bench.workload.fingerprint,
            options=run.options | {"ramp": own},
        )

    def _labelled(self, rate: float) -> Observer | None:
        observer = self._observer
        if observer is None:
            return None

        def look(snapshot: Snapshot) -> None:
            observer(msgspec.structs.replace(snapshot, label=f"{rate:.4g}/s"))

        return look


def _sentences(
    options: RampOptions, search: KneeSearch, steps: list[RampStep], stopped: bool
) -> list[str]:
    found = [_headline(search, f"{options.goodput_share:.4g}", steps)]
    limited = [step for step in steps if not step.generator_valid]
    if limited:
        rate = limited[-1].rate_per_s
        found.append(
            f"At {rate:.4g} requests/s the generator was the bottleneck: the target's knee may be "
            "higher. Give it more processes or another machine."
        )
    if any(not step.decided for step in steps):
        found.append("Some steps were too short to decide surely: lengthen the steps.")
    if stopped:
        found.append("The search was stopped before its end.")
    elif search.rate is not None:
        found.append("The search ran out of steps before the bracket was narrow.")
    return found


def _headline(search: KneeSearch, wanted: str, steps: list[RampStep]) -> str:
    low, high = search.low, search.high
    undecided = any(step.rate_per_s == high and step.verdict == "undecided" for step in steps)
    if low is None and high is None:
        return "No step was finished."
    if low is None and undecided:
        return (
            f"Already at {high:.4g} requests/s the generator was too slow: nothing is known of the "
            "target."
        )
    if low is None:
        return f"Already {high:.4g} requests/s were not served well (goodput share {wanted})."
    if high is None:
        return (
            f"The knee is at or above {low:.4g} requests/s, the highest rate tried: raise the "
            "highest rate to find it."
        )
    end = "were more than the generator could send" if undecided else "were too many"
    return (
        f"The knee is at {low:.4g} requests/s (goodput share {wanted} or more); {high:.4g} "
        f"requests/s {end}."
    )
