"""``forebay bench``: from words to a run, a ramp, a comparison, a report."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import msgspec
import uvloop

from forebay.app.delivery import Delivery
from forebay.app.keys import read_key
from forebay.app.loads import LoadWords, build_load
from forebay.app.output import Output
from forebay.app.words import Words
from forebay.kernel.errors import ConfigError
from forebay.lab.bench.options import BenchOptions, GeneratorBounds, RampOptions, Target
from forebay.lab.bench.ramp import check_ramp, run_ramp
from forebay.lab.bench.ramp_result import RampResult, RampStep, load_ramp
from forebay.lab.bench.run import run_bench
from forebay.lab.measure.result import load_result
from forebay.lab.report.live import LiveView
from forebay.lab.report.numbers import seconds
from forebay.lab.report.words import Words as Language

T = TypeVar("T")
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
VERDICTS = {
    "healthy": "healthy",
    "unhealthy": "not healthy",
    "undecided": "generator too slow",
}


class BenchWords(Words, frozen=True, kw_only=True):
    """What the command line says of the target and of the generator."""

    url: str
    model: str = ""
    key_file: Path | None = None
    header: list[str] | None = None
    no_stream: bool = False
    timeout: float = 60.0
    warmup: float = 0.0
    processes: int = 1
    seed: int = 1


def bench(words: BenchWords, load: LoadWords, delivery: Delivery) -> int:
    """Run the load once and deliver its result."""
    options = _options(words, load)
    with LiveView(delivery.output.terminal, options.bounds) as view:
        result = _run(lambda stop: run_bench(options, view, stop=stop))
    return delivery.give_run(result)


class RampWords(Words, frozen=True, kw_only=True):
    """What the command line says of the search for the knee."""

    start: float = 10.0
    limit: float = 10_000.0
    goodput: float = 0.99
    step: float = 20.0
    settle: float = 5.0
    resolution: float = 0.05


def ramp(words: tuple[BenchWords, RampWords], load: LoadWords, delivery: Delivery) -> int:
    """Find the knee and deliver what every step said."""
    target, search = words
    options = RampOptions(
        bench=_options(target, load),
        start_per_s=search.start,
        max_per_s=search.limit,
        goodput_share=search.goodput,
        step_s=search.step,
        settle_s=search.settle,
        resolution=search.resolution,
    )
    check_ramp(options)
    output = delivery.output

    def done(step: RampStep) -> None:
        if output.interactive:
            verdict = VERDICTS[step.verdict]
            output.note(f"{step.rate_per_s:.4g}/s: {step.goodput_share:.2%} good, {verdict}")

    with LiveView(output.terminal, options.bench.bounds) as view:
        result = _run(lambda stop: run_ramp(options, view, on_step=done, stop=stop))
    return _give_ramp(result, delivery)


def compare(paths: tuple[Path, Path], force: bool, delivery: Delivery) -> int:
    """Deliver what changed between two stored results."""
    from forebay.lab.measure.compare import compare as compared
    from forebay.lab.report.comparisons import write_comparison_report

    before, after = (load_result(path) for path in paths)
    comparison = compared(before, after, force=force)
    names = (paths[0].name, paths[1].name)

    def draw(path: Path, language: Language) -> None:
        write_comparison_report(comparison, names, path, language)

    def tell(output: Output) -> None:
        for sentence in comparison.sentences or ("Nothing changed beyond noise.",):
            output.line(sentence)
        for difference in comparison.differences:
            output.line(f"differs: {difference}")

    delivery.give(msgspec.json.encode(comparison), draw, tell)
    for warning in comparison.warnings:
        delivery.output.alarm(f"Read this with care: {warning}")
    return 0


def report(path: Path, delivery: Delivery) -> int:
    """Deliver a stored result again, be it a run's or a ramp's."""
    if _kind(path) == "ramp":
        return _give_ramp(load_ramp(path), delivery)
    return delivery.give_run(load_result(path))


class _Kind(msgspec.Struct):
    kind: str = ""


def _kind(path: Path) -> str:
    """What sort of result a file holds; empty when it cannot be told."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Kind).kind
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ""  # who loads it says what is wrong


def _give_ramp(result: RampResult, delivery: Delivery) -> int:
    from forebay.lab.report.ramps import write_ramp_report

    def draw(path: Path, language: Language) -> None:
        write_ramp_report(result, path, language)

    def tell(output: Output) -> None:
        for sentence in result.sentences:
            output.line(sentence)
        output.line()
        output.table(
            ("rate/s", "good", "", "runs", "TTFT P99", "total P50", "total P99"),
            [
                (
                    f"{step.rate_per_s:.4g}",
                    f"{step.goodput_share:.2%}",
                    VERDICTS[step.verdict],
                    step.runs,
                    seconds(step.ttft_p99_s),
                    seconds(step.total_p50_s),
                    seconds(step.total_p99_s),
                )
                for step in sorted(result.steps, key=lambda step: step.rate_per_s)
            ],
        )

    delivery.give(msgspec.json.encode(result), draw, tell)
    limited = [step for step in result.steps if step.why_not]
    if limited:
        rates = ", ".join(f"{step.rate_per_s:.4g}" for step in limited)
        delivery.output.alarm(
            f"SOME STEPS ARE NOT VALID: those at {rates} requests/s. In the last of them "
            + "; ".join(limited[-1].why_not)
            + "."
        )
        return 1
    return 0 if result.knee_per_s else 1


def _options(words: BenchWords, load: LoadWords) -> BenchOptions:
    return BenchOptions(
        target=Target(
            base_url=words.url,
            model=words.model,
            api_key=read_key(words.key_file),
            headers=_headers(words.header or []),
            stream=not words.no_stream,
            timeout_s=words.timeout,
        ),
        workload=build_load(load),
        seed=words.seed,
        bounds=GeneratorBounds(processes=words.processes),
        warmup_s=words.warmup,
    )


def _headers(pairs: list[str]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise ConfigError(f"--header takes name=value, not {pair!r}.")
        headers[name.strip().lower()] = value.strip()
    return headers


def _run(work: Callable[[asyncio.Event], Awaitable[T]]) -> T:
    """Run to the end; the first Ctrl-C or SIGTERM ends the sending, the second everything."""

    async def main() -> T:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()

        def interrupted() -> None:
            for name in _SIGNALS:
                loop.remove_signal_handler(name)
            stop.set()

        with suppress(NotImplementedError):
            for name in _SIGNALS:
                loop.add_signal_handler(name, interrupted)
        return await work(stop)

    return uvloop.run(main())
