"""The command line: thin commands that parse words, call one operation, print its result."""

from __future__ import annotations

import errno
import io
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from forebay import __version__
from forebay.app.cli_bench import bench_app
from forebay.app.cli_cache import cache_app
from forebay.app.cli_distill import distill_app
from forebay.app.cli_eval import eval_app
from forebay.app.cli_options import (
    ConfigFlag,
    HtmlFlag,
    JsonFlag,
    KbFlag,
    LanguageFlag,
    OutFlag,
    SeedFlag,
    StoreFlag,
)
from forebay.app.cli_simulate import simulate_app
from forebay.app.cli_tune import tune_app
from forebay.app.output import Output
from forebay.app.words import setting_flags
from forebay.kernel.errors import ConfigError, ForebayError, InvalidRequest

app = typer.Typer(
    name="forebay",
    help="Serve cited answers from your documents, and survive the rush.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
kb_app = typer.Typer(help="List, show, drop, back up and restore knowledge bases.")
key_app = typer.Typer(help="Make API keys; only their hash goes into the configuration.")
app.add_typer(kb_app, name="kb", no_args_is_help=True)
app.add_typer(key_app, name="key", no_args_is_help=True)
app.add_typer(cache_app, name="cache", no_args_is_help=True)
app.add_typer(bench_app, name="bench", no_args_is_help=True)
app.add_typer(simulate_app, name="simulate", no_args_is_help=True)
app.add_typer(eval_app, name="eval", no_args_is_help=True)
app.add_typer(tune_app)
app.add_typer(distill_app)

SetFlag = Annotated[
    list[str] | None,
    typer.Option("--set", help="One setting as section.key=value; repeat for more."),
]


def _version(value: bool) -> None:
    if value:
        typer.echo(f"forebay {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Serve cited answers from your documents, and survive the rush."""


def _flags(pairs: list[str] | None, **known: Any) -> dict[str, Any]:
    flags = {name.replace("__", "."): value for name, value in known.items()}
    return flags | setting_flags(pairs)


@app.command()
def serve(
    paths: Annotated[
        list[Path] | None, typer.Argument(help="Folders or files to index first.")
    ] = None,
    kb: KbFlag = None,
    host: Annotated[str | None, typer.Option(help="Address to bind (server.host).")] = None,
    port: Annotated[int | None, typer.Option(help="Port to bind (server.port).")] = None,
    workers: Annotated[
        int, typer.Option(min=1, max=256, help="Processes on the same store folder.")
    ] = 1,
    watch: Annotated[bool, typer.Option("--watch", help="Follow the folders' changes.")] = False,
    config: ConfigFlag = None,
    store: StoreFlag = None,
    settings: SetFlag = None,
) -> None:
    """Index what is configured or named, then serve it over HTTP."""
    from forebay.app.serving import ServeOptions
    from forebay.app.serving import serve as run

    flags = _flags(settings, server__host=host, server__port=port, store__path=_text(store))
    options = ServeOptions(tuple(str(path) for path in paths or ()), kb, workers, watch)
    raise SystemExit(run(config, flags, options))


@app.command()
def ingest(
    paths: Annotated[list[Path], typer.Argument(help="Folders or files.")],
    kb: KbFlag = None,
    tags: Annotated[list[str] | None, typer.Option("--tag", help="Tag for every file.")] = None,
    groups: Annotated[
        list[str] | None, typer.Option("--group", help="Only these groups may read them.")
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep-vanished", help="Keep documents whose file is gone.")
    ] = False,
    moved: Annotated[
        bool, typer.Option("--moved", help="The folder stood elsewhere before; take it over.")
    ] = False,
    embedded: Annotated[
        bool, typer.Option("--wait-embedded", help="Return when vectors are stored too.")
    ] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Go on following changes.")] = False,
    config: ConfigFlag = None,
    store: StoreFlag = None,
    settings: SetFlag = None,
    json: JsonFlag = False,
) -> None:
    """Bring folders or files into a knowledge base; beside a running server it does the work."""
    from forebay.app.changing import IngestOptions
    from forebay.app.changing import ingest as run

    options = IngestOptions(
        paths=tuple(str(path) for path in paths),
        kb=kb,
        tags=tuple(tags or ()),
        groups=tuple(groups or ()),
        remove_vanished=not keep,
        moved=moved,
        wait_embedded=embedded,
        watch=watch,
    )
    flags = _flags(settings, store__path=_text(store))
    raise SystemExit(run(config, flags, options, Output(as_json=json)))


@app.command()
def search(
    query: Annotated[str, typer.Argument(help="What to look for.")],
    kb: KbFlag = None,
    top_k: Annotated[int, typer.Option("--top-k", "-n", min=1, max=100)] = 5,
    config: ConfigFlag = None,
    store: StoreFlag = None,
    settings: SetFlag = None,
    json: JsonFlag = False,
) -> None:
    """Find passages."""
    from forebay.app.operations import search as run

    flags = _flags(settings, store__path=_text(store))
    raise SystemExit(run(config, flags, (kb, query, top_k), Output(as_json=json)))


@app.command()
def ask(
    question: Annotated[str, typer.Argument(help="The question.")],
    kb: KbFlag = None,
    config: ConfigFlag = None,
    store: StoreFlag = None,
    settings: SetFlag = None,
    json: JsonFlag = False,
) -> None:
    """Answer a question with citations."""
    from forebay.app.operations import ask as run

    flags = _flags(settings, store__path=_text(store))
    raise SystemExit(run(config, flags, (kb, question), Output(as_json=json)))


@kb_app.command("list")
def kb_list(config: ConfigFlag = None, store: StoreFlag = None, json: JsonFlag = False) -> None:
    """Every knowledge base of the store."""
    from forebay.app.operations import kb_list as run

    raise SystemExit(run(config, _flags(None, store__path=_text(store)), Output(as_json=json)))


@kb_app.command("show")
def kb_show(
    name: str, config: ConfigFlag = None, store: StoreFlag = None, json: JsonFlag = False
) -> None:
    """One knowledge base and its documents."""
    from forebay.app.operations import kb_show as run

    flags = _flags(None, store__path=_text(store))
    raise SystemExit(run(config, flags, name, Output(as_json=json)))


@kb_app.command("drop")
def kb_drop(
    name: str,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    config: ConfigFlag = None,
    store: StoreFlag = None,
    json: JsonFlag = False,
) -> None:
    """Remove a knowledge base and everything in it."""
    from forebay.app.changing import kb_drop as run

    output = Output(as_json=json)
    if not yes:
        if not sys.stdin.isatty():
            output.fail(f"kb drop removes {name} for good; say --yes to do it.", 2)
        typer.confirm(f"Remove knowledge base {name} for good?", abort=True)
    raise SystemExit(run(config, _flags(None, store__path=_text(store)), name, output))


@kb_app.command("export")
def kb_export(
    name: str,
    file: Path,
    config: ConfigFlag = None,
    store: StoreFlag = None,
    json: JsonFlag = False,
) -> None:
    """Write one knowledge base, vectors included, to one file."""
    from forebay.app.operations import kb_export as run

    flags = _flags(None, store__path=_text(store))
    raise SystemExit(run(config, flags, (name, file), Output(as_json=json)))


@kb_app.command("import")
def kb_import(
    file: Path,
    name: Annotated[str | None, typer.Option("--as", help="Another name for it.")] = None,
    config: ConfigFlag = None,
    store: StoreFlag = None,
    json: JsonFlag = False,
) -> None:
    """Restore a knowledge base from an export."""
    from forebay.app.changing import kb_import as run

    flags = _flags(None, store__path=_text(store))
    raise SystemExit(run(config, flags, (file, name), Output(as_json=json)))


@kb_app.command("reembed")
def kb_reembed(
    name: str, config: ConfigFlag = None, store: StoreFlag = None, json: JsonFlag = False
) -> None:
    """Give every chunk a vector of the configured embedder, beside serving."""
    from forebay.app.changing import kb_reembed as run

    flags = _flags(None, store__path=_text(store))
    raise SystemExit(run(config, flags, name, Output(as_json=json)))


@key_app.command("new")
def key_new(json: JsonFlag = False) -> None:
    """Make an API key and print it once, with the hash for the tenant's keys."""
    from forebay.app.operations import key_new as run

    raise SystemExit(run(Output(as_json=json)))


@app.command()
def config(
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON schema.")] = False,
    config: ConfigFlag = None,
    settings: SetFlag = None,
    json: JsonFlag = False,
) -> None:
    """The settings in force and where each came from."""
    from forebay.app.operations import show_config as run

    raise SystemExit(run(config, _flags(settings), schema, Output(as_json=json)))


@app.command()
def doctor(config: ConfigFlag = None, store: StoreFlag = None, json: JsonFlag = False) -> None:
    """What this machine has, what would be used, what is missing and how to get it."""
    from forebay.app.doctor import doctor as run

    flags = _flags(None, store__path=_text(store))
    raise SystemExit(run(config, flags, Output(as_json=json)))


@app.command()
def prove(
    seconds: Annotated[
        float,
        typer.Option(min=1.0, max=600.0, help="Length of a phase of the first panel."),
    ] = 25.0,
    rate: Annotated[float, typer.Option("--rate", "-r", min=1.0, help="Requests a second.")] = 70.0,
    speed: Annotated[
        float, typer.Option(min=0.1, max=100.0, help="Engine seconds in one real second.")
    ] = 1.0,
    port: Annotated[int, typer.Option(help="Port of the gateways; 0: any that is free.")] = 0,
    seed: SeedFlag = 1,
    panels: Annotated[
        str, typer.Option(help="Mixes beside light requests, some of these.")
    ] = "heavy,medium,parts",
    stored: Annotated[
        Path | None, typer.Option("--read", help="Show a result of --out instead of measuring.")
    ] = None,
    out: OutFlag = None,
    html: HtmlFlag = None,
    svg: Annotated[Path | None, typer.Option("--svg", help="Write the chart.")] = None,
    lang: LanguageFlag = "en",
    json: JsonFlag = False,
) -> None:
    """See an avalanche and the calm: one load with and without admission, without a GPU."""
    given = locals()
    from forebay.app.delivery import Delivery
    from forebay.app.proving import ProveWords
    from forebay.app.proving import prove as run

    delivery = Delivery(Output(as_json=json), out, html, lang)
    raise SystemExit(run(ProveWords.of(given), delivery))


@app.command()
def mcp(config: ConfigFlag = None, store: StoreFlag = None, settings: SetFlag = None) -> None:
    """Speak the Model Context Protocol on standard input and output."""
    from forebay.app.operations import mcp_stdio as run

    raise SystemExit(run(config, _flags(settings, store__path=_text(store))))


def _text(path: Path | None) -> str | None:
    return str(path) if path is not None else None


def main() -> None:
    """Run the command line: 0 done, 1 the work failed, 2 wrong use."""
    _open_standard_streams()
    for stream in (sys.stdout, sys.stderr):
        # In a locale that lacks a character, an escape is better than no answer.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    output = Output(as_json="--json" in sys.argv[1:])
    try:
        app()
    except (ConfigError, InvalidRequest) as error:
        output.fail(error.message, 2)
    except ForebayError as error:
        output.fail(error.message, 1)
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except BrokenPipeError:
        sys.stderr.close()
        raise SystemExit(1) from None
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        # What is still held cannot be written at the end either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        output.alarm(f"forebay: the disk is full ({error.strerror}); make room and run it again.")
        raise SystemExit(1) from None


def _open_standard_streams() -> None:
    """Give a program that was started without them (``>&-``) streams that lead nowhere.

    Else the first files and sockets would take their numbers, and what is printed goes there.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number: this one
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "w" if number else "r", encoding="utf-8"))
