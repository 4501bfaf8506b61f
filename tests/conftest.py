"""What every test may ask for: the evaluation data, a free port, the event loop in use."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import hypothesis
import pytest
import uvloop

from tests.ports import unused_ports

ROOT = Path(__file__).resolve().parent.parent
SHARED_DATA_VARIABLE = "FOREBAY_SHARED_DATA"

# How long one example takes says how busy the machine is, not whether the code is right. Whether a
# change may land hangs on no dice: its examples are the same each time. --hypothesis-profile=search
# looks at others.
hypothesis.settings.register_profile("forebay", deadline=None, derandomize=True)
hypothesis.settings.register_profile("search", deadline=None)
hypothesis.settings.load_profile("forebay")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of evaluation documents, queries and traces; skips the test where it is absent.

    It is no part of the repository: FOREBAY_SHARED_DATA names it, else ../shared/data.
    """
    named = os.environ.get(SHARED_DATA_VARIABLE)
    folder = Path(named) if named else ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"no evaluation data at {folder}; set {SHARED_DATA_VARIABLE} to its folder")
    return folder.resolve()


@pytest.fixture
def free_port() -> int:
    """A loopback TCP port that nobody else takes."""
    return unused_ports()


@pytest.fixture(scope="session")
def repository() -> Path:
    """The checkout's root folder."""
    return ROOT


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """A developer's own FOREBAY_ variables must not change what a test sees."""
    for name in [name for name in os.environ if name.startswith("FOREBAY_")]:
        if name != SHARED_DATA_VARIABLE:
            monkeypatch.delenv(name)


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Tests run on the loop that production runs on."""
    return {"uvloop": uvloop.new_event_loop}
