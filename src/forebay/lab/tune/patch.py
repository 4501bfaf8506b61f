"""A configuration patch: the changed settings as TOML that ``forebay.toml`` may contain."""

from __future__ import annotations

import json
from collections.abc import Mapping

from forebay.lab.tune.space import Value, Values


def changed(before: Values, after: Values) -> dict[str, Value]:
    """Return what of ``after`` differs from ``before``."""
    return {path: value for path, value in after.items() if before.get(path) != value}


def write_patch(before: Values, after: Values, notes: tuple[str, ...] = ()) -> str:
    """Return the changed settings as TOML, each with what it was; ``notes`` stand on top.

    The keys of one table stand together: a table may be opened only once in a file.
    """
    tables: dict[str, dict[str, Value]] = {}
    for path, value in sorted(changed(before, after).items()):
        table, _, key = path.rpartition(".")
        tables.setdefault(table, {})[key] = value
    lines = [f"# {line}" for note in notes for line in note.splitlines()]
    for table, keys in tables.items():
        lines += ["", f"[{table}]"]
        for key, value in keys.items():
            was = before.get(f"{table}.{key}")
            remark = f"  # was {toml_value(was)}" if was is not None else ""
            lines.append(f"{key} = {toml_value(value)}{remark}")
    return "\n".join(lines).lstrip("\n") + "\n"


def toml_value(value: Value) -> str:
    """Return a scalar as TOML writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        # A basic TOML string is a JSON string, but for DEL, which JSON leaves as it is.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return repr(value)


def merged(*parts: Mapping[str, Value]) -> dict[str, Value]:
    """Return settings by path, later parts winning."""
    return {path: value for part in parts for path, value in part.items()}
