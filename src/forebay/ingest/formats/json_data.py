"""JSON and JSON lines as readable "path: value" lines, records as rows of a table."""

from __future__ import annotations

import json
from collections.abc import Iterator

from forebay.ingest.encoding import decode_source
from forebay.ingest.formats import plain
from forebay.ingest.formats.csv_table import add_rows
from forebay.ingest.settings import IngestLimits
from forebay.ingest.source import Source
from forebay.ingest.text import TextBuilder, tidy
from forebay.kernel.documents import Extracted

_MAX_COLUMNS = 30
_GROUP_CHARACTERS = 1_500


def parse(source: Source, limits: IngestLimits) -> Extracted:
    """Return a JSON document's values with their paths; plain text where it is not valid."""
    decoded = decode_source(source, limits)
    warnings = list(decoded.warnings)
    value: object
    if source.extension in (".jsonl", ".ndjson"):
        value, bad = _lines(decoded.text)
        if bad:
            warnings.append(f"{bad} lines are not valid JSON; they were indexed as plain text.")
    else:
        loaded = _load(decoded.text)
        if loaded is None:
            return _as_plain(source, limits, decoded.text, decoded.encoding, warnings)
        value = loaded[0]
    builder = TextBuilder(limits, media_type=source.media_type)
    builder.warnings.extend(warnings)
    _add(builder, value)
    title = value.get("title") if isinstance(value, dict) else None
    return builder.build(
        title=title if isinstance(title, str) else source.stem, encoding=decoded.encoding
    )


def _load(text: str) -> tuple[object] | None:
    try:
        return (json.loads(text.lstrip("\ufeff")),)
    except (ValueError, RecursionError):
        return None


def _as_plain(
    source: Source, limits: IngestLimits, text: str, encoding: str, warnings: list[str]
) -> Extracted:
    note = "The file is not valid JSON; it was indexed as plain text."
    return plain.from_text(text, source, limits, encoding, (*warnings, note))


def _lines(text: str) -> tuple[list[object], int]:
    values: list[object] = []
    bad = 0
    for line in text.lstrip("\ufeff").split("\n"):
        if not line.strip():
            continue
        loaded = _load(line)
        if loaded is None:
            bad += 1
            values.append(line)
        else:
            values.append(loaded[0])
    return values, bad


def _add(builder: TextBuilder, value: object) -> None:
    if isinstance(value, list):
        columns = _columns(value)
        if columns:
            rows = [[_scalar(record.get(name)) for name in columns] for record in value]
            add_rows(builder, [columns, *rows])
            return
        for item in value:
            _add_group(builder, "\n".join(_flatten(item)))
        return
    group: list[str] = []
    size = 0
    for line in _flatten(value):
        group.append(line)
        size += len(line)
        if size > _GROUP_CHARACTERS:
            _add_group(builder, "\n".join(group))
            group, size = [], 0
    _add_group(builder, "\n".join(group))


def _add_group(builder: TextBuilder, text: str) -> None:
    builder.add("paragraph", tidy(text))


def _columns(records: list[object]) -> list[str]:
    """The keys of records that are all flat and alike; empty where they are not."""
    names: dict[str, None] = {}
    if len(records) < 2:
        return []
    for record in records:
        if not isinstance(record, dict) or any(
            isinstance(v, (dict, list)) or (isinstance(v, str) and len(v) > 400)
            for v in record.values()
        ):
            return []
        names.update(dict.fromkeys(record))
        if len(names) > _MAX_COLUMNS:
            return []
    filled = sum(len(record) for record in records if isinstance(record, dict))
    return list(names) if filled >= 0.7 * len(names) * len(records) else []


def _scalar(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _flatten(root: object) -> Iterator[str]:
    """Yield "path: value" lines in order, without recursion."""
    stack: list[tuple[str, object]] = [("", root)]
    while stack:
        path, value = stack.pop()
        if isinstance(value, dict):
            items = [(f"{path}.{key}" if path else str(key), v) for key, v in value.items()]
            stack.extend(reversed(items))
        elif isinstance(value, list):
            if all(not isinstance(v, (dict, list)) for v in value):
                joined = ", ".join(s for s in map(_scalar, value) if s)
                if joined:
                    yield f"{path}: {joined}" if path else joined
            else:
                stack.extend(reversed([(f"{path}[{i}]", v) for i, v in enumerate(value)]))
        else:
            text = _scalar(value)
            if text.strip():
                yield f"{path}: {text}" if path else text
