"""``forebay bench``: from words to a run, a ramp, a comparison, a report."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import uvloop

from forebay.app.delivery import Delivery
from forebay.app.keys import read_key
from forebay.app.loads import LoadWords, build_load
from forebay.app.words import Words
from forebay.kernel.errors import ConfigError
from forebay.lab.bench.options import BenchOptions, GeneratorBounds, Target
from forebay.lab.bench.run import run_bench
from forebay.lab.measure.result import load_result
from forebay.lab.report.live import LiveView

T = TypeVar("T")


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


def report(path: Path, delivery: Delivery) -> int:
    """Deliver a stored result again."""
    return delivery.give_run(load_result(path))


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
    """Run to the end; the first Ctrl-C ends the sending, the second everything."""

    async def main() -> T:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()

        def interrupted() -> None:
            loop.remove_signal_handler(signal.SIGINT)
            stop.set()

        with suppress(NotImplementedError):
            loop.add_signal_handler(signal.SIGINT, interrupted)
        return await work(stop)

    return uvloop.run(main())
