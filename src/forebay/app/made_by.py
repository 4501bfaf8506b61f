"""What answers of a store folder were last made by: rules, prompt template, engines and models.

Keys of kept answers hold all of it, so that none is found that another setup made. This tells the
other processes, which may have gone on under the old one, to forget theirs.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from pathlib import Path

import msgspec

from forebay.app.caching import Tiers
from forebay.kernel.caching import EventKind

log = logging.getLogger("forebay.events")
FILE = "answers-made-by.json"
KINDS: tuple[EventKind, ...] = ("rules", "template", "model")


class MadeBy(msgspec.Struct, frozen=True):
    """A digest of each; of the model, also its pools, what prompts are filled with, and release."""

    rules: str
    template: str
    model: str


def made_by(tiers: Tiers) -> MadeBy | None:
    """By what this process makes answers; None: it makes none."""
    prompt = tiers.made_by
    if prompt is None:
        return None
    return MadeBy(tiers.rules.digest, prompt.template, f"{prompt.model} {prompt.model_version}")


def changed(folder: Path, now: MadeBy) -> tuple[EventKind, ...]:
    """What is not as it was when this was last called for the folder; nothing the first time.

    Blocks for a small file. One that cannot be read or written costs events, which
    make caches quick, not true.
    """
    path = folder / FILE
    before = None
    with suppress(OSError, msgspec.MsgspecError):
        before = msgspec.json.decode(path.read_bytes(), type=MadeBy)
    if before == now:
        return ()
    try:
        path.write_bytes(msgspec.json.encode(now))
    except OSError as error:
        log.warning("%s cannot be written: %s", FILE, error.strerror)
    if before is None:
        return ()
    return tuple(kind for kind in KINDS if getattr(before, kind) != getattr(now, kind))
