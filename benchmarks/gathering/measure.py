"""A window that gathers requests, in front of an engine that batches statically, in virtual time.

The engine takes what lies before it when it is free, up to 32, and takes nothing more until the
longest answer of these has ended. In front of it is the production gate; before that a window holds
the first request to an idle engine until so many seconds have passed or a batch is full.

``python benchmarks/gathering/measure.py`` prints a table and writes ``gathering.json``.
"""

from __future__ import annotations

import heapq
import json
import platform
from itertools import count
from pathlib import Path
from random import Random
from statistics import median

from forebay.policy.gate import GateSettings, PoolGate, Ticket
from forebay.policy.limit import LimitSettings

BATCH = 32
PROMPT_TOKENS, MEAN_TOKENS, MOST_TOKENS = 600, 100, 400
PREFILL_TOKEN_S, STEP_S, SEQUENCE_STEP_S = 0.0001, 0.025, 0.0004
DEADLINE_S, LASTS_S = 60.0, 1200.0
WINDOWS_S = (0.0, 0.02, 0.1, 0.5, 2.0)
LOADS = (0.1, 0.25, 0.5, 0.75, 1.0, 2.0)
SEEDS = (1, 2, 3, 4, 5, 6)


def batch_s(lengths: list[int]) -> list[float]:
    """When each of a batch ends, after its begin."""
    prefill_s = PREFILL_TOKEN_S * PROMPT_TOKENS * len(lengths)
    step_s = STEP_S + SEQUENCE_STEP_S * len(lengths)
    return [prefill_s + step_s * length for length in lengths]


def length(chance: Random) -> int:
    return min(MOST_TOKENS, 1 + int(chance.expovariate(1 / MEAN_TOKENS)))


def capacity() -> float:
    """Requests a second in full batches."""
    chance = Random(0)
    batches = [max(batch_s([length(chance) for _ in range(BATCH)])) for _ in range(2000)]
    return BATCH * len(batches) / sum(batches)


class World:
    """One engine, its gate, and a window."""

    def __init__(self, window_s: float, seed: int) -> None:
        limit = LimitSettings(initial=BATCH, least=1, most=4 * BATCH)
        self.gate = PoolGate(GateSettings(limit=limit), ["r"])
        self.window_s = window_s
        self.chance = Random(seed)
        self.events: list[tuple[float, int, str, Ticket | None]] = []
        self.number = count()
        self.gathered: list[Ticket] = []
        self.before: list[Ticket] = []  # at the engine, not in the batch
        self.free_at = 0.0
        self.arrived_at: dict[Ticket, float] = {}
        self.took_s: list[float] = []
        self.batches: list[int] = []

    def at(self, when: float, what: str, ticket: Ticket | None = None) -> None:
        heapq.heappush(self.events, (when, next(self.number), what, ticket))

    def run(self, rate: float) -> dict[str, float]:
        """Poisson arrivals at ``rate`` a second."""
        now = 0.0
        while (now := now + self.chance.expovariate(rate)) < LASTS_S:
            ticket = Ticket(cost=PROMPT_TOKENS + MEAN_TOKENS, deadline_at=now + DEADLINE_S)
            ticket.input_tokens, ticket.output_tokens = PROMPT_TOKENS, length(self.chance)
            ticket.expected_tokens = MEAN_TOKENS
            self.at(now, "arrives", ticket)
        arrivals = len(self.events)
        while self.events:
            now, _, what, ticket = heapq.heappop(self.events)
            if what == "arrives" and ticket is not None:
                self.arrived_at[ticket] = now
                self.gather(ticket, now)
            elif what == "window":
                self.let_go(now)
            elif what == "ends" and ticket is not None:
                self.gate.finish(ticket, now, ok=True)
                self.took_s.append(now - self.arrived_at[ticket])
                self.send(now)
            self.gate.tick(now)
            self.send(now)
        in_time = sorted(took for took in self.took_s if took <= DEADLINE_S)
        return {
            "offered_per_s": round(arrivals / LASTS_S, 3),
            "in_time_per_s": round(len(in_time) / LASTS_S, 3),
            "median_s": round(median(in_time), 2),
            "p99_s": round(in_time[int(0.99 * len(in_time))], 2),
            "batch": round(sum(self.batches) / len(self.batches), 1),
        }

    def gather(self, ticket: Ticket, now: float) -> None:
        if self.window_s and self.free_at <= now and not self.before:
            self.gathered.append(ticket)
            if len(self.gathered) == 1:
                self.at(now + self.window_s, "window")
            if len(self.gathered) < BATCH:
                return
            self.let_go(now)
            return
        self.gate.arrive(ticket, now)

    def let_go(self, now: float) -> None:
        gathered, self.gathered = self.gathered, []
        for ticket in gathered:
            self.gate.arrive(ticket, now)

    def send(self, now: float) -> None:
        self.before += self.gate.sent()
        self.gate.refused()
        if not self.before or self.free_at > now:
            return
        taken, self.before = self.before[:BATCH], self.before[BATCH:]
        self.batches.append(len(taken))
        ends = batch_s([one.output_tokens for one in taken])
        self.free_at = now + max(ends)
        for ticket, end in zip(taken, ends, strict=True):
            self.gate.asked(ticket, now)
            self.at(now + end, "ends", ticket)
        self.at(self.free_at, "free")


def main() -> None:
    most = capacity()
    found: list[dict[str, float]] = []
    for load in LOADS:
        for window_s in WINDOWS_S:
            runs = [World(window_s, seed).run(load * most) for seed in SEEDS]
            row = {key: round(median(run[key] for run in runs), 3) for key in runs[0]}
            spread = [run["in_time_per_s"] for run in runs]
            row |= {"least_per_s": min(spread), "most_per_s": max(spread)}
            found.append({"load": load, "window_s": window_s, **row})
            print(found[-1])
    result = {
        "capacity_per_s": round(most, 3),
        "seeds": SEEDS,
        "python": platform.python_version(),
        "rows": found,
    }
    Path(__file__).with_name("gathering.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
