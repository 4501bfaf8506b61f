"""What a tier truly holds beside its bound, once it is full: python benchmarks/caching/held.py TIER

Values are as long as those of the served workload; questions are drawn by Zipf's law until many
more were put than fit. Beside the bound: the tier's own count, what the interpreter has allocated
(tracemalloc), and what the process has grown by (resident memory, allocator and all).
"""

from __future__ import annotations

import gc
import json
import sys
import tracemalloc
from typing import Any

import numpy as np
import psutil

from forebay.cache.memory import MemorySettings, MemoryTier
from forebay.kernel.clock import SystemClock

TIERS = {
    # Bound in bytes by default, mean length of a value, spread.
    "embedding": (32_000_000, 1_556, 0.0),
    "retrieval": (128_000_000, 8_200, 0.4),
    "answer": (64_000_000, 5_500, 0.4),
}
SEED = 3
ROUNDS = 3


def drawn(bound: int, mean: float, spread: float) -> tuple[Any, Any]:
    """Numbers of questions, and how long what is kept of each is."""
    draw = np.random.default_rng(SEED)
    wanted = int(ROUNDS * bound / mean)
    asked = np.concatenate(
        (draw.zipf(1.1, wanted) % (2 * wanted), np.arange(4 * wanted, 5 * wanted))
    )
    return asked, (mean * draw.lognormal(-spread * spread / 2, spread, len(asked))).astype(int)


def full(bound: int, asked: Any, sizes: Any) -> MemoryTier[bytes]:
    """A tier after three times as many questions as it has room for, half of them new."""
    tier: MemoryTier[bytes] = MemoryTier(MemorySettings(bound), SystemClock(), sys.getsizeof)
    for number, size in zip(asked, sizes, strict=True):
        key = int(number).to_bytes(16, "little")
        if tier.get(key) is None:
            tier.put(key, bytes(int(size)), 3_600.0)
    return tier


def measure(name: str, *, traced: bool) -> dict[str, float]:
    """Figures of one tier; tracing itself costs memory, so resident memory is taken without."""
    bound, mean, spread = TIERS[name]
    asked, sizes = drawn(bound, mean, spread)
    gc.collect()
    before = psutil.Process().memory_info().rss
    if traced:
        tracemalloc.start()
    tier = full(bound, asked, sizes)
    gc.collect()
    counted = tier.statistics()["bytes"]
    if traced:
        return {"counted": counted, "allocated": tracemalloc.get_traced_memory()[0]}
    grown = psutil.Process().memory_info().rss - before
    return {"entries": tier.statistics()["entries"], "resident_growth": grown}


def main() -> None:
    """One tier, one process."""
    name = sys.argv[1]
    traced = len(sys.argv) > 2
    found = measure(name, traced=traced)
    bound = TIERS[name][0]
    shares = {f"{key}_to_bound": round(value / bound, 4) for key, value in found.items()}
    shares.pop("entries_to_bound", None)
    print(json.dumps({"tier": name, "bound": bound, **found, **shares}))


if __name__ == "__main__":
    main()
