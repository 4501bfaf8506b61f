"""Quotas changed at run time: whatever lies in their file, the server goes on."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from unittest.mock import patch

import pytest

from forebay.app.overriding import FILE, Overriding
from forebay.gateway.errors import failure
from forebay.kernel.clock import SystemClock, WallClock
from forebay.kernel.errors import StoreError, StoreFull
from forebay.policy.admission import Admission, AdmissionOverrides, AdmissionSettings, Desk

CONTRADICTORY = (
    b'{"rules":[{"dimension":"ip","name":"x","deny":true,"limit":{"rate_per_s":1,"burst":1}}]}'
)


def keeper(folder: Path) -> Overriding:
    settings = AdmissionSettings()
    desk = Desk(settings, (), {}, SystemClock(), WallClock())
    return Overriding(folder, Admission(desk), settings)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xfe",
        b"null",
        b'{"load_factor": 0}',
        b'{"windows": [{"start": "99:99", "end": "24:00", "factor": 1}]}',
        CONTRADICTORY,
        b'{"rules":' + b"[" * 100_000,
    ],
)
def test_a_damaged_file_changes_nothing_until_it_is_mended(tmp_path: Path, data: bytes) -> None:
    kept = keeper(tmp_path)
    (tmp_path / FILE).write_bytes(b'{"load_factor": 0.5}')
    kept.look()
    (tmp_path / FILE).unlink()
    (tmp_path / FILE).write_bytes(data)
    kept.look()
    assert kept.effective.load_factor == 0.5
    (tmp_path / FILE).write_bytes(b'{"load_factor": 0.75}   ')
    kept.look()
    assert kept.effective.load_factor == 0.75


def test_a_file_that_could_not_be_read_is_tried_again(tmp_path: Path) -> None:
    kept = keeper(tmp_path)
    (tmp_path / FILE).write_bytes(b'{"load_factor": 0.5}')
    with patch.object(Path, "read_bytes", side_effect=PermissionError("no right to read")):
        kept.look()
    assert kept.effective.load_factor == 1.0
    kept.look()
    assert kept.effective.load_factor == 0.5
    with patch.object(Path, "read_bytes", side_effect=PermissionError("no right to read")):
        (tmp_path / FILE).write_bytes(b'{"load_factor": 0.25}  ')
        kept.look()
    (tmp_path / FILE).unlink()
    kept.look()
    assert kept.effective.load_factor == 1.0


@pytest.mark.parametrize(
    ("number", "kind", "says"),
    [
        (errno.ENOSPC, StoreFull, "disk is full.*stay as they were"),
        (errno.EDQUOT, StoreFull, "disk is full"),
        (errno.EROFS, StoreError, "the old ones hold"),
    ],
)
@pytest.mark.parametrize("call", ["open", "fsync", "replace"])
async def test_a_disk_that_takes_no_change_leaves_what_was(
    tmp_path: Path, number: int, kind: type[StoreError], says: str, call: str
) -> None:
    kept = keeper(tmp_path)
    await kept.put(AdmissionOverrides(load_factor=0.5))
    where = (os, "fsync") if call == "fsync" else (Path, call)
    with (
        patch.object(*where, side_effect=OSError(number, os.strerror(number))),
        pytest.raises(kind, match=says) as raised,
    ):
        await kept.put(AdmissionOverrides(load_factor=0.25))
    assert type(raised.value) is kind
    assert failure(raised.value, "r").status == (507 if kind is StoreFull else 500)
    kept.look()
    assert kept.effective.load_factor == keeper_of(tmp_path).effective.load_factor == 0.5
    assert [one.name for one in tmp_path.iterdir()] == [FILE]
    await kept.put(AdmissionOverrides(load_factor=0.25))
    assert kept.effective.load_factor == 0.25


def keeper_of(folder: Path) -> Overriding:
    """Another process of the folder."""
    kept = keeper(folder)
    kept.look()
    return kept
