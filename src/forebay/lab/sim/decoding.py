"""The sequences that write one token a step, as counters.

Nothing here costs more with more tokens or more sequences: contexts are one sum, finishes are
buckets by step, and blocks follow from phases. A sequence whose context is c before step s takes a
block in that step when ``block_tokens`` divides c, hence whenever s is congruent to its phase.
"""

from __future__ import annotations

import heapq

from forebay.lab.sim.sequence import Sequence


class Decoding:
    """The decoding sequences before step ``step``; ``context`` is the sum of their tokens."""

    __slots__ = ("_block", "_finish_at", "_finish_steps", "_phases", "context", "count", "step")

    def __init__(self, block_tokens: int) -> None:
        self.step = 0
        self.count = 0
        self.context = 0
        self._block = block_tokens
        self._phases = [0] * block_tokens
        self._finish_at: dict[int, list[Sequence]] = {}
        self._finish_steps: list[int] = []

    def join(self, sequence: Sequence, tokens: int) -> None:
        """Count a sequence in that has its prompt computed and ``tokens`` left to write."""
        step = self.step
        sequence.joined_step = step
        sequence.finish_step = finish = step + tokens
        self.count += 1
        self.context += sequence.prompt_tokens
        self._phases[(step - sequence.prompt_tokens) % self._block] += 1
        bucket = self._finish_at.get(finish)
        if bucket is None:
            self._finish_at[finish] = [sequence]
            heapq.heappush(self._finish_steps, finish)
        else:
            bucket.append(sequence)

    def leave(self, sequence: Sequence) -> int:
        """Count a sequence out; its tokens in the KV cache."""
        context = sequence.prompt_tokens + self.step - sequence.joined_step
        self.count -= 1
        self.context -= context
        self._phases[(sequence.joined_step - sequence.prompt_tokens) % self._block] -= 1
        bucket = self._finish_at.get(sequence.finish_step)
        if bucket is not None:  # None when it is being emptied
            bucket.remove(sequence)
        return context

    def move(self, steps: int) -> None:
        """Let ``steps`` steps pass, or take them back when below zero."""
        self.step += steps
        self.context += steps * self.count

    def due(self) -> list[Sequence]:
        """Who wrote its last token with the step that just passed; each has still to leave."""
        heap = self._finish_steps
        if not heap or heap[0] != self.step:
            return []
        return self._finish_at.pop(heapq.heappop(heap))

    def steps_to_finish(self) -> int:
        """Steps until the next one finishes."""
        heap = self._finish_steps
        while not self._finish_at[heap[0]]:  # those left before their time
            del self._finish_at[heapq.heappop(heap)]
        return heap[0] - self.step

    def growth(self, first: int, last: int) -> int:
        """Blocks taken in the steps from ``first`` up to but without ``last``."""
        whole, rest = divmod(last - first, self._block)
        blocks = whole * self.count
        if rest:
            begin = first % self._block
            end = begin + rest
            if end <= self._block:
                blocks += sum(self._phases[begin:end])
            else:
                blocks += self.count - sum(self._phases[end - self._block : begin])
        return blocks

    def growth_now(self) -> int:
        """Blocks taken in the next step."""
        return self._phases[self.step % self._block]

    def steps_with(self, blocks: int, first: int) -> int:
        """How many steps from ``first`` on are served by ``blocks``."""
        whole, left = divmod(blocks, self.count)
        steps = whole * self._block
        phase = first % self._block
        while left >= self._phases[phase]:
            left -= self._phases[phase]
            steps += 1
            phase = (phase + 1) % self._block
        return steps
