"""Results under versions: carried when a change cannot have altered them, else gone."""

from __future__ import annotations

import pytest

from forebay.cache.retrieval import KeptHits
from forebay.cache.values import KIND_RETRIEVAL, StructCodec
from forebay.cache.versioned import Entry
from forebay.kernel.caching import Served
from forebay.kernel.clock import VirtualClock
from tests.unit.cache.tier_parts import World, entry_of, tier_of

KEY = b"k" * 16


class Values:
    """``SharedValues`` that a test looks into."""

    def __init__(self) -> None:
        self.held: dict[bytes, bytes] = {}

    async def get(self, key: bytes) -> bytes | None:
        return self.held.get(key)

    async def put(self, key: bytes, value: bytes, life_s: float) -> None:
        del life_s
        self.held[key] = value

    async def claim(self, key: bytes, holder: str, life_s: float) -> bool:
        del key, holder, life_s
        return True

    async def release(self, key: bytes, holder: str) -> None:
        del key, holder

    async def clear(self) -> None:
        self.held.clear()


def test_an_entry_of_the_version_served_is_a_hit() -> None:
    tier = tier_of(World(), VirtualClock())
    assert tier.held(KEY, Served(1)).verdict == "absent"
    tier.keep(KEY, entry_of())
    assert tier.held(KEY, Served(1)).entry == entry_of()


def test_a_change_that_touches_nothing_carries_it_on() -> None:
    world = World()
    tier = tier_of(world, VirtualClock())
    tier.keep(KEY, entry_of())
    world.change(removed=frozenset({77}))
    found = tier.held(KEY, Served(2))
    assert found.moved
    assert found.entry is not None
    assert (found.entry.kb_version, found.entry.value) == (2, entry_of().value)
    # It is kept under the newer version, so that the next one has less to judge.
    assert not tier.held(KEY, Served(2)).moved
    assert tier.carried == 1


@pytest.mark.parametrize("removed", [1, 2, 3])
def test_a_change_that_may_touch_it_ends_it(removed: int) -> None:
    world = World()
    tier = tier_of(world, VirtualClock())
    tier.keep(KEY, entry_of())
    world.change(removed=frozenset({removed}))
    assert tier.held(KEY, Served(2)).verdict == "touched"
    assert tier.held(KEY, Served(2)).verdict == "absent"


def test_changes_that_are_not_known_any_more_end_it() -> None:
    world = World()
    tier = tier_of(world, VirtualClock())
    tier.keep(KEY, entry_of())
    world.version = 2
    world.since[1] = None
    assert tier.held(KEY, Served(2)).verdict == "touched"


def test_an_entry_that_cannot_be_judged_yet_is_kept_and_not_served() -> None:
    """A commit is served a moment before the log of changes has it."""
    world = World()
    tier = tier_of(world, VirtualClock())
    tier.keep(KEY, entry_of())
    world.change()
    assert tier.held(KEY, Served(3)).verdict == "behind"
    world.change()
    assert tier.held(KEY, Served(3)).verdict == "hit"


def test_a_result_of_an_old_state_that_comes_late_is_judged_like_any_other() -> None:
    """Its retrieval was held while a document it has was removed and that acknowledged."""
    world = World()
    tier = tier_of(world, VirtualClock())
    world.change(removed=frozenset({1}))
    tier.keep(KEY, entry_of(version=1))
    assert tier.held(KEY, Served(2)).verdict == "touched"


def test_an_old_result_does_not_replace_a_newer_one() -> None:
    tier = tier_of(World(), VirtualClock())
    tier.keep(KEY, entry_of(version=2))
    tier.keep(KEY, entry_of(version=1))
    found = tier.held(KEY, Served(2)).entry
    assert found is not None
    assert found.kb_version == 2


def test_an_entry_lives_its_life_and_no_longer() -> None:
    clock = VirtualClock()
    tier = tier_of(World(), clock)
    tier.keep(KEY, entry_of(life_s=60.0))
    clock.advance(59.0)
    assert tier.held(KEY, Served(1)).verdict == "hit"
    clock.advance(1.1)
    assert tier.held(KEY, Served(1)).entry is None


class SetClock:
    """A wall clock that somebody sets."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self.ahead_s = 1e9

    def now(self) -> float:
        return self._clock.now() + self.ahead_s


@pytest.mark.parametrize("set_by_s", [-3600.0, -30.0, 3600.0])
def test_a_clock_that_is_set_prolongs_no_life_however_often_it_is_carried(set_by_s: float) -> None:
    world, clock = World(), VirtualClock()
    wall = SetClock(clock)
    tier = tier_of(world, clock, wall=wall)
    tier.keep(KEY, entry_of(life_s=60.0, made_at=wall.now()))
    wall.ahead_s += set_by_s
    for _ in range(7):
        clock.advance(10.0)
        world.change()
        found = tier.held(KEY, Served(world.version))
    assert found.entry is None
    # What is made from now on is kept as ever.
    tier.keep(KEY, entry_of(world.version, life_s=60.0, made_at=wall.now()))
    clock.advance(59.0)
    assert tier.held(KEY, Served(world.version)).verdict == "hit"


async def test_an_entry_from_before_a_clock_was_set_back_is_of_no_known_age() -> None:
    clock, values = VirtualClock(), Values()
    wall = SetClock(clock)
    tier = tier_of(World(), clock, values, wall)
    await tier.share(KEY, entry_of(life_s=600.0, made_at=wall.now()))
    wall.ahead_s -= 30.0
    assert (await tier.fetched(KEY, Served(1))).verdict == "hit", "machines differ by as much"
    wall.ahead_s -= 3600.0
    assert (await tier.fetched(KEY, Served(1))).verdict == "expired"


def test_looking_changes_nothing() -> None:
    world = World()
    tier = tier_of(world, VirtualClock())
    tier.keep(KEY, entry_of())
    world.change()
    assert tier.seen(KEY, Served(2)).moved
    assert tier.seen(KEY, Served(2)).moved
    assert tier.verdicts["hit"] == 0


async def test_what_one_process_made_another_finds() -> None:
    world, values = World(), Values()
    one, other = tier_of(world, VirtualClock(), values), tier_of(world, VirtualClock(), values)
    await one.share(KEY, entry_of())
    found = (await other.fetched(KEY, Served(1))).entry
    assert found is not None
    assert found.value == entry_of().value
    assert other.held(KEY, Served(1)).verdict == "hit"


async def test_a_record_that_cannot_be_asked_costs_what_is_shared_and_no_more() -> None:
    world, values = World(), Values()
    tier = tier_of(world, VirtualClock(), values)
    world.unreadable = True
    await tier.share(KEY, entry_of())
    world.unreadable = False
    assert (await tier.fetched(KEY, Served(1))).verdict == "absent"
    await tier.share(KEY, entry_of())
    world.unreadable = True
    assert (await tier.fetched(KEY, Served(1))).entry is None


async def test_a_shared_entry_is_carried_too_or_ended() -> None:
    world, values = World(), Values()
    one, other = tier_of(world, VirtualClock(), values), tier_of(world, VirtualClock(), values)
    await one.share(KEY, entry_of())
    world.change(removed=frozenset({77}))
    assert (await other.fetched(KEY, Served(2))).moved
    world.change(removed=frozenset({2}))
    assert (await one.fetched(KEY, Served(3))).verdict == "touched"


async def test_what_a_store_keeps_beyond_its_life_is_not_served() -> None:
    clock, values = VirtualClock(), Values()
    tier = tier_of(World(), clock, values)
    await tier.share(KEY, entry_of(life_s=60.0, made_at=clock.now()))
    clock.advance(59.0)
    assert (await tier.seen_shared(KEY, Served(1))).verdict == "hit"
    clock.advance(2.0)
    assert (await tier.fetched(KEY, Served(1))).verdict == "expired"


async def test_what_is_shared_can_be_seen_without_being_taken_over() -> None:
    world, values = World(), Values()
    one, other = tier_of(world, VirtualClock(), values), tier_of(world, VirtualClock(), values)
    assert (await other.seen_shared(KEY, Served(1))).verdict == "absent"
    await one.share(KEY, entry_of())
    assert (await other.seen_shared(KEY, Served(1))).verdict == "hit"
    assert (await other.seen_shared(KEY, Served(1, leased=False))).verdict == "absent"
    assert other.held(KEY, Served(1)).verdict == "absent"
    world.change(removed=frozenset({2}))
    assert (await other.seen_shared(KEY, Served(2))).verdict == "touched"


async def test_without_a_lease_nothing_shared_is_used() -> None:
    world, values = World(), Values()
    tier = tier_of(world, VirtualClock(), values)
    await tier.share(KEY, entry_of())
    assert (await tier.fetched(KEY, Served(1, leased=False))).verdict == "absent"


async def test_an_entry_of_another_history_is_not_ours() -> None:
    """A folder was put back from a backup, and went on to the same version another way."""
    values, before, after = Values(), World(), World()
    await tier_of(before, VirtualClock(), values).share(KEY, entry_of())
    after.marks["k", 1] = 99
    found = await tier_of(after, VirtualClock(), values).fetched(KEY, Served(1))
    assert found.verdict == "unreadable"


@pytest.mark.parametrize("data", [b"", b"given up", b"FB\x01\x02" + bytes(40), bytes(1000)])
async def test_bytes_that_are_no_entry_are_a_miss(data: bytes) -> None:
    values = Values()
    values.held[KEY] = data
    tier = tier_of(World(), VirtualClock(), values)
    assert (await tier.fetched(KEY, Served(1))).entry is None


async def test_a_truncated_or_altered_entry_is_a_miss() -> None:
    values = Values()
    tier = tier_of(World(), VirtualClock(), values)
    await tier.share(KEY, entry_of())
    whole = values.held[KEY]
    for cut in range(0, len(whole), 7):
        values.held[KEY] = whole[:cut]
        assert (await tier.fetched(KEY, Served(1))).entry is None
    for at in range(0, len(whole), 7):
        values.held[KEY] = whole[:at] + bytes((whole[at] ^ 1,)) + whole[at + 1 :]
        assert (await tier.fetched(KEY, Served(1))).entry is None
    values.held[KEY] = whole
    assert (await tier.fetched(KEY, Served(1))).entry is not None


def test_whose_an_entry_is_can_be_told_without_reading_it_all() -> None:
    codec = StructCodec(KIND_RETRIEVAL, Entry[KeptHits])
    data = codec.encode(KEY, entry_of())
    tier = tier_of(World(), VirtualClock())
    assert tier.belongs(data, "k")
    assert not tier.belongs(data, "another")
