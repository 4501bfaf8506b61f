"""What the doctor finds wrong with documents and with the address to serve at."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from forebay.app.doctor import examine
from forebay.app.doctor_ranking import Finding
from forebay.app.settings import Settings


def found(tmp_path: Path, **sections: object) -> dict[str, Finding]:
    settings = {
        "embedding": {"backend": "none"},
        "store": {"path": str(tmp_path / "store")},
        "server": {"port": 0},
        **sections,
    }
    return {one.name: one for one in examine(msgspec.convert(settings, Settings))}


def test_paths_of_documents_that_are_not_there_are_told(tmp_path: Path) -> None:
    gone = str(tmp_path / "handbok")
    knowledge = {"good": {"paths": [str(tmp_path)]}, "bad": {"paths": [str(tmp_path), gone]}}
    findings = found(tmp_path, knowledge=knowledge)
    assert findings["knowledge, good"].status == "ok"
    assert findings["knowledge, bad"].status == "missing"
    assert findings["knowledge, bad"].detail.startswith(gone)


@pytest.mark.parametrize(("host", "told"), [("127.0.0.1", False), ("0.0.0.0", True)])
def test_an_open_address_without_keys_is_told(tmp_path: Path, host: str, *, told: bool) -> None:
    findings = found(tmp_path, server={"host": host, "port": 0})
    assert ("keys" in findings) == told
    if told:
        assert findings["keys"].status == "missing" and "127.0.0.1" in findings["keys"].remedy
