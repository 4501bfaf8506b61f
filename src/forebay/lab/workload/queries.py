"""Questions from a file: which are asked, how often the same one, and in which other words.

Formats by ending: ``.txt`` one a line; ``.csv`` and ``.jsonl`` by column or field (BEIR's
``queries.jsonl`` is one). With ``group`` (say, an intent) a group is drawn first, then one of its
members: the same question in other words. Popularity is Zipf's, over a seeded order, so that the
first lines of the file are not the favourites of every run.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np

from forebay.kernel.errors import ConfigError
from forebay.lab.workload.distributions import Ints, Zipf, unreadable
from forebay.lab.workload.tokens import count_tokens

TEXT_FIELDS = ("text", "question", "query", "prompt", "instruction")
MAX_QUERIES = 1_000_000
MAX_FILE_BYTES = 1 << 30


class QueriesSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A file of questions.

    Without ``zipf`` they are asked in the file's order, again and again; with it, rank r is
    asked in proportion to 1/r^zipf (0: all alike). ``column`` is found by name when not given.
    """

    file: Annotated[str, msgspec.Meta(min_length=1)]
    column: str = ""
    group: str = ""
    zipf: Annotated[float, msgspec.Meta(ge=0, le=10)] | None = None


class Queries:
    """The questions of one file, with their tokens counted once."""

    def __init__(self, texts: list[str], groups: list[str] | None, zipf: float | None) -> None:
        self.texts = texts
        self.tokens = [count_tokens(text) for text in texts]
        self._members = _members(texts, groups)
        self._zipf = None if zipf is None else Zipf(len(self._members), zipf)

    def draws(self, rng: np.random.Generator) -> Draws:
        """A fresh sequence of choices; popularity depends on ``rng`` alone."""
        return Draws(self._members, self._zipf, rng)


class Draws:
    """One run's sequence of questions."""

    def __init__(self, members: list[Ints], zipf: Zipf | None, rng: np.random.Generator) -> None:
        self._zipf = zipf
        self._rng = rng
        self._asked = 0
        order = np.arange(len(members)) if zipf is None else rng.permutation(len(members))
        self._sizes = np.array([len(members[place]) for place in order])
        self._offsets = np.concatenate(([0], np.cumsum(self._sizes)[:-1]))
        self._flat = np.concatenate([members[place] for place in order])

    def next(self, count: int) -> list[int]:
        """Positions of the next ``count`` questions."""
        if self._zipf is None:
            ranks = (self._asked + np.arange(count)) % len(self._sizes)
            self._asked += count
        else:
            ranks = self._zipf.draw(self._rng, count)
        sizes = self._sizes[ranks]
        within = (self._rng.random(count) * sizes).astype(np.int64)
        chosen: list[int] = self._flat[self._offsets[ranks] + within].tolist()
        return chosen


def read_queries(spec: QueriesSpec, folder: Path) -> Queries:
    """Read the file; every fault is one ``ConfigError`` with the file's name and line."""
    path = folder / spec.file
    texts: list[str] = []
    groups: list[str] | None = [] if spec.group else None
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise ConfigError(f"{path.name} is over 1 GiB; take a sample of its questions.")
        content = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise unreadable(path, error) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path.name} is not UTF-8 text; save it as UTF-8.") from error
    for text, group in _rows(path, content, spec):
        if not text:
            continue
        texts.append(text)
        if groups is not None:
            groups.append(group)
        if len(texts) > MAX_QUERIES:
            raise ConfigError(f"{path.name} has more than {MAX_QUERIES:,} questions; take fewer.")
    if not texts:
        raise ConfigError(f"{path.name} holds no questions.")
    return Queries(texts, groups, spec.zipf)


def _rows(path: Path, content: str, spec: QueriesSpec) -> Iterator[tuple[str, str]]:
    match path.suffix.lower():
        case ".csv":
            return _csv_rows(path, content, spec)
        case ".jsonl" | ".ndjson":
            return _json_rows(path, content, spec)
        case ".txt" | ".md":
            if spec.column or spec.group:
                raise ConfigError(
                    f"{path.name} is plain text: it has no columns; use csv or jsonl."
                )
            return ((line.strip(), "") for line in content.splitlines())
        case other:
            raise ConfigError(
                f"{path.name}: a file of questions ends in .txt, .csv or .jsonl, not {other}."
            )


def _csv_rows(path: Path, content: str, spec: QueriesSpec) -> Iterator[tuple[str, str]]:
    rows = csv.reader(io.StringIO(content, newline=""))
    header = next(rows, [])
    column = header.index(_field(path, header, spec.column))
    group = header.index(_field(path, header, spec.group)) if spec.group else None
    try:
        for row in rows:
            if not row:
                continue
            if len(row) <= max(column, group or 0):
                raise ConfigError(
                    f"{path.name} line {rows.line_num}: the row has {len(row)} of "
                    f"{len(header)} columns."
                )
            yield row[column].strip(), "" if group is None else row[group]
    except csv.Error as error:
        raise ConfigError(f"{path.name} line {rows.line_num}: {error}.") from error


def _json_rows(path: Path, content: str, spec: QueriesSpec) -> Iterator[tuple[str, str]]:
    decoder = msgspec.json.Decoder(dict[str, Any])
    column = spec.column
    for number, line in enumerate(content.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = decoder.decode(line)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise ConfigError(f"{path.name} line {number} is no JSON object: {error}.") from error
        if not column:
            column = _field(path, list(row), spec.column)
        missing = [name for name in (column, spec.group) if name and name not in row]
        if missing:
            raise ConfigError(
                f"{path.name} line {number}: no field {missing[0]}; the line has {', '.join(row)}."
            )
        text, group = row[column], row[spec.group] if spec.group else ""
        if not isinstance(text, str):
            raise ConfigError(f"{path.name} line {number}: the question is not a text.")
        yield text.strip(), str(group)


def _field(path: Path, fields: list[str], wanted: str) -> str:
    for name in (wanted,) if wanted else TEXT_FIELDS:
        if name in fields:
            return name
    known = ", ".join(fields[:20]) or "none"
    if wanted:
        raise ConfigError(f"{path.name} has no column {wanted}; it has {known}.")
    raise ConfigError(
        f"{path.name}: which column holds the questions? Set column to one of {known}."
    )


def _members(texts: list[str], groups: list[str] | None) -> list[Ints]:
    if groups is None:
        return list(np.arange(len(texts), dtype=np.int64).reshape(-1, 1))
    by_name: dict[str, list[int]] = {}
    for position, group in enumerate(groups):
        by_name.setdefault(group, []).append(position)
    return [np.array(places, dtype=np.int64) for places in by_name.values()]
