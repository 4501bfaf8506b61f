"""Takes off a judge's scores what a passage's place and length lent it (F4.7).

A model that reads passages in a row overrates the first, the last and the long ones. So

    corrected(i) = score(i) - ends x |2 i / (n - 1) - 1| - length x tokens(i) / 100

with ``ends`` up to 0.15 at both ends and none in the middle, and 0.02 per 100 tokens; a softmax
over ``corrected`` gives importances. This is sound only where places say nothing else: passages
come before the judge in a drawn order. A judge without such a liking loses a little by it.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from forebay.lab.evaluate.intervals import Floats


class BiasSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How much is taken off; zeros: nothing."""

    ends: float = 0.15
    """From the first and the last; linearly less towards the middle."""
    per_100_tokens: float = 0.02


def corrected(scores: Sequence[float], tokens: Sequence[int], settings: BiasSettings) -> Floats:
    """Scores in the order in which the judge saw them, without place and length; 0..1."""
    raw = np.asarray(scores, np.float64)
    count = len(raw)
    places = np.abs(2 * np.arange(count) / (count - 1) - 1) if count > 1 else np.zeros(count)
    damp = settings.ends * places + settings.per_100_tokens * np.asarray(tokens) / 100
    found: Floats = np.clip(raw - damp, 0.0, 1.0)
    return found


def importances(scores: Sequence[float] | Floats, temperature: float = 1.0) -> Floats:
    """Softmax of scores: shares that sum to 1."""
    scaled = np.asarray(scores, np.float64) / temperature
    powers = np.exp(scaled - scaled.max())
    found: Floats = powers / powers.sum()
    return found
