"""From a workload's parts to its requests: batches drawn with numpy, requests given one by one.

Every part (arrivals, kinds, tenants, each kind's contents) has a random stream of its own, so
that changing one part leaves what the others draw as it was.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from forebay.lab.workload.arrivals import BATCH, Arrivals
from forebay.lab.workload.distributions import Shares
from forebay.lab.workload.kinds import Drawn, KindSource, KindStream, Priority, Tenants
from forebay.lab.workload.request import PlannedRequest
from forebay.lab.workload.trace_formats import TraceRow
from forebay.lab.workload.traces import TraceArrivals, replay

Who = tuple[str, str, str, Priority | None]
# Ids private to a session: room for this many blocks of each.
_SESSION_BITS = 24


class Parts:
    """A workload's compiled parts, shared by all its runs."""

    def __init__(
        self,
        kinds: list[KindSource],
        tenants: Tenants,
        folder: Path,
        block_tokens: int,
        *,
        keeps_names: bool,
    ) -> None:
        self.kinds = kinds
        self.tenants = tenants
        self.folder = folder
        self.block_tokens = block_tokens
        self.shares = Shares([source.kind.share for source in kinds])
        self.by_name = {source.kind.name: place for place, source in enumerate(kinds)}
        # Highest threshold first: a traced request belongs to the first one it reaches.
        self.by_tokens = sorted(range(len(kinds)), key=lambda at: -kinds[at].kind.trace_min_tokens)
        # Without kinds of the user's, a trace's own names are kept.
        self.keeps_names = keeps_names
        self.converses = any(source.kind.conversation is not None for source in kinds)

    def kind_of(self, row: TraceRow) -> int:
        """The kind of a traced request: that of its name, else by its tokens."""
        place = self.by_name.get(row.kind)
        if place is not None:
            return place
        tokens = row.input_tokens + row.output_tokens
        for place in self.by_tokens:
            if tokens >= self.kinds[place].kind.trace_min_tokens:
                return place
        return self.by_tokens[-1]


class Run:
    """One run's random streams; the same seed gives the same requests."""

    def __init__(self, parts: Parts, seed: int) -> None:
        arrivals, kinds, tenants, *contents = np.random.SeedSequence(seed).spawn(
            3 + len(parts.kinds)
        )
        self._parts = parts
        self._arrivals = np.random.default_rng(arrivals)
        self._kinds = np.random.default_rng(kinds)
        self._tenants = np.random.default_rng(tenants)
        self._streams: list[KindStream] = [
            source.stream(content) for source, content in zip(parts.kinds, contents, strict=True)
        ]
        self._conversations = 0

    def scheduled(self, arrivals: Arrivals) -> Iterator[PlannedRequest]:
        """Requests of the mix at the arrivals' times."""
        return self._timed(times.tolist() for times in arrivals.batches(self._arrivals))

    def replayed_times(self, spec: TraceArrivals) -> Iterator[PlannedRequest]:
        """Requests of the mix at a trace's times."""
        rows = replay(spec, self._parts.folder, self._arrivals)
        return self._timed([row.at_s for row in part] for part in _parts_of(rows))

    def replayed(self, spec: TraceArrivals) -> Iterator[PlannedRequest]:
        """A trace's requests; kinds say how urgent they are and cap them, tenants who asks."""
        rows = replay(spec, self._parts.folder, self._arrivals)
        numbers = itertools.count()
        for part in _parts_of(rows):
            places = [self._parts.kind_of(row) for row in part]
            leaves = [
                iter(self._streams[place].disconnects(places.count(place))) if count else None
                for place, count in enumerate(_counts(places, len(self._streams)))
            ]
            who = self._parts.tenants.draw(self._tenants, len(part))
            for row, place, asking in zip(part, places, who, strict=True):
                leaving = leaves[place]
                yield self._of_row(
                    next(numbers), row, place, asking, None if leaving is None else next(leaving)
                )

    def waiting(self) -> Iterator[PlannedRequest]:
        """Requests for users who ask when they are free: all at second 0, without end."""
        return self._timed([0.0] * BATCH for _ in itertools.count())

    def _timed(self, batches: Iterable[list[float]]) -> Iterator[PlannedRequest]:
        if self._parts.converses:
            return self._with_turns(batches)
        return self._single(batches)

    def _single(self, batches: Iterable[list[float]]) -> Iterator[PlannedRequest]:
        parts, number = self._parts, 0
        block = parts.block_tokens
        fixed = [
            (source.kind.name, source.kind.priority, source.kind.deadline_s)
            for source in parts.kinds
        ]
        for times in batches:
            places, drawn = self._contents(len(times))
            who = parts.tenants.draw(self._tenants, len(times))
            for at_s, place, content, asking in zip(times, places, drawn, who, strict=True):
                asked, output, text, prefix, before, leave = content
                tenant, key, user, priority = asking
                name, own_priority, deadline_s = fixed[place]
                yield PlannedRequest(
                    number, at_s, name, asked + before, output, text, prefix, block, tenant, key,
                    user, priority if own_priority is None else own_priority, deadline_s, "", 0,
                    leave,
                )  # fmt: skip
                number += 1

    def _contents(self, count: int) -> tuple[list[int], list[Drawn]]:
        """The kinds of ``count`` requests and what each asks."""
        chosen = self._parts.shares.draw(self._kinds, count)
        if len(self._streams) == 1:
            return chosen.tolist(), self._streams[0].draw(count)
        drawn: list[Any] = [None] * count
        for place, stream in enumerate(self._streams):
            where = np.flatnonzero(chosen == place).tolist()
            for position, content in zip(where, stream.draw(len(where)), strict=True):
                drawn[position] = content
        return chosen.tolist(), drawn

    def _with_turns(self, batches: Iterable[list[float]]) -> Iterator[PlannedRequest]:
        """Conversations: an arrival starts one; its later turns wait in a heap for their time."""
        waiting: list[tuple[float, int, int, PlannedRequest]] = []
        order, index = itertools.count(), 0
        for times in batches:
            for conversation, turns in self._opened(times):
                while waiting and waiting[0][0] <= turns[0].at_s:
                    _, _, number, due = heapq.heappop(waiting)
                    yield self._said(due, index, number)
                    index += 1
                yield self._said(turns[0], index, conversation)
                index += 1
                for turn in turns[1:]:
                    heapq.heappush(waiting, (turn.at_s, next(order), conversation, turn))
        while waiting:
            _, _, number, due = heapq.heappop(waiting)
            yield self._said(due, index, number)
            index += 1

    def _opened(self, times: list[float]) -> Iterator[tuple[int, list[PlannedRequest]]]:
        """For each arrival, the number of the conversation it opens, and all its turns."""
        places, drawn = self._contents(len(times))
        who = self._parts.tenants.draw(self._tenants, len(times))
        later = [
            _Later(stream, size)
            for stream, size in zip(self._streams, _counts(places, len(self._streams)), strict=True)
        ]
        for at_s, place, content, asking in zip(times, places, drawn, who, strict=True):
            contents, pauses = later[place].next(content)
            self._conversations += 1
            yield self._conversations, self._conversation(at_s, place, asking, contents, pauses)

    def _conversation(
        self, at_s: float, place: int, who: Who, contents: list[Drawn], pauses: list[float]
    ) -> list[PlannedRequest]:
        kind, first = self._parts.kinds[place].kind, contents[0]
        priority = who[3] if kind.priority is None else kind.priority
        session = f"{kind.name}-{self._conversations}" if kind.conversation else ""
        turns, before = len(contents), first.prefix_tokens
        made: list[PlannedRequest] = []
        for turn, (content, pause_s) in enumerate(zip(contents, pauses, strict=True)):
            at_s += pause_s
            asked = before + content.question_tokens
            if turn and kind.input_cap_tokens is not None and asked > kind.input_cap_tokens:
                break
            history, before = before if turn else 0, asked + content.output_tokens
            request = PlannedRequest(
                0, at_s, kind.name, asked, content.output_tokens, content.text, first.prefix,
                self._parts.block_tokens, who[0], who[1], who[2], priority, kind.deadline_s,
                session, turn, content.disconnect, turns, history,
            )  # fmt: skip
            made.append(request)
        if len(made) < turns:
            made = [_changed(request, 0, len(made), request.prefix) for request in made]
        return made

    def _said(self, planned: PlannedRequest, index: int, conversation: int) -> PlannedRequest:
        """The turn as it is given out, with the ids of all blocks that it fills.

        Ids of those that the conversation alone fills, its answer's too, are made only now:
        thousands of turns wait for their time.
        """
        prefix = planned.prefix
        if planned.session:
            base = -(conversation << _SESSION_BITS)
            filled = (planned.input_tokens + planned.output_tokens) // self._parts.block_tokens
            prefix += tuple(range(base - len(prefix), base - filled, -1))
        return _changed(planned, index, planned.turns, prefix)

    def _of_row(
        self, index: int, row: TraceRow, place: int, who: Who, leave: int | None
    ) -> PlannedRequest:
        kind = self._parts.kinds[place].kind
        name = row.kind if self._parts.keeps_names and row.kind else kind.name
        tenant, key, user, priority = who
        if row.tenant:
            tenant, user = row.tenant, ""
            key, priority = self._parts.tenants.key(row.tenant)
        for urgency in (row.priority, kind.priority):
            priority = urgency if urgency is not None else priority
        return PlannedRequest(
            index, row.at_s, name, _capped(row.input_tokens, kind.input_cap_tokens),
            _capped(row.output_tokens, kind.output_cap_tokens), "", row.prefix, row.block_tokens,
            tenant, key, user, priority,
            kind.deadline_s if row.deadline_s is None else row.deadline_s, "", 0, leave,
        )  # fmt: skip


class _Later:
    """The turns after the first of one batch's conversations of one kind, drawn together."""

    def __init__(self, stream: KindStream, conversations: int) -> None:
        turns = stream.turns(conversations)
        more = sum(turns) - conversations
        self._turns = iter(turns)
        self._contents = iter(stream.draw(more) if more else ())
        self._pauses = iter(stream.thinking_s(more))

    def next(self, first: Drawn) -> tuple[list[Drawn], list[float]]:
        """All turns of the next conversation, and the pause before each."""
        more = next(self._turns) - 1
        contents = [first, *itertools.islice(self._contents, more)]
        return contents, [0.0, *itertools.islice(self._pauses, more)]


def bounded(
    requests: Iterator[PlannedRequest], duration_s: float, count: int | None
) -> Iterator[PlannedRequest]:
    """Up to the first request at or past ``duration_s``, and no more than ``count``."""
    if not math.isinf(duration_s):
        requests = itertools.takewhile(lambda request: request.at_s < duration_s, requests)
    return requests if count is None else itertools.islice(requests, count)


def _parts_of(rows: Iterator[TraceRow]) -> Iterator[list[TraceRow]]:
    while part := list(itertools.islice(rows, BATCH)):
        yield part


def _counts(places: list[int], kinds: int) -> list[int]:
    counts: list[int] = np.bincount(places, minlength=kinds).tolist()
    return counts


def _capped(tokens: int, cap: int | None) -> int:
    return max(1, tokens if cap is None else min(tokens, cap))


def _changed(
    old: PlannedRequest, index: int, turns: int, prefix: tuple[int, ...]
) -> PlannedRequest:
    # Spelt out because msgspec's replace takes three times as long.
    return PlannedRequest(
        index, old.at_s, old.kind, old.input_tokens, old.output_tokens, old.text, prefix,
        old.prefix_block_tokens, old.tenant, old.key, old.user, old.priority, old.deadline_s,
        old.session, old.turn, old.disconnect_after_tokens, turns, old.history_tokens,
    )  # fmt: skip
