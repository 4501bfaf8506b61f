"""The engine once more, as plainly as possible: one step at a time, one sequence at a time."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from forebay.lab.sim.engine import EngineConfig
from forebay.lab.sim.steps import StepModel

Path = tuple[int, ...]  # hash size, then every hash up to this one


@dataclass(eq=False)
class Entry:
    """Blocks in the prefix cache under one path of hashes."""

    path: Path
    blocks: int
    users: int = 0


@dataclass(eq=False)
class Job:
    """One sequence."""

    id: int
    input_tokens: int
    output_tokens: int
    hashes: tuple[int, ...] = ()
    hash_tokens: int = 0
    priority: int = 0
    state: str = "waiting"
    order: int = 0
    prompt: int = 0
    computed: int = 0
    decoding: bool = False
    written: int = 0
    blocks: int = 0  # its own, without shared ones
    entries: list[Entry] = field(default_factory=list)
    cached_tokens: int | None = None
    preemptions: int = 0
    first_token_at: float | None = None
    finished_at: float | None = None


class ReferenceEngine:
    """Same rules as the engine under test, no closed forms, no counters kept on the way."""

    def __init__(self, config: EngineConfig, model: StepModel) -> None:
        self.config = config
        self.model = model
        self.total = config.kv_tokens // config.block_tokens
        self.reserve = int(config.watermark * self.total)
        self.waiting: list[Job] = []
        self.running: list[Job] = []
        self.cache: dict[Path, Entry] = {}
        self.idle: list[Entry] = []  # least recently used first
        self.chunks: list[tuple[Job, int]] = []
        self.decoders: list[Job] = []
        self.end: float | None = None
        self.order = 0
        self.steps = 0
        self.begun_at = 0.0
        self.busy = 0.0
        self.log: list[tuple[float, str, int]] = []

    # --- blocks

    def used(self) -> int:
        own = sum(job.blocks for job in self.running)
        return own + sum(entry.blocks for entry in self.cache.values() if entry.users)

    def free(self) -> int:
        return self.total - self.used() - sum(entry.blocks for entry in self.idle)

    def available(self) -> int:
        return self.total - self.used()

    def make_room(self, blocks: int) -> None:
        while self.free() < blocks:
            entry = self.idle.pop(0)
            del self.cache[entry.path]

    def hold(self, entry: Entry) -> None:
        if entry in self.idle:
            self.idle.remove(entry)
        entry.users += 1

    def drop(self, job: Job) -> None:
        job.blocks = 0
        for entry in reversed(job.entries):
            entry.users -= 1
            if not entry.users:
                self.idle.append(entry)
        job.entries = []

    # --- what happens from outside

    def submit(self, job: Job, now: float) -> None:
        self.move(now)
        self.order += 1
        job.order = self.order
        job.prompt = job.input_tokens
        self.waiting.append(job)
        if self.end is None:
            self.begin(now)

    def cancel(self, job: Job, now: float) -> None:
        self.move(now)
        if job.state not in ("waiting", "running"):
            return
        if job in self.waiting:
            self.waiting.remove(job)
        else:
            self.running.remove(job)
            self.drop(job)
        job.state = "cancelled"
        job.finished_at = now

    def move(self, now: float) -> None:
        while self.end is not None and self.end <= now:
            at = self.end
            self.end = None
            self.finish_step(at)
            self.begin(at)

    # --- one step

    def begin(self, at: float) -> None:
        config = self.config
        self.decoders, self.chunks = [], []
        preempted = False
        for job in list(self.running):
            if job not in self.running or not job.decoding:
                continue
            if job.computed % config.block_tokens == 0:
                while self.available() < 1 and job in self.running:
                    self.preempt()
                    preempted = True
                if job not in self.running:
                    continue
                self.make_room(1)
                job.blocks += 1
        self.decoders = [job for job in self.running if job.decoding]
        budget = config.max_num_batched_tokens - len(self.decoders)
        for job in self.running:
            if not job.decoding and budget:
                tokens = min(budget, job.prompt - job.computed)
                budget -= tokens
                self.chunks.append((job, tokens))
        while self.waiting and budget and not preempted:
            job = self.next_waiting()
            if len(self.running) >= config.max_num_seqs or not self.admit(job):
                break
            tokens = min(budget, job.prompt - job.computed)
            budget -= tokens
            self.chunks.append((job, tokens))
        if self.decoders or self.chunks:
            self.begun_at = at
            self.end = at + self.model.step_seconds(
                len(self.decoders),
                sum(job.computed for job in self.decoders),
                sum(tokens for _, tokens in self.chunks),
                self.attended(),
            )

    def attended(self) -> int:
        """Tokens that an average prefilled token attends to."""
        tokens = sum(tokens for _, tokens in self.chunks)
        pairs = sum(tokens * (job.computed + tokens / 2) for job, tokens in self.chunks)
        return math.floor(pairs / tokens + 0.5) if tokens else 0

    def next_waiting(self) -> Job:
        if self.config.scheduling == "priority":
            return min(self.waiting, key=lambda job: (job.priority, job.order))
        return self.waiting[0]

    def admit(self, job: Job) -> bool:
        size = job.hash_tokens or self.config.block_tokens
        found: list[Entry] = []
        if self.config.prefix_caching:
            for count in range(1, len(job.hashes) + 1):
                entry = self.cache.get((size, *job.hashes[:count]))
                if entry is None or count * size > job.prompt - 1:
                    break
                found.append(entry)
        hit = sum(entry.blocks for entry in found)
        need = -(-job.prompt // self.config.block_tokens) - hit
        taken = sum(entry.blocks for entry in found if not entry.users)
        if self.available() - taken - need < self.reserve:
            return False
        for entry in found:
            self.hold(entry)
        self.make_room(need)
        self.waiting.remove(job)
        self.running.append(job)
        job.state = "running"
        job.entries = found
        job.blocks = need
        job.computed = len(found) * size
        if job.cached_tokens is None:
            job.cached_tokens = job.computed
        return True

    def preempt(self) -> None:
        if self.config.scheduling == "priority":
            victim = max(self.running, key=lambda job: (job.priority, job.order))
        else:
            victim = self.running[-1]
        self.running.remove(victim)
        self.publish(victim)
        self.drop(victim)
        victim.state = "waiting"
        victim.decoding = False
        victim.computed = 0
        victim.prompt = victim.input_tokens + victim.written
        victim.preemptions += 1
        self.waiting.insert(0, victim)

    def busy_s(self, now: float) -> float:
        return self.busy + (now - self.begun_at if self.end is not None else 0.0)

    def finish_step(self, at: float) -> None:
        self.steps += 1
        self.busy += at - self.begun_at
        for job in [job for job in self.decoders if job.state == "running"]:
            job.computed += 1
            self.write(job, at)
        for job, tokens in self.chunks:
            if job.state != "running":
                continue
            job.computed += tokens
            self.publish(job)
            if job.computed == job.prompt:
                job.decoding = True
                self.write(job, at)

    def write(self, job: Job, at: float) -> None:
        job.written += 1
        if job.first_token_at is None:
            job.first_token_at = at
            self.log.append((at, "first", job.id))
        if job.written == job.output_tokens:
            job.state = "finished"
            job.finished_at = at
            self.running.remove(job)
            self.publish(job)
            self.drop(job)
            self.log.append((at, "finish", job.id))

    def publish(self, job: Job) -> None:
        if not self.config.prefix_caching:
            return
        size = job.hash_tokens or self.config.block_tokens
        blocks = size // self.config.block_tokens
        while len(job.entries) < min(len(job.hashes), job.computed // size):
            path = (size, *job.hashes[: len(job.entries) + 1])
            entry = self.cache.get(path)
            if entry is None:
                entry = self.cache[path] = Entry(path, blocks)
            job.blocks -= blocks
            self.hold(entry)
            job.entries.append(entry)
