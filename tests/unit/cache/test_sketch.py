"""The sketch of frequencies: never under the truth, seldom over it, and it forgets."""

from __future__ import annotations

import random
from collections import Counter

from forebay.cache.sketch import FrequencySketch


def test_estimates_are_never_too_low_and_seldom_too_high() -> None:
    chance = random.Random(1)
    keys = [chance.randbytes(16) for _ in range(400)]
    asked = chance.choices(keys, weights=[1 / (at + 1) for at in range(400)], k=1000)
    sketch = FrequencySketch(4 * 1024)
    for key in asked:
        sketch.add(key)
    truth = Counter(asked)
    over = [sketch.estimate(key) - min(15, truth[key]) for key in keys]
    assert min(over) >= 0
    assert sum(1 for one in over if one) <= len(keys) // 50


def test_old_fame_fades_and_clearing_forgets_at_once() -> None:
    sketch = FrequencySketch(4 * 1024)
    sketch.age_every(2000)
    for _ in range(12):
        sketch.add(b"old")
    chance = random.Random(1)
    for _ in range(8000):
        sketch.add(chance.randbytes(16))
    assert sketch.estimate(b"old") < 12
    sketch.clear()
    assert sketch.estimate(b"old") == 0


def test_its_size_is_a_power_of_two_within_what_it_may_take() -> None:
    assert FrequencySketch(5000).size_bytes == 4096
    assert FrequencySketch(1).size_bytes == 64
