"""``forebay simulate``: engines that are not there, in real and in virtual time."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from forebay.app.cli_options import (
    ArrivalsFlag,
    CountFlag,
    DeadlineFlag,
    DurationFlag,
    HtmlFlag,
    InputFlag,
    JsonFlag,
    KeyFlag,
    LanguageFlag,
    MixFlag,
    ModelFlag,
    OutFlag,
    OutputFlag,
    RateFlag,
    RateScaleFlag,
    SeedFlag,
    ThinkFlag,
    TimeScaleFlag,
    TraceFlag,
    UrlArgument,
    UsersFlag,
    WarmupFlag,
    WorkloadFlag,
)
from forebay.app.output import Output

simulate_app = typer.Typer(
    help="Simulate engines: serve them over HTTP, or run a load through them in virtual time."
)

ProfileFlag = Annotated[
    str, typer.Option("--profile", "-p", help="Engine: CARD/MODEL/PRECISION/tpN or a fitted file.")
]
ReplicasFlag = Annotated[int, typer.Option("--replicas", min=1, help="How many engines.")]
EngineFlag = Annotated[
    list[str] | None,
    typer.Option("--set", help="An engine's setting, such as max_num_seqs=64; repeat for more."),
]


@simulate_app.command("serve")
def simulate_serve(
    profile: ProfileFlag = "h100/8b/fp16/tp1",
    replicas: ReplicasFlag = 1,
    host: Annotated[str, typer.Option(help="Address to bind.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port of the first engine; the rest follow.")] = 8500,
    shared_port: Annotated[
        int | None, typer.Option(help="A further port that spreads requests over all.")
    ] = None,
    model: Annotated[str, typer.Option("--model", "-m", help="Name of the served model.")] = "sim",
    fault: Annotated[
        list[str] | None, typer.Option(help="A fault, such as error:status=503,share=0.1.")
    ] = None,
    output: Annotated[
        str, typer.Option(help="Lengths of answers: draw, or cap (what the client allows).")
    ] = "draw",
    tokens_per_write: Annotated[int, typer.Option(help="Tokens of one event of a stream.")] = 1,
    speed: Annotated[float, typer.Option(help="Engine seconds in one real second.")] = 1.0,
    seed: SeedFlag = 1,
    settings: EngineFlag = None,
    json: JsonFlag = False,
) -> None:
    """Serve simulated engines as an OpenAI-compatible endpoint, until Ctrl-C."""
    from forebay.app.simulating import serve

    values = {
        "profile": profile,
        "replicas": replicas,
        "host": host,
        "port": port,
        "shared_port": shared_port,
        "model": model,
        "faults": tuple(fault or ()),
        "output": output,
        "tokens_per_write": tokens_per_write,
        "speed": speed,
        "seed": seed,
    }
    raise SystemExit(serve(values, settings, Output(as_json=json)))


@simulate_app.command("run")
def simulate_run(
    profile: ProfileFlag = "h100/8b/fp16/tp1",
    replicas: ReplicasFlag = 1,
    pool: Annotated[
        list[str] | None,
        typer.Option(help="A pool, as short:replicas=2,max_input_tokens=1000; repeat for more."),
    ] = None,
    router: Annotated[
        str, typer.Option(help="What sends requests to replicas, such as round-robin.")
    ] = "least-outstanding",
    stay: Annotated[
        bool, typer.Option("--stay", help="Clients wait on after their deadline.")
    ] = False,
    workload: WorkloadFlag = None,
    mix: MixFlag = None,
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
    warmup: WarmupFlag = 0.0,
    seed: SeedFlag = 1,
    settings: EngineFlag = None,
    out: OutFlag = None,
    html: HtmlFlag = None,
    lang: LanguageFlag = "en",
    json: JsonFlag = False,
) -> None:
    """Run a load through simulated engines in virtual time: hours in seconds."""
    given = locals()
    from forebay.app.delivery import Delivery
    from forebay.app.loads import LoadWords
    from forebay.app.pools import FleetWords
    from forebay.app.simulating import VirtualWords, run

    fleet, words, load = FleetWords.of(given), VirtualWords.of(given), LoadWords.of(given)
    raise SystemExit(run(fleet, words, load, Delivery(Output(as_json=json), out, html, lang)))


@simulate_app.command("calibrate")
def simulate_calibrate(
    url: UrlArgument,
    out: Annotated[Path, typer.Option("--out", help="The profile to write, a .json file.")],
    model: ModelFlag = "",
    key_file: KeyFlag = None,
    in_flight: Annotated[str, typer.Option(help="Requests at once to measure at.")] = "1,2,4",
    repeats: Annotated[int, typer.Option(min=1, help="Measurements of each point.")] = 3,
    seed: SeedFlag = 0,
    json: JsonFlag = False,
) -> None:
    """Measure an endpoint that is otherwise idle and write a profile of it."""
    given = locals()
    from forebay.app.simulating import CalibrateWords, calibrate

    raise SystemExit(calibrate(CalibrateWords.of(given), Output(as_json=json)))


@simulate_app.command("profiles")
def simulate_profiles(
    name: Annotated[str | None, typer.Argument(help="Only this one, in detail.")] = None,
    json: JsonFlag = False,
) -> None:
    """List the engines that can be simulated, or show one with its sources."""
    from forebay.app.simulating import profiles

    raise SystemExit(profiles(name, Output(as_json=json)))
