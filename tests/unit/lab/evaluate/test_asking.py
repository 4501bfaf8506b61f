"""Every question has an outcome: those that fail or hang say so and end nothing."""

from __future__ import annotations

import asyncio

from forebay.kernel.clock import VirtualClock
from forebay.kernel.errors import Unavailable
from forebay.lab.evaluate.asking import Asking, ask_all
from forebay.lab.evaluate.datasets import Question
from forebay.lab.evaluate.target import Found, Passage, Said

QUESTIONS = [Question(str(number), f"question {number}", "en") for number in range(6)]


class Scripted:
    """Finds one passage in two seconds and answers in three; question 2 fails, 4 hangs."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self.at_once = self.most = 0

    async def search(self, question: Question, top_k: int) -> Found:
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        try:
            await asyncio.sleep(0)
            if question.id == "2":
                raise Unavailable("nothing answers there.")
            if question.id == "4":
                await asyncio.Event().wait()
            self._clock.advance(2.0)
            return Found((Passage("a", "text"),), "bm25")
        finally:
            self.at_once -= 1

    async def answer(self, question: Question) -> Said:
        self._clock.advance(3.0)
        return Said("text", refused=True)


async def test_every_question_has_an_outcome() -> None:
    clock = VirtualClock()
    target, done = Scripted(clock), []
    asking = Asking(within_s=0.05)
    found = await ask_all(target, QUESTIONS, asking, clock, lambda: done.append(1))
    assert len(found) == len(done) == 6 and target.most == 1
    assert found["0"].search_s == 2.0 and found["0"].answer_s == 3.0 and found["0"].rung == "bm25"
    assert found["2"].error == "nothing answers there." and found["2"].hits == ()
    assert found["4"].error == "no answer within 0.05 s" and found["4"].search_s is None
    assert not found["5"].error


async def test_as_many_at_a_time_as_are_asked_for() -> None:
    clock = VirtualClock()
    target = Scripted(clock)
    asking = Asking(at_once=3, within_s=0.05, answers=False)
    found = await ask_all(target, QUESTIONS, asking, clock, lambda: None)
    assert target.most == 3 and len(found) == 6
    assert all(one.said is None for one in found.values())
    assert await ask_all(target, [], asking, clock, lambda: None) == {}
