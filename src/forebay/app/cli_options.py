"""Options that several commands share; each says what it is in one line."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

JsonFlag = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
ConfigFlag = Annotated[
    Path | None, typer.Option("--config", "-c", help="Configuration file (forebay.toml).")
]
StoreFlag = Annotated[Path | None, typer.Option("--store", help="Store folder (store.path).")]
KbFlag = Annotated[str | None, typer.Option("--kb", "-k", help="Knowledge base.")]
OutFlag = Annotated[Path | None, typer.Option("--out", help="Write the result, as JSON.")]
HtmlFlag = Annotated[Path | None, typer.Option("--html", help="Write a report with charts.")]
LanguageFlag = Annotated[str, typer.Option("--lang", help="Language of the report: en or zh.")]
SeedFlag = Annotated[int, typer.Option("--seed", min=0, help="Equal seeds, equal requests.")]

UrlArgument = Annotated[str, typer.Argument(help="The endpoint, such as http://127.0.0.1:8400.")]
WorkloadFlag = Annotated[
    Path | None, typer.Option("--workload", "-w", help="A workload file (.toml or .json).")
]
MixFlag = Annotated[str | None, typer.Option("--mix", help="Built-in kinds of requests.")]
QueriesFlag = Annotated[
    Path | None, typer.Option("--queries", help="Questions to ask: .txt, .csv or .jsonl.")
]
ZipfFlag = Annotated[
    float | None, typer.Option("--zipf", help="How unequally they are asked; 0: all alike.")
]
TraceFlag = Annotated[
    Path | None, typer.Option("--trace", help="Requests of a trace: Azure, Mooncake, BurstGPT.")
]
TimeScaleFlag = Annotated[
    float | None, typer.Option("--time-scale", help="Seconds of the run for one of the trace.")
]
RateScaleFlag = Annotated[
    float | None, typer.Option("--rate-scale", help="Thin (below 1) or multiply the trace.")
]
ArrivalsFlag = Annotated[str | None, typer.Option("--arrivals", help="poisson, constant or gamma.")]
RateFlag = Annotated[float | None, typer.Option("--rate", "-r", help="Requests a second.")]
UsersFlag = Annotated[
    int | None, typer.Option("--users", help="Closed loop: so many, each waiting for its answer.")
]
ThinkFlag = Annotated[
    float | None, typer.Option("--think", help="Closed loop: seconds before the next question.")
]
DurationFlag = Annotated[
    float | None, typer.Option("--duration", "-d", help="Seconds in which requests start.")
]
CountFlag = Annotated[int | None, typer.Option("--count", "-n", help="End after so many requests.")]
InputFlag = Annotated[int | None, typer.Option("--input-tokens", help="Tokens of each question.")]
OutputFlag = Annotated[int | None, typer.Option("--output-tokens", help="Tokens of each answer.")]
DeadlineFlag = Annotated[
    float | None, typer.Option("--deadline", help="Seconds after which an answer is no good.")
]
ModelFlag = Annotated[
    str, typer.Option("--model", "-m", help="Model to ask for; empty: the first it lists.")
]
KeyFlag = Annotated[
    Path | None, typer.Option("--key-file", help="File that holds the API key and nothing else.")
]
HeaderFlag = Annotated[
    list[str] | None, typer.Option("--header", help="A header as name=value; repeat for more.")
]
PlainFlag = Annotated[bool, typer.Option("--no-stream", help="Ask for whole answers.")]
TimeoutFlag = Annotated[
    float, typer.Option("--timeout", min=0.001, help="Seconds to wait where no deadline says.")
]
ProcessesFlag = Annotated[
    int, typer.Option("--processes", min=1, help="Generator processes, for what one core cannot.")
]
WarmupFlag = Annotated[
    float, typer.Option("--warmup", min=0, help="Seconds at the start that do not count.")
]
