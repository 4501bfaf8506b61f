"""Which segments are merged, and that rewriting stays logarithmic."""

from __future__ import annotations

from forebay.retrieval import VectorSettings
from forebay.retrieval.tiers import SegmentSize, choose_merge

SETTINGS = VectorSettings(fold_rows=100, tier_ratio=4)


def disk(alive: int, dead: int = 0) -> SegmentSize:
    return SegmentSize(alive, dead, on_disk=True)


def memory(alive: int) -> SegmentSize:
    return SegmentSize(alive, 0, on_disk=False)


def test_nothing_is_due_for_little() -> None:
    assert choose_merge([], SETTINGS) == ()
    assert choose_merge([disk(1000), disk(50), memory(99)], SETTINGS) == ()
    assert choose_merge([memory(99)], SETTINGS, force=True) == (0,)
    assert choose_merge([disk(99)], SETTINGS, force=True) == ()


def test_deltas_fold_and_a_full_tier_merges() -> None:
    assert choose_merge([disk(5000), memory(60), memory(50)], SETTINGS) == (1, 2)
    tier = [disk(5000), disk(120), disk(110), disk(130), memory(100)]
    assert choose_merge(tier, SETTINGS) == (1, 2, 3, 4)


def test_a_half_dead_segment_is_rebuilt() -> None:
    assert choose_merge([disk(1000, 100), disk(700, 300)], SETTINGS) == (1,)


def test_each_row_is_rewritten_a_logarithmic_number_of_times() -> None:
    sizes: list[SegmentSize] = []
    rewritten = folded = 0
    for _ in range(1000):
        sizes.append(memory(100))
        folded += 100
        chosen = choose_merge(sizes, SETTINGS)
        merged = sum(sizes[i].alive for i in chosen)
        rewritten += merged
        sizes = [size for i, size in enumerate(sizes) if i not in chosen] + [disk(merged)]
        assert len(sizes) <= 3 * 6
    assert rewritten / folded <= 7
