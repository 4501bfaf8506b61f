"""What the commands about knowledge bases say of one that is not there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from forebay.app.changing import kb_drop, kb_reembed
from forebay.app.operations import choose_kb, kb_export, kb_show
from forebay.app.output import Output
from forebay.app.settings import Settings
from forebay.kernel.errors import NotFound
from forebay.store import StoreWriter

Command = Callable[[dict[str, Any], str], int]
OUTPUT = Output(as_json=True)


@pytest.fixture
def flags(tmp_path: Path) -> dict[str, Any]:
    writer = StoreWriter(tmp_path / "store")
    for name in ("handbook", "手册"):
        writer.create(name)
    writer.close()
    return {"store.path": str(tmp_path / "store")}


@pytest.mark.parametrize(
    "command",
    [
        lambda flags, name: kb_show(None, flags, name, OUTPUT),
        lambda flags, name: kb_export(None, flags, (name, Path("never.zip")), OUTPUT),
        lambda flags, name: kb_drop(None, flags, name, OUTPUT),
        lambda flags, name: kb_reembed(None, flags, name, OUTPUT),
    ],
)
def test_a_kb_that_is_not_there_is_told_with_those_that_are(
    flags: dict[str, Any], command: Command
) -> None:
    with pytest.raises(
        NotFound, match=r"'handbok' \(did you mean handbook\?\); there are: handbook"
    ):
        command(flags, "handbok")
    with pytest.raises(NotFound, match=r"'nope'; there are: handbook, 手册\."):
        command(flags, "nope")


def test_search_and_ask_say_the_same() -> None:
    with pytest.raises(NotFound, match=r"did you mean handbook\?"):
        choose_kb(Settings(), "handbok", ("handbook",))
    with pytest.raises(NotFound, match="there are: none yet"):
        choose_kb(Settings(), "handbok", ())
