"""The help of every command: what is written is what is shown."""

from __future__ import annotations

from collections.abc import Iterator

import typer
from typer.core import TyperCommand, TyperGroup

from forebay.app.cli import app


def helps(command: object, name: str = "forebay") -> Iterator[tuple[str, str]]:
    """Every text of a command and of those below it."""
    assert isinstance(command, TyperCommand | TyperGroup)
    yield name, command.help or ""
    for param in command.params:
        yield name, getattr(param, "help", None) or ""
    if isinstance(command, TyperGroup):
        for below, each in command.commands.items():
            yield from helps(each, f"{name} {below}")


def test_no_help_holds_what_the_terminal_takes_for_markup() -> None:
    texts = list(helps(typer.main.get_command(app)))
    assert len(texts) > 100
    assert [name for name, text in texts if "[" in text.replace("forebay[", "")] == []
