"""``forebay cache``: asks the server that runs on the store's folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from forebay.app.cache_calls import EXPLAIN, PURGE, STATS, ExplainCall, Finding, PurgeCall
from forebay.app.operations import choose_kb, load, run
from forebay.app.output import Output
from forebay.app.runtime import store_folder
from forebay.app.settings import Settings
from forebay.kernel.clock import Deadline, SystemClock
from forebay.kernel.errors import Unavailable
from forebay.store import StoreReader
from forebay.store.remote import WriterClient

CALL_S = 30.0
_REFUSED = "refused_"
_COLUMNS = (
    "entries",
    "bytes",
    "hit",
    "near",
    "miss",
    "bypass",
    "joined",
    "kept",
    "carried",
    "touched",
    "evicted",
    "expired",
)


def stats(config: Path | None, flags: dict[str, Any], output: Output) -> int:
    """Figures of every tier over all processes."""
    settings = load(config, flags)
    found = run(_call(settings, STATS, None))
    if output.as_json:
        output.result(found)
        return 0
    rows = [
        (tier, *(f"{found[tier].get(column, 0):.0f}" for column in _COLUMNS))
        for tier in sorted(found)
    ]
    output.table(("tier", *_COLUMNS), rows)
    why = {
        figure.removeprefix(_REFUSED).replace("_", " "): count
        for figure, count in found.get("answer", {}).items()
        if figure.startswith(_REFUSED) and count
    }
    if why:
        told = ", ".join(f"{reason} {count:.0f}" for reason, count in sorted(why.items()))
        output.line(f"Answers that were not kept: {told}.")
    return 0


def explain(
    config: Path | None,
    flags: dict[str, Any],
    call: ExplainCall,
    output: Output,
) -> int:
    """Which tier would answer a question, or why none."""
    settings = load(config, flags)
    kb = choose_kb(settings, call.kb or None, _kbs(settings))
    call = msgspec.structs.replace(call, kb=kb)
    findings = msgspec.convert(run(_call(settings, EXPLAIN, call)), list[Finding])
    if output.as_json:
        output.result(findings)
        return 0
    output.table(("tier", "verdict", "why"), [(one.tier, one.verdict, one.why) for one in findings])
    return 0


def purge(config: Path | None, flags: dict[str, Any], kb: str | None, output: Output) -> int:
    """Forget what is kept, of one knowledge base or of all."""
    settings = load(config, flags)
    if kb is not None:
        kb = choose_kb(settings, kb, _kbs(settings))
    count = run(_call(settings, PURGE, PurgeCall(kb or "")))
    if output.as_json:
        output.result({"kb": kb, "entries": count})
    else:
        output.line(f"{count} entries were forgotten.")
    return 0


def _kbs(settings: Settings) -> tuple[str, ...]:
    folder = store_folder(settings)
    if not folder.exists():
        return ()
    reader = StoreReader(folder, settings.store.record)
    try:
        return tuple(info.name for info in reader.kbs())
    finally:
        reader.close()


async def _call(settings: Settings, operation: str, payload: object) -> Any:
    client = WriterClient(store_folder(settings))
    try:
        return await client.call(operation, payload, deadline=Deadline.after(CALL_S, SystemClock()))
    except Unavailable as error:
        raise Unavailable(
            "no server runs on this store; caches live in one, start it with forebay serve."
        ) from error
