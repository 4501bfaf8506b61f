"""``forebay cache …`` as words of the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from forebay.app.cli_options import ConfigFlag, JsonFlag, KbFlag, StoreFlag
from forebay.app.output import Output

cache_app = typer.Typer(help="Look into the cache tiers of a running server.")


def _flags(store: Path | None) -> dict[str, Any]:
    return {"store.path": None if store is None else str(store)}


@cache_app.command("stats")
def cache_stats(config: ConfigFlag = None, store: StoreFlag = None, json: JsonFlag = False) -> None:
    """Entries, bytes, hits and what became of entries, by tier, over all processes."""
    from forebay.app.cache_commands import stats

    raise SystemExit(stats(config, _flags(store), Output(as_json=json)))


@cache_app.command("explain")
def cache_explain(
    query: Annotated[str, typer.Argument(help="The question, as a user asks it.")],
    kb: KbFlag = None,
    top_k: Annotated[int, typer.Option(min=1, max=100, help="Hits it asks for.")] = 5,
    tenant: Annotated[str, typer.Option(help="Tenant that asks.")] = "default",
    groups: Annotated[
        list[str] | None,
        typer.Option("--group", help="Group of who asks; repeat for more; none: all rights."),
    ] = None,
    config: ConfigFlag = None,
    store: StoreFlag = None,
    json: JsonFlag = False,
) -> None:
    """Which tier would answer a question, or why not; nothing is asked and nothing counted."""
    from forebay.app.cache_calls import ExplainCall
    from forebay.app.cache_commands import explain

    call = ExplainCall(kb or "", query, top_k, tenant, tuple(groups) if groups else None)
    raise SystemExit(explain(config, _flags(store), call, Output(as_json=json)))


@cache_app.command("purge")
def cache_purge(
    kb: KbFlag = None, config: ConfigFlag = None, store: StoreFlag = None, json: JsonFlag = False
) -> None:
    """Forget what is kept, of one knowledge base or of all, in every process."""
    from forebay.app.cache_commands import purge

    raise SystemExit(purge(config, _flags(store), kb, Output(as_json=json)))
