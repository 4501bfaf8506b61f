"""No query that starts after an acknowledgement is served, under a lease, from an older version.

Every state of small systems is visited, with no bound on time; larger ones by chance. That the
search finds what is wrong is shown by leaving out one rule of the protocol at a time.
"""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.coordination.leases import Acknowledging, HeldLeases, LeaseTable
from forebay.kernel.leases import CLOCK_RATE, FOREIGN, Grant, LeaseCall, Pending
from tests.unit.coordination.lease_model import (
    KB,
    LEASE_S,
    WRITES,
    Bounds,
    Reader,
    Sent,
    World,
    search,
)
from tests.unit.coordination.writer_model import Writers


def test_every_state_of_a_small_system_is_right() -> None:
    states, wrong = search(World(Bounds(commits=1)))
    assert wrong is None, wrong
    assert states > 30_000


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("bounds", "least"),
    [
        (Bounds(commits=1, deaths=1), 70_000),
        (Bounds(commits=2), 150_000),
        (Bounds(commits=1, lates=1), 150_000),
        (Bounds(commits=1, losses=1), 150_000),
    ],
    ids=str,
)
def test_every_state_of_a_larger_system_is_right(bounds: Bounds, least: int) -> None:
    states, wrong = search(World(bounds))
    assert wrong is None, wrong
    assert states > least


def walk(world: World, random: Random, steps: int) -> list[str] | None:
    """One way through a system; time and messages move more often than disasters strike."""
    path = []
    for _ in range(steps):
        possible = list(world.steps())
        weights = [0.1 if step in ("die", "forget") else 1.0 for step in possible]
        step = random.choices(possible, weights)[0]
        path.append(step)
        world = world.after(step)
        if wrong := world.wrong():
            return [*path, wrong]
    return None


LARGE = Bounds(commits=6, deaths=2, losses=2, lates=4, readers=3)


def test_large_systems_are_right_wherever_chance_leads() -> None:
    for seed in range(1000):
        assert walk(World(LARGE), Random(seed), 80) is None


class NoCap(LeaseTable):
    """Leases are not cut short while a change is pending."""

    def _begin(self, kb, pending, now):  # type: ignore[no-untyped-def]
        self._raise(kb, pending)


class NoDoubt(LeaseTable):
    """An authority that forgot vouches that nobody holds a lease."""

    def _lowest(self, kb, call, now):  # type: ignore[no-untyped-def]
        kb.known_since = float("-inf")
        return super()._lowest(kb, call, now)


class Careless(LeaseTable):
    """One that knows no version grants leases of any."""

    def _grant(self, kb, call, confirmed, now):  # type: ignore[no-untyped-def]
        kb.version = max(0, kb.version)
        return super()._grant(kb, call, confirmed, now)


class Generous(LeaseTable):
    """Leases of older versions are renewed."""

    def _grant(self, kb, call, confirmed, now):  # type: ignore[no-untyped-def]
        return super()._grant(kb, call, max(confirmed, kb.version), now)


class Backward(LeaseTable):
    """A late announcement sets the version back."""

    def _begin(self, kb, pending, now):  # type: ignore[no-untyped-def]
        super()._begin(kb, pending, now)
        kb.version = pending.version


class AsksOnly(World):
    """The writer asks whether leases are over without making sure that its change is in force."""

    def _publish(self) -> None:
        self._send("w", LeaseCall("w", LEASE_S, asked=(KB,)))


class CountsFromAnswer(World):
    """A reader counts its lease from when the answer came."""

    def _take(self, reader: Reader, sent: Sent) -> None:
        sent.at = self.now
        super()._take(reader, sent)


class Hasty(World):
    """The writer acknowledges what is committed."""

    def _commit(self) -> None:
        super()._commit()
        self.acknowledged = self.record


def with_table(table: type[LeaseTable]) -> type[World]:
    return type(f"With{table.__name__}", (World,), {"table_type": table})


@pytest.mark.parametrize(
    ("kind", "bounds"),
    [
        (with_table(NoCap), Bounds(commits=1)),
        (with_table(NoDoubt), Bounds(commits=1, losses=1)),
        (with_table(Careless), Bounds(commits=1, losses=1)),
        (with_table(Generous), Bounds(commits=1)),
        pytest.param(
            with_table(Backward), Bounds(commits=2, lates=1), marks=pytest.mark.slow, id="Backward"
        ),
        (AsksOnly, Bounds(commits=1)),
        (CountsFromAnswer, Bounds(commits=1)),
        (Hasty, Bounds(commits=1)),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_without_any_one_rule_the_search_finds_what_goes_wrong(
    kind: type[World], bounds: Bounds
) -> None:
    _, wrong = search(kind(bounds), most=1_000_000)
    assert wrong is not None


RATES = st.floats(1 - CLOCK_RATE / 2, 1 + CLOCK_RATE / 2)
SECONDS = st.floats(0.0, 100.0)


@given(RATES, RATES, st.floats(0.01, 60.0), SECONDS, SECONDS)
def test_whatever_the_clocks_a_holder_stops_first(
    holder_rate: float, writer_rate: float, lease_s: float, call_s: float, answer_s: float
) -> None:
    """In true time: asked at 0, granted at ``call_s`` when the change is announced, answered
    later to the writer, whose clock tells when the lease must be over.
    """
    held = HeldLeases()
    held.granted(KB, 1, Grant(lease_s, 1), 0.0)
    stops = lease_s * (1 - CLOCK_RATE) / holder_rate
    assert not held.holds(KB, 1, stops * holder_rate)
    answered = call_s + answer_s
    over = Acknowledging(answered * writer_rate, lease_s).over_at / writer_rate
    assert stops <= call_s + lease_s, "before the authority thinks so"
    assert stops <= over, "before the writer thinks so"


def test_a_lease_covers_what_was_confirmed_and_later_versions() -> None:
    held = HeldLeases()
    assert not held.holds(KB, 5, 0.0)
    held.granted(KB, 5, Grant(1.0, 5), 10.0)
    assert held.holds(KB, 5, 10.5) and held.holds(KB, 6, 10.5)
    assert not held.holds(KB, 4, 10.5) and not held.holds(KB, 5, 11.0)
    held.granted(KB, 6, Grant(0.0, 7), 10.9)
    assert held.holds(KB, 5, 10.95) and not held.holds(KB, 5, 11.0)
    held.granted(KB, 7, Grant(1.0, 7), 11.0)
    held.granted(KB, 6, Grant(1.0, 6), 10.5)
    assert not held.holds(KB, 6, 11.2), "the older answer came later"
    assert held.holds(KB, 7, 11.9)
    held.clear()
    assert not held.holds(KB, 7, 11.2)


def test_two_changes_under_way_wait_for_their_own_versions() -> None:
    table = LeaseTable()
    table.carry_out(LeaseCall("w", 1.0, WRITES, done=(Pending(KB, 5, "a"),)), 0.0)
    table.carry_out(LeaseCall("r", 1.0, confirmed=((KB, 6),)), 9.0)
    asked = LeaseCall("w", 1.0, done=(Pending(KB, 6, "a"),), asked=(KB,))
    lowest = table.carry_out(asked, 9.1).lowest[0]
    first, second = Acknowledging(9.0, 1.0), Acknowledging(9.05, 1.0)
    assert first.may(6, lowest, 9.1) and not second.may(7, lowest, 9.1)
    assert not second.may(7, None, 10.0) and second.may(7, None, 10.1)


# The one writer


@pytest.mark.parametrize("second", [("m1",), (), ("other",), ("m1", "own")], ids=str)
def test_whatever_two_folders_do_what_counts_is_one_history(second: tuple[str, ...]) -> None:
    states, wrong = search(Writers(second))
    assert wrong is None, wrong
    assert states > 1000


class Anybody(LeaseTable):
    """Nobody is asked for the version in force."""

    def _refusal(self, kb, claim, lease_s, now):  # type: ignore[no-untyped-def]
        refusal = super()._refusal(kb, claim, lease_s, now)
        return "" if refusal == FOREIGN else refusal


class Unfenced(LeaseTable):
    """Who lost its place is still heard."""

    def carry_out(self, call, now):  # type: ignore[no-untyped-def]
        reply = super().carry_out(call, now)
        for pending in call.done:
            self._raise(self._of(pending.kb, now), pending)
        return reply


@pytest.mark.parametrize("table", [Anybody, Unfenced])
def test_without_a_rule_of_writers_two_histories_count(table: type[LeaseTable]) -> None:
    _, wrong = search(type("Wrong", (Writers,), {"table_type": table})(("m1",)), most=100_000)
    assert wrong is not None
