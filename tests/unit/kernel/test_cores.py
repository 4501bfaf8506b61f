"""The cores that this process may use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from forebay.kernel.cores import usable_cores


@pytest.mark.parametrize(
    ("written", "cores"),
    [("100000 100000", 1), ("50000 100000", 1), ("max 100000", None), ("", None), ("1 0", None)],
)
def test_a_quota_of_the_control_group_counts(
    tmp_path: Path, written: str, cores: int | None
) -> None:
    quota = tmp_path / "cpu.max"
    quota.write_text(written)
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    assert usable_cores(quota) == (cores or allowed)
    assert usable_cores(tmp_path / "missing") == allowed
