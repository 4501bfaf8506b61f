"""Rows of public traces and of Forebay's own log, read line by line.

Each reader yields rows with a time in seconds on a clock of its own; only differences count. A
row that is malformed ends the reading with one sentence that names file and line.
"""

from __future__ import annotations

import csv
import math
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal, TextIO, TypeVar

import msgspec

from forebay.kernel.errors import ConfigError
from forebay.lab.workload.distributions import unreadable

T = TypeVar("T")
TraceFormat = Literal["azure", "mooncake", "burstgpt", "forebay"]
MAX_LINE_CHARACTERS = 4 << 20
MAX_TOKENS = 100_000_000
MOONCAKE_BLOCK_TOKENS = 512
_Tokens = Annotated[int, msgspec.Meta(ge=0, le=MAX_TOKENS)]


class TraceRow(msgspec.Struct, frozen=True, gc=False):
    """One recorded request; ``output_tokens`` 0 says that it failed."""

    at_s: float
    input_tokens: int
    output_tokens: int
    kind: str = ""
    tenant: str = ""
    priority: str | int | None = None
    deadline_s: float | None = None
    prefix: tuple[int, ...] = ()
    block_tokens: int = MOONCAKE_BLOCK_TOKENS


def read_rows(path: Path, form: TraceFormat) -> Iterator[TraceRow]:
    """The rows of the file in its own order."""
    readers = {"azure": _azure, "burstgpt": _burstgpt, "mooncake": _mooncake, "forebay": _forebay}
    try:
        with path.open(encoding="utf-8-sig", newline="") as handle:
            yield from readers[form](path, handle)
    except OSError as error:
        raise unreadable(path, error) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path.name} is not UTF-8 text, so it is no trace.") from error


def detect_format(path: Path) -> TraceFormat:
    """Tell the format from the first line; raises ``ConfigError`` when none fits."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as handle:
            first = handle.readline(MAX_LINE_CHARACTERS)
    except OSError as error:
        raise unreadable(path, error) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path.name} is not UTF-8 text, so it is no trace.") from error
    if first.lstrip().startswith("{"):
        return "mooncake" if '"input_length"' in first else "forebay"
    names = {name.strip().lower() for name in first.split(",")}
    if "contexttokens" in names:
        return "azure"
    if "request tokens" in names:
        return "burstgpt"
    raise ConfigError(
        f"{path.name} is no trace this program knows (Azure or BurstGPT CSV with its header, "
        "Mooncake or Forebay JSONL)."
    )


def _azure(path: Path, handle: TextIO) -> Iterator[TraceRow]:
    columns = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
    for line, (time, context, generated) in _csv(path, handle, columns):
        try:
            at_s = _moment(time)
        except ValueError:
            raise _malformed(path, line, f'"{time[:40]}" is no time stamp') from None
        yield TraceRow(
            at_s,
            _tokens(path, line, columns[1], context),
            _tokens(path, line, columns[2], generated),
        )


def _burstgpt(path: Path, handle: TextIO) -> Iterator[TraceRow]:
    columns = ("Timestamp", "Request tokens", "Response tokens", "Log Type")
    for line, (time, asked, answered, log) in _csv(path, handle, columns):
        at_s = _number(time)
        if at_s is None:
            raise _malformed(path, line, f'Timestamp "{time[:40]}" is no number of seconds')
        yield TraceRow(
            at_s,
            _tokens(path, line, columns[1], asked),
            _tokens(path, line, columns[2], answered),
            # "Conversation log" and "API log" are kinds "conversation" and "api".
            log.lower().removesuffix("log").strip(),
        )


class _Mooncake(msgspec.Struct, gc=False):
    timestamp: Annotated[float, msgspec.Meta(ge=0)]
    input_length: _Tokens
    output_length: _Tokens
    hash_ids: tuple[Annotated[int, msgspec.Meta(ge=0, le=2**62)], ...] = ()


def _mooncake(path: Path, handle: TextIO) -> Iterator[TraceRow]:
    for _, row in _json(path, handle, _Mooncake):
        yield TraceRow(
            row.timestamp / 1000, row.input_length, row.output_length, prefix=row.hash_ids
        )


class _Access(msgspec.Struct, gc=False):
    """A line of the request log; ``time`` is the answer's end, as ``duration_ms`` tells."""

    time: str = ""
    logger: str = ""
    duration_ms: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    tenant: str = ""
    prompt_tokens: _Tokens = 0
    completion_tokens: _Tokens = 0
    question_tokens: _Tokens = 0
    question_hash: str = ""
    kind: str = ""
    priority: str | int | None = None
    deadline_ms: Annotated[float, msgspec.Meta(gt=0)] | None = None


def _forebay(path: Path, handle: TextIO) -> Iterator[TraceRow]:
    for line, row in _json(path, handle, _Access):
        asked = row.question_tokens or row.prompt_tokens
        # The same output holds what other parts of the server log, and requests without tokens.
        if row.logger != "forebay.access" or not asked:
            continue
        try:
            at_s = _moment(row.time) - row.duration_ms / 1000
        except ValueError:
            raise _malformed(path, line, f'"{row.time[:40]}" is no time stamp') from None
        same = (zlib.crc32(row.question_hash.encode()),) if row.question_hash else ()
        yield TraceRow(
            at_s,
            asked,
            row.completion_tokens,
            row.kind,
            row.tenant,
            row.priority,
            None if row.deadline_ms is None else row.deadline_ms / 1000,
            same,
            # One block as long as the question: equal hashes ask in equal words.
            asked,
        )


def _csv(path: Path, handle: TextIO, columns: tuple[str, ...]) -> Iterator[tuple[int, list[str]]]:
    """Line number and the wanted columns of each row, whatever their order in the file."""
    rows = csv.reader(_bounded(path, handle))
    try:
        header = [name.strip().lower() for name in next(rows, [])]
        missing = [name for name in columns if name.lower() not in header]
        if missing:
            raise _malformed(path, 1, f"the header has no column {missing[0]}")
        places = [header.index(name.lower()) for name in columns]
        width = max(places) + 1
        for row in rows:
            if len(row) >= width:
                yield rows.line_num, [row[place] for place in places]
            elif row:
                raise _malformed(
                    path, rows.line_num, f"the row has {len(row)} of {len(header)} columns"
                )
    except csv.Error as error:
        raise _malformed(path, rows.line_num, str(error)) from error


def _json(path: Path, handle: TextIO, kind: type[T]) -> Iterator[tuple[int, T]]:
    decoder = msgspec.json.Decoder(kind)
    for number, line in enumerate(_bounded(path, handle), start=1):
        if not line.strip():
            continue
        try:
            yield number, decoder.decode(line)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            what = str(error).replace("`", "").replace(" - at $.", " in ")
            raise _malformed(path, number, f"this is no row of such a trace ({what})") from error


def _bounded(path: Path, handle: TextIO) -> Iterator[str]:
    """Lines of a length that memory bears."""
    number = 0
    while line := handle.readline(MAX_LINE_CHARACTERS + 1):
        number += 1
        if len(line) > MAX_LINE_CHARACTERS:
            raise _malformed(path, number, "the line is longer than 4 million characters")
        yield line


def _moment(text: str) -> float:
    moment = datetime.fromisoformat(text.strip())
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _tokens(path: Path, line: int, column: str, text: str) -> int:
    value = _number(text)
    if value is None or value != int(value) or not 0 <= value <= MAX_TOKENS:
        raise _malformed(path, line, f'{column} "{text[:40]}" is no number of tokens')
    return int(value)


def _malformed(path: Path, line: int, what: str) -> ConfigError:
    return ConfigError(f"{path.name} line {line}: {what}; mend or remove the line.")
