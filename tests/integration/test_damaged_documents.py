"""Real files with random damage: text or one sentence, never another error."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from forebay.ingest import parse
from forebay.kernel.errors import UnsupportedDocument

MAX_BYTES = 100_000


def damaged(data: bytes, chance: random.Random) -> bytes:
    """Cut the file, or change some of its bytes."""
    if chance.random() < 0.2:
        return data[: chance.randrange(1, len(data) + 1)]
    changed = bytearray(data)
    for _ in range(chance.choice((1, 5, 50))):
        changed[chance.randrange(len(changed))] = chance.randrange(256)
    return bytes(changed)


@pytest.mark.parametrize("seed", range(4))
def test_damage_is_reported_in_one_sentence(seed: int, shared_data: Path) -> None:
    chance = random.Random(seed)
    for path in sorted((shared_data / "documents").iterdir()):
        # A PDF is read by native code, which tests of the worker processes expose to damage.
        if not path.is_file() or path.suffix == ".pdf" or path.stat().st_size > MAX_BYTES:
            continue
        try:
            extracted = parse(damaged(path.read_bytes(), chance), name=path.name)
        except UnsupportedDocument as error:
            message = error.message
        else:
            extracted.text.encode("utf-8")
            assert "\ufffd" not in extracted.text
            continue
        assert message.endswith(".") and len(message) < 250
