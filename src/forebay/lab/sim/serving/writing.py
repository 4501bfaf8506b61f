"""An answer that stalls or breaks off on command."""

from __future__ import annotations

from forebay.lab.sim.serving.exchange import Cut
from forebay.lab.sim.serving.faults import Verdict
from forebay.lab.sim.serving.replica import Job, Replica


class FaultyAnswer:
    """Has the methods of ``Job`` that writers wait on; ``Cut`` where the answer dies.

    Marks lie before the last token: an answer that is whole has met no fault.
    """

    def __init__(self, job: Job, verdict: Verdict, replica: Replica) -> None:
        self.job = job
        self._replica = replica
        most = job.answer.tokens - 1
        stall, death = verdict.stall, verdict.death
        self._stall_at = min(stall.after_tokens, most) if stall and stall.after_tokens else None
        self._dies_at = min(death.after_tokens, most) if death else None
        self._at = 0
        self._seen = 0

    async def more(self) -> tuple[int, int]:
        """Wait until there is something to write; the tokens as a range."""
        if self._at == self._seen:
            _, self._seen = await self.job.more()
        marks = [mark for mark in (self._stall_at, self._dies_at) if mark is not None]
        mark = min(marks, default=self._seen + 1)
        if self._seen >= mark > self._at:
            return self._move(mark)
        if mark <= self._at:
            if mark == self._dies_at:
                raise Cut
            self._stall_at = None
            await self._replica.until_moving()
            return await self.more()
        return self._move(self._seen)

    async def whole(self) -> None:
        """Wait until the last token is written, and longer."""
        await self.job.whole()
        if self._stall_at is not None:
            await self._replica.until_moving()
        if self._dies_at is not None:
            raise Cut

    def _move(self, to: int) -> tuple[int, int]:
        first, self._at = self._at, to
        return first, to
