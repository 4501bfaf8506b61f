"""The settings reference says what the code says, in both languages."""

from __future__ import annotations

import pytest

from forebay.app.reference import rows
from forebay.app.settings import Settings
from tools.settings_reference import missing, pages


def test_every_setting_is_described() -> None:
    assert [row.key for row in rows(Settings) if not row.description] == []


def test_every_description_is_translated() -> None:
    assert missing() == []


@pytest.mark.parametrize(("path", "text"), pages().items(), ids=lambda value: str(value)[-20:])
def test_the_pages_are_fresh(path: object, text: str) -> None:
    from pathlib import Path

    assert isinstance(path, Path)
    assert path.read_text(encoding="utf-8") == text
