"""What a command prints arrives in locales that lack its characters."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

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
