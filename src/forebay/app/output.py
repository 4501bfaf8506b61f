"""How the command line speaks: JSON on request, tables and bars on a terminal, lines in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table


class Output:
    """Where a command prints; ``as_json`` turns results into one JSON value per line."""

    def __init__(self, *, as_json: bool = False) -> None:
        self.as_json = as_json
        self._console = Console(soft_wrap=True, highlight=False)
        self._errors = Console(stderr=True, soft_wrap=True, highlight=False)

    @property
    def interactive(self) -> bool:
        """Whether a person is watching the error stream (bars go there)."""
        return self._errors.is_terminal and not self.as_json

    def result(self, value: Any) -> None:
        """Print a value as JSON, which is UTF-8 in every locale."""
        self.encoded(msgspec.json.encode(value))

    def encoded(self, data: bytes) -> None:
        """Print JSON that is already there."""
        sys.stdout.flush()
        rest = memoryview(data + b"\n")
        while rest:
            # Where it is not buffered (PYTHONUNBUFFERED), a pipe to a process that was stopped
            # takes a part.
            rest = rest[sys.stdout.buffer.write(rest) or 0 :]
        sys.stdout.buffer.flush()

    def line(self, text: str = "") -> None:
        """Print a line for people; nothing in JSON mode."""
        if not self.as_json:
            self._console.print(text, markup=False)

    def text(self, text: str) -> None:
        """Print a piece of a line at once (streamed answers)."""
        sys.stdout.write(text)
        sys.stdout.flush()

    def flush(self) -> None:
        """Let a reader at the other end of a pipe see what was printed."""
        sys.stdout.flush()

    def note(self, text: str) -> None:
        """Tell the person something that is not the result."""
        self._errors.print(text, markup=False)

    def alarm(self, text: str) -> None:
        """Say something that nobody may overlook, also in a pipe and beside JSON."""
        self._errors.print(text, markup=False, style="bold red")

    @property
    def terminal(self) -> Console | None:
        """Where something may be drawn in place; None in a pipe and in JSON mode."""
        return self._errors if self.interactive else None

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """A table on a terminal, tab-separated lines in a pipe; the columns' names come first."""
        if not self._console.is_terminal:
            for row in (columns, *rows):
                sys.stdout.write("\t".join(str(cell) for cell in row) + "\n")
            return
        table = Table(box=None, header_style="bold", pad_edge=False)
        for column in columns:
            table.add_column(column, overflow="fold")
        for row in rows:
            table.add_row(*(str(cell) for cell in row))
        self._console.print(table)

    def progress(self) -> Progress:
        """A progress display that shows nothing in a pipe or in JSON mode."""
        return Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=self._errors,
            disable=not self.interactive,
            transient=True,
        )

    def fail(self, message: str, status: int) -> NoReturn:
        """Say in one sentence what went wrong and end."""
        if self.as_json:
            self.result({"error": {"message": message}})
        self._errors.print(f"forebay: {message}", markup=False)
        raise SystemExit(status)
