"""``forebay bench``: load on any OpenAI-compatible endpoint, and what its results say."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from forebay.app.cli_options import (
    ArrivalsFlag,
    CountFlag,
    DeadlineFlag,
    DurationFlag,
    HeaderFlag,
    HtmlFlag,
    InputFlag,
    JsonFlag,
    KeyFlag,
    LanguageFlag,
    MixFlag,
    ModelFlag,
    OutFlag,
    OutputFlag,
    PlainFlag,
    ProcessesFlag,
    QueriesFlag,
    RateFlag,
    RateScaleFlag,
    SeedFlag,
    ThinkFlag,
    TimeoutFlag,
    TimeScaleFlag,
    TraceFlag,
    UrlArgument,
    UsersFlag,
    WarmupFlag,
    WorkloadFlag,
    ZipfFlag,
)
from forebay.app.output import Output

SHORT_FORM = "run"


class _RunsByDefault(TyperGroup):
    """A group whose words, when they begin with an address or an option, are those of ``run``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        first = args[0] if args else ""
        if first not in ctx.help_option_names and (
            first.startswith("-") or set(first) & set(":/.")
        ):
            args = [SHORT_FORM, *args]
        return super().parse_args(ctx, args)


bench_app = typer.Typer(
    cls=_RunsByDefault,
    help="Put load on an OpenAI-compatible endpoint and measure what its users feel: "
    "forebay bench URL.",
)


@bench_app.command("run")
def bench_run(
    url: UrlArgument,
    workload: WorkloadFlag = None,
    mix: MixFlag = None,
    queries: QueriesFlag = None,
    zipf: ZipfFlag = None,
    trace: TraceFlag = None,
    time_scale: TimeScaleFlag = None,
    rate_scale: RateScaleFlag = None,
    arrivals: ArrivalsFlag = None,
    rate: RateFlag = None,
    users: UsersFlag = None,
    think: ThinkFlag = None,
    duration: DurationFlag = None,
    count: CountFlag = None,
    input_tokens: InputFlag = None,
    output_tokens: OutputFlag = None,
    deadline: DeadlineFlag = None,
    model: ModelFlag = "",
    key_file: KeyFlag = None,
    header: HeaderFlag = None,
    no_stream: PlainFlag = False,
    timeout: TimeoutFlag = 60.0,
    warmup: WarmupFlag = 0.0,
    processes: ProcessesFlag = 1,
    seed: SeedFlag = 1,
    out: OutFlag = None,
    html: HtmlFlag = None,
    lang: LanguageFlag = "en",
    json: JsonFlag = False,
) -> None:
    """Ask for a while, at a rate that does not wait for answers, and say how it went."""
    given = locals()
    from forebay.app.benching import BenchWords, bench
    from forebay.app.delivery import Delivery
    from forebay.app.loads import LoadWords

    load, words = LoadWords.of(given), BenchWords.of(given)
    raise SystemExit(bench(words, load, Delivery(Output(as_json=json), out, html, lang)))


@bench_app.command("ramp")
def bench_ramp(
    url: UrlArgument,
    workload: WorkloadFlag = None,
    mix: MixFlag = None,
    queries: QueriesFlag = None,
    zipf: ZipfFlag = None,
    input_tokens: InputFlag = None,
    output_tokens: OutputFlag = None,
    deadline: DeadlineFlag = None,
    start: Annotated[float, typer.Option("--from", help="Requests a second to begin with.")] = 10.0,
    limit: Annotated[float, typer.Option("--to", help="Requests a second to end with.")] = 10_000.0,
    goodput: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Share of good answers that counts as healthy.")
    ] = 0.99,
    step: Annotated[float, typer.Option(min=0.1, help="Seconds at each rate.")] = 20.0,
    settle: Annotated[float, typer.Option(min=0.0, help="Seconds of rest between rates.")] = 5.0,
    resolution: Annotated[
        float, typer.Option(min=0.001, max=1.0, help="How narrow the answer must be, relatively.")
    ] = 0.05,
    model: ModelFlag = "",
    key_file: KeyFlag = None,
    header: HeaderFlag = None,
    no_stream: PlainFlag = False,
    timeout: TimeoutFlag = 60.0,
    processes: ProcessesFlag = 1,
    seed: SeedFlag = 1,
    out: OutFlag = None,
    html: HtmlFlag = None,
    lang: LanguageFlag = "en",
    json: JsonFlag = False,
) -> None:
    """Find the knee: the highest rate at which nearly every answer is good."""
    given = locals()
    from forebay.app.benching import BenchWords, RampWords, ramp
    from forebay.app.delivery import Delivery
    from forebay.app.loads import LoadWords

    load, words, search = LoadWords.of(given), BenchWords.of(given), RampWords.of(given)
    raise SystemExit(ramp((words, search), load, Delivery(Output(as_json=json), out, html, lang)))


@bench_app.command("compare")
def bench_compare(
    before: Annotated[Path, typer.Argument(help="A result.")],
    after: Annotated[Path, typer.Argument(help="Another result of the same workload.")],
    force: Annotated[
        bool, typer.Option("--force", help="Compare different workloads all the same.")
    ] = False,
    out: OutFlag = None,
    html: HtmlFlag = None,
    lang: LanguageFlag = "en",
    json: JsonFlag = False,
) -> None:
    """Say what changed between two results beyond noise."""
    from forebay.app.benching import compare
    from forebay.app.delivery import Delivery

    pair = (before, after)
    raise SystemExit(compare(pair, force, Delivery(Output(as_json=json), out, html, lang)))


@bench_app.command("report")
def bench_report(
    result: Annotated[Path, typer.Argument(help="A result of bench, bench ramp or simulate run.")],
    html: HtmlFlag = None,
    lang: LanguageFlag = "en",
    json: JsonFlag = False,
) -> None:
    """Show a result of run or ramp again, or write its report."""
    from forebay.app.benching import report
    from forebay.app.delivery import Delivery

    raise SystemExit(report(result, Delivery(Output(as_json=json), None, html, lang)))
