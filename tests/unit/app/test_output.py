"""What a command prints arrives in locales that lack its characters."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from forebay.app.output import Output

MAIN = "from forebay.app.cli import main; main()"


def config(tmp_path: Path, encoding: str, *words: str) -> bytes:
    ran = subprocess.run(
        [sys.executable, "-c", MAIN, "config", "--set", "store.path=水位\U0001f600é", *words],
        capture_output=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PYTHONIOENCODING": encoding},
        timeout=60,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "gbk"])
def test_a_poor_locale_gets_escapes_for_people_and_utf8_for_programs(
    tmp_path: Path, encoding: str
) -> None:
    assert b"\\U0001f600" in config(tmp_path, encoding)
    printed = config(tmp_path, encoding, "--json")
    assert "水位\U0001f600é" in json.dumps(json.loads(printed.decode()), ensure_ascii=False)


class Narrow(io.RawIOBase):
    """An unbuffered pipe that takes a little at a time."""

    def __init__(self) -> None:
        self.taken = b""

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        some = bytes(data)[:1000]  # type: ignore[call-overload]
        self.taken += some
        return len(some)


def test_a_long_result_is_whole_where_output_is_not_buffered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pipe = Narrow()
    stream = io.TextIOWrapper(pipe, write_through=True)  # type: ignore[type-var]
    monkeypatch.setattr(sys, "stdout", stream)
    Output(as_json=True).result("x" * 10_000)
    monkeypatch.undo()
    assert json.loads(pipe.taken) == "x" * 10_000
