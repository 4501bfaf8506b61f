"""An open store in a folder of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from forebay.store import StoreWriter


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StoreWriter]:
    writer = StoreWriter(tmp_path / "store")
    yield writer
    writer.close()
