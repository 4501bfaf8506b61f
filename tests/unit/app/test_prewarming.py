"""Searches beforehand: bounded by time, share, free places and confidence; whatever fails."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from forebay.app.prewarming import LATE_S, LOOK_S, Gate, Prewarmer, PrewarmParts, running, spare
from forebay.cache.prewarm import Asked, Learner, PrewarmSettings, Question
from forebay.cache.request_log import RequestLog, line_of
from forebay.kernel.clock import VirtualClock

NOW = 10_000.0


def asked(text: str, who: str = "u", at: float = NOW) -> Asked:
    return Asked(at, who, "fact-normal", Question("t", None, "", "kb", text, 5), 0.05)


class World:
    """Everything a prewarmer works with; searches take ``takes_s`` on the clock."""

    def __init__(self, folder: Path, **changes: float) -> None:
        self.settings = msgspec.structs.replace(PrewarmSettings(enabled=True), **changes)
        self.clock, self.wall = VirtualClock(), VirtualClock()
        self.wall.advance(NOW)
        self.filled: list[str] = []
        self.spare, self.takes_s, self.room = True, 0.0, 100
        self.blocks = self.fails = False
        self.looks = 0
        self.log = RequestLog(folder, 1 << 20, rotates=True)

    def make(self) -> Prewarmer:
        parts = PrewarmParts(
            learner=Learner(self.settings, 3600.0),
            log=self.log,
            fill=self.fill,
            held=self.held,
            spare=lambda: self.spare,
            room=lambda share: int(self.room * share),
            clock=self.clock,
            wall=self.wall,
            indexing=self.indexing,
        )
        return Prewarmer(parts, self.settings)

    def indexing(self) -> bool:
        """True for so many looks; nothing was fetched by then."""
        self.looks -= 1
        assert self.looks < 0 or not self.filled
        return self.looks >= 0

    async def fill(self, question: Question) -> bool:
        if self.blocks:
            await asyncio.Event().wait()
        if self.fails:
            raise ValueError("of a kind that nobody thought of")
        self.clock.advance(self.takes_s)
        self.filled.append(question.text)
        return True

    async def held(self, question: Question) -> bool:
        return question.text in self.filled

    def seen(self, count: int, times: int = 10) -> None:
        lines = [
            line_of(asked(f"question {number}", f"u{turn}", NOW - 600 + turn))
            for turn in range(times)
            for number in range(count)
        ]
        self.log.append(b"".join(lines))


def started(world: World, then: Callable[[Prewarmer], Awaitable[None]] | None = None) -> Prewarmer:
    async def run() -> Prewarmer:
        prewarmer = world.make()
        async with running(prewarmer):
            await prewarmer.done()
            if then is not None:
                await then(prewarmer)
        return prewarmer

    return asyncio.run(run())


def test_after_a_restart_the_hot_questions_are_there_before_readiness(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.seen(4)
    prewarmer = started(world)
    assert sorted(world.filled) == [f"question {number}" for number in range(4)]
    assert prewarmer.waiting() == ()
    assert prewarmer.statistics()["filled"] == 4


def test_nothing_is_fetched_while_documents_are_still_coming(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.seen(3)
    world.looks = 2
    started(world)
    assert len(world.filled) == 3 and world.looks < 0


def test_no_more_than_the_stage_has_room_for(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.room = 10
    world.seen(5)
    started(world)
    assert len(world.filled) == 3


def test_readiness_waits_for_its_time_only(tmp_path: Path) -> None:
    world = World(tmp_path, start_s=0.01)
    world.blocks = True
    world.seen(3)
    started(world)
    assert world.filled == []


def test_readiness_does_not_wait_where_it_is_told_so(tmp_path: Path) -> None:
    world = World(tmp_path, start_s=0.0)
    assert world.make().waiting() == ()
    assert World(tmp_path).make().waiting() == ("warming the caches",)


def test_nothing_kept_and_a_log_that_cannot_be_read_or_written(tmp_path: Path) -> None:
    (tmp_path / "requests.jsonl").mkdir()
    world = World(tmp_path)

    async def then(prewarmer: Prewarmer) -> None:
        prewarmer.asked(asked("one"))

    assert started(world, then).statistics()["lost"] == 1


def test_what_was_asked_is_in_the_log_when_it_ends(tmp_path: Path) -> None:
    world = World(tmp_path)

    async def then(prewarmer: Prewarmer) -> None:
        for number in range(3):
            prewarmer.asked(asked(f"{number}"))

    started(world, then)
    assert [one.question.text for one in world.log.read()] == ["0", "1", "2"]


def test_one_step_fetches_the_next_question_and_rests_for_its_share(tmp_path: Path) -> None:
    world = World(tmp_path, share=0.25, start_s=0.0)

    async def then(prewarmer: Prewarmer) -> None:
        await asyncio.sleep(0)
        for turn in range(20):
            for text in ("one", "two"):
                prewarmer.asked(asked(text, f"u{turn}", NOW + turn))
        prewarmer.asked(asked("one", "x", NOW + 100))
        world.takes_s = 1.0
        assert await prewarmer.step(0.0) == pytest.approx(3.0)
        assert world.filled == ["two"]
        await prewarmer.step(0.0)
        assert world.filled == ["two", "one"]  # nobody's next question, but all ask it
        assert await prewarmer.step(0.0) == LOOK_S

    async def run() -> None:
        prewarmer = world.make()
        async with running(prewarmer):
            while not prewarmer.learned:
                await asyncio.sleep(0.001)
            await then(prewarmer)

    asyncio.run(run())


def test_what_fails_or_cannot_be_written_down_ends_nothing(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.seen(3)
    world.fails = True

    async def then(prewarmer: Prewarmer) -> None:
        prewarmer.asked(asked("half a pair: \ud800"))
        await prewarmer.step(0.0)

    found = started(world, then).statistics()
    assert (found["filled"], found["failed"], found["questions"]) == (0, 3, 3)


def test_nothing_is_fetched_while_others_wait_or_the_loop_is_late(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.seen(4)
    world.blocks = True
    prewarmer = world.make()

    async def run() -> None:
        await prewarmer.step(0.0)  # nothing is known yet
        world.spare = False
        assert await prewarmer.step(0.0) == LOOK_S
        world.spare = True
        assert await prewarmer.step(2 * LATE_S) == LOOK_S

    asyncio.run(run())
    assert world.filled == []


def test_predictions_grow_old(tmp_path: Path) -> None:
    world = World(tmp_path, start_s=0.0)

    async def run() -> None:
        prewarmer = world.make()
        async with running(prewarmer):
            while not prewarmer.learned:
                await asyncio.sleep(0.001)
            for turn in range(20):
                for text in ("one", "two"):
                    prewarmer.asked(asked(text, f"u{turn}", NOW + turn))
            world.clock.advance(60.0)
            world.room = 0
            await prewarmer.step(0.0)

    asyncio.run(run())
    assert world.filled == []


@pytest.mark.parametrize(
    ("gates", "expected"),
    [
        ([Gate(0, 8, 8), Gate(0, 4, 0)], True),
        ([Gate(0, 8, 6), Gate(0, 4, 0)], True),
        ([Gate(0, 8, 5), Gate(0, 4, 4)], False),
        ([Gate(1, 8, 8), Gate(0, 4, 4)], False),
        ([Gate(0, 8, 8), Gate(2, 4, 4)], False),
    ],
)
def test_spare(gates: list[Gate], expected: bool) -> None:
    assert spare(gates, 0.25) is expected
