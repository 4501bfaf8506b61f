"""Whose time it is: a part's own, or that of a process which is late, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from forebay.kernel.clock import Deadline, VirtualClock
from forebay.kernel.context import Principal, RequestContext
from forebay.retrieval.patience import KeptTime, Trial
from tests.unit.policy.virtual_loop import run_virtually, virtual_clock

TIMEOUT_MS = 300


def context(clock: VirtualClock, seconds: float = 20.0) -> RequestContext:
    return RequestContext(
        request_id="r",
        principal=Principal(),
        deadline=Deadline.after(seconds, clock),
        clock=clock,
    )


async def busy(clock: VirtualClock, turn_s: float) -> None:
    """Hold the loop for ``turn_s`` again and again, as a process does that has too much to do."""
    while True:
        clock.advance(turn_s)
        await asyncio.sleep(0)


Scene = Callable[[VirtualClock, KeptTime], Awaitable[None]]


def play(scene: Scene, *, turn_s: float = 0.0) -> None:
    async def main() -> None:
        clock, kept = virtual_clock(), KeptTime()
        other = asyncio.get_running_loop().create_task(busy(clock, turn_s) if turn_s else _idle())
        try:
            await scene(clock, kept)
        finally:
            other.cancel()

    run_virtually(main())


async def _idle() -> None:
    await asyncio.sleep(0)


def test_a_process_that_is_on_time_keeps_all_of_it() -> None:
    async def scene(clock: VirtualClock, kept: KeptTime) -> None:
        with kept.running(clock):
            before = kept.now()
            await asyncio.sleep(1.234)
            assert kept.now() - before == pytest.approx(1.234)
        stood = kept.now()
        await asyncio.sleep(5.0)
        assert kept.now() == stood, "nobody ran it"
        with kept.running(clock):
            assert kept.now() == stood

    play(scene)


@pytest.mark.parametrize(("turn_s", "share"), [(0.002, 1.0), (0.03, 0.4), (0.12, 0.1), (1.2, 0.01)])
def test_a_process_that_is_late_keeps_a_share(turn_s: float, share: float) -> None:
    async def scene(clock: VirtualClock, kept: KeptTime) -> None:
        with kept.running(clock):
            began_at, before, last = clock.now(), kept.now(), kept.now()
            while clock.now() - began_at < 12.0:
                await asyncio.sleep(0)
                assert last <= kept.now() <= last + 0.012 + 1e-9, "never back, never a leap"
                last = kept.now()
            assert (last - before) / (clock.now() - began_at) == pytest.approx(share, rel=0.2)

    play(scene, turn_s=turn_s)


async def used(
    trial: Trial,
    seconds: float,
    *,
    queued_s: float = 0.0,
    known_s: Callable[[], float] | None = None,
) -> bool:
    """Use a part that works for so long, after a wait for its turn; whether it was let."""
    try:
        async with trial:
            await asyncio.sleep(queued_s)
            trial.begin(known_s)
            await asyncio.sleep(seconds)
            trial.done()
            await asyncio.sleep(1.0)  # what follows is not the part's
    except TimeoutError:
        return False
    return True


def told(trial: Trial) -> tuple[str, bool, bool]:
    """Reason, whether the part is at fault, whether the process was busy."""
    failed = trial.failed("part")
    return failed.reason, failed.at_fault, failed.busy


def test_a_part_that_hangs_has_its_time_out_and_no_more() -> None:
    async def scene(clock: VirtualClock, kept: KeptTime) -> None:
        trial = Trial(kept, context(clock), TIMEOUT_MS)
        assert not await used(trial, 3600.0)
        assert clock.now() == pytest.approx(0.3, abs=0.001)
        assert trial.late and told(trial) == ("part_timeout", True, False)

    play(scene)


def test_its_wait_for_a_turn_is_not_its_own() -> None:
    async def scene(clock: VirtualClock, kept: KeptTime) -> None:
        trial = Trial(kept, context(clock), TIMEOUT_MS)
        assert await used(trial, 0.02, queued_s=1.0)
        assert trial.took_s == pytest.approx(0.02)
        trial = Trial(kept, context(clock), TIMEOUT_MS)
        assert not await used(trial, 3600.0, queued_s=1.0)
        assert trial.late and trial.took_s == pytest.approx(0.3, abs=0.001)

    play(scene)


def test_what_a_thread_computed_is_its_own_even_if_the_loop_stood() -> None:
    async def scene(clock: VirtualClock, kept: KeptTime) -> None:
        trial = Trial(kept, context(clock), TIMEOUT_MS)
        async with trial:
            clock.advance(1.0)  # no beat since
            trial.begin(here=True)
            assert sum(range(200_000)) > 0
            trial.done()
        assert 0.0 < trial.took_s < 1.0

    play(scene)


def test_what_a_busy_process_adds_is_not_its_own() -> None:
    async def scene(clock: VirtualClock, kept: KeptTime) -> None:
        trial = Trial(kept, context(clock), TIMEOUT_MS)
        # Several turns of a loop that takes 60 ms for each.
        assert await used(trial, 0.4)
        assert trial.took_s < 0.12

    play(scene, turn_s=0.06)


def test_one_that_hangs_in_a_busy_process_is_found_out_later() -> None:
    async def scene(clock: VirtualClock, kept: KeptTime) -> None:
        trial = Trial(kept, context(clock), TIMEOUT_MS)
        assert not await used(trial, 3600.0)
        assert told(trial) == ("part_timeout", True, False) and 0.7 < clock.now() < 0.9, (
            "2.5 times as late"
        )

    play(scene, turn_s=0.03)


def test_a_process_that_hardly_moves_gives_up_and_blames_nobody() -> None:
    async def scene(clock: VirtualClock, kept: KeptTime) -> None:
        trial = Trial(kept, context(clock), TIMEOUT_MS)
        assert not await used(trial, 3600.0)
        assert told(trial) == ("part_load", False, True)
        assert 2.4 <= clock.now() <= 3.5

    play(scene, turn_s=0.25)


def test_nobody_gets_a_turn() -> None:
    async def scene(clock: VirtualClock, kept: KeptTime) -> None:
        trial = Trial(kept, context(clock), TIMEOUT_MS)
        assert not await used(trial, 0.01, queued_s=3600.0)
        assert told(trial) == ("part_load", False, True)
        assert clock.now() == pytest.approx(2.4, abs=0.001)

    play(scene)


@pytest.mark.parametrize(("seconds", "at_fault"), [(0.5, False), (0.7, True)])
def test_who_is_in_a_hurry_leaves_it_half_of_the_time(seconds: float, at_fault: bool) -> None:
    async def scene(clock: VirtualClock, kept: KeptTime) -> None:
        trial = Trial(kept, context(clock, seconds), TIMEOUT_MS)
        assert not await used(trial, 3600.0)
        assert clock.now() == pytest.approx(min(0.3, seconds / 2), abs=0.001)
        assert told(trial) == ("part_timeout", at_fault, False)

    play(scene)


def test_a_part_that_tells_waiting_from_working_is_believed() -> None:
    async def scene(clock: VirtualClock, kept: KeptTime) -> None:
        # It has a line of its own, and what is in work moves.
        trial = Trial(kept, context(clock), TIMEOUT_MS)
        assert not await used(trial, 3600.0, known_s=lambda: 0.02)
        assert told(trial)[2] and clock.now() == pytest.approx(2.4, abs=0.001)
        # What is in work does not move: one time-out from when that began.
        began_at, trial = clock.now(), Trial(kept, context(clock), TIMEOUT_MS)
        assert not await used(trial, 3600.0, known_s=lambda: clock.now() - began_at)
        assert trial.late and clock.now() - began_at == pytest.approx(0.3, abs=0.001)

    play(scene)


def test_stretches_of_work_are_added_up() -> None:
    async def scene(clock: VirtualClock, kept: KeptTime) -> None:
        trial = Trial(kept, context(clock), TIMEOUT_MS)
        async with trial:
            trial.begin()
            await asyncio.sleep(0.1)
            trial.pause()
            await asyncio.sleep(0.5)
            trial.begin()
            await asyncio.sleep(0.1)
            trial.pause(0.03)
            trial.begin()
            await asyncio.sleep(0.05)
            assert trial.took_s == pytest.approx(0.18)
            trial.done()
        assert trial.took_s == pytest.approx(0.18) and trial.is_done

    play(scene)


def test_a_client_that_leaves_lets_the_time_stand() -> None:
    async def scene(clock: VirtualClock, kept: KeptTime) -> None:
        trial = Trial(kept, context(clock), TIMEOUT_MS)
        task = asyncio.get_running_loop().create_task(used(trial, 3600.0))
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        stood = kept.now()
        await asyncio.sleep(1.0)
        assert kept.now() == stood == pytest.approx(0.1, abs=0.001)

    play(scene)
