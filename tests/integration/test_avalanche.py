"""What the pages say of the avalanche holds: healthy, collapsed, and what brings it back."""

from __future__ import annotations

from benchmarks.avalanche.run import COLLAPSED, HEALTHY, virtual


def test_one_heavy_request_in_twenty_takes_down_what_was_well() -> None:
    light, heavy = virtual("light", 1), virtual("heavy5", 1)
    assert light.total.goodput_share >= HEALTHY
    assert heavy.total.goodput_share < COLLAPSED
    assert abs(light.offered_per_s - heavy.offered_per_s) < 1
    # The light ones starve, not only the heavy ones.
    assert heavy.by_kind["light"].goodput_share < COLLAPSED


def test_a_replica_of_their_own_brings_the_light_ones_back() -> None:
    parted = virtual("heavy5", 1, short_pool=True)
    assert parted.by_kind["light"].goodput_share >= HEALTHY
