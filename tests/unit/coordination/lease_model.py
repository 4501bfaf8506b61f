"""The lease protocol as a system of processes whose every step a search can choose.

The rules under test are the production classes; the model adds what surrounds them: a writer that
may die between any two steps, readers that stand still as long as they like, calls that are lost,
answered late or carried out after they were given up, and an authority that loses its memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Protocol, Self, TypeAlias, TypeVar

from forebay.coordination.leases import Acknowledging, HeldLeases, LeaseTable
from forebay.kernel.leases import Claim, LeaseCall, LeaseReply, Pending

KB = "kb"
WRITES = (Claim(KB, "store", held=True),)
LEASE_S = 2.0


@dataclass(frozen=True)
class Bounds:
    """How much of each a search may use; time is without bound, since only differences count."""

    commits: int = 2
    deaths: int = 0
    losses: int = 0
    lates: int = 0
    readers: int = 1


@dataclass
class Sent:
    """A call under way: not carried out, carried out (``reply``), or given up by its sender."""

    who: str
    call: LeaseCall
    at: int
    reply: LeaseReply | None = None
    given_up: bool = False

    def key(self, now: int) -> object:
        asked = None if self.given_up else _past(now - self.at)
        return self.who, self.call, asked, self.reply, self.given_up


@dataclass
class Reader:
    snapshot: int = 1
    held: HeldLeases = field(default_factory=HeldLeases)


@dataclass
class Writer:
    """``step``: idle -> begun (asked) -> allowed (answered) -> committed -> idle."""

    step: str = "idle"
    change: str = ""
    waiting: Acknowledging | None = None


class World:
    """One state; ``steps`` are the names of what may happen next, ``after`` makes it happen."""

    table_type: type[LeaseTable] = LeaseTable

    def __init__(self, bounds: Bounds) -> None:
        self.left = bounds
        self.now = 0
        self.record = 1
        self.acknowledged = 1
        self.table = self.table_type()
        # The kb has been known for long, at its version.
        known = LeaseCall("writer", LEASE_S, WRITES, done=(Pending(KB, 1, "0"),))
        self.table.carry_out(known, -10.0)
        self.readers = [Reader() for _ in range(bounds.readers)]
        self.writer = Writer()
        self.sent: list[Sent] = []

    # What must hold in every state

    def wrong(self) -> str | None:
        """A query that starts now under a lease must see what was acknowledged."""
        for number, reader in enumerate(self.readers):
            leased = reader.held.holds(KB, reader.snapshot, self.now)
            if leased and reader.snapshot < self.acknowledged:
                return f"reader {number} serves {reader.snapshot}, {self.acknowledged} is known"
        return None

    # What may happen

    def steps(self) -> Iterator[str]:
        yield "tick"
        for number, reader in enumerate(self.readers):
            if reader.snapshot < self.record:
                yield f"refresh {number}"
            if not any(sent.who == f"r{number}" and not sent.given_up for sent in self.sent):
                yield f"renew {number}"
        for place, sent in enumerate(self.sent):
            if sent.reply is None:
                yield f"carry {place}"
                if not sent.given_up and self.left.lates:
                    yield f"giveup {place}"
            elif not sent.given_up:
                yield f"hear {place}"
            if not sent.given_up:
                yield f"lose {place}"
        yield from self._writer_steps()
        if self.left.losses:
            yield "forget"

    def _writer_steps(self) -> Iterator[str]:
        writer = self.writer
        asking = any(sent.who == "w" and not sent.given_up for sent in self.sent)
        if writer.step == "idle" and self.left.commits and not asking:
            yield "begin"
        if writer.step == "allowed":
            yield "commit"
        if writer.step == "committed":
            if not asking:
                yield "publish"
            if writer.waiting is not None and writer.waiting.may(self.record, None, self.now):
                yield "acknowledge"
        if self.left.deaths:
            yield "die"

    # How it happens

    def after(self, step: str) -> Self:
        world = self._copy()
        name, _, number = step.partition(" ")
        getattr(world, f"_{name}")(*([int(number)] if number else []))
        return world

    def _spend(self, what: str) -> None:
        self.left = replace(self.left, **{what: getattr(self.left, what) - 1})

    def _tick(self) -> None:
        self.now += 1

    def _refresh(self, number: int) -> None:
        self.readers[number].snapshot = self.record

    def _renew(self, number: int) -> None:
        confirmed = ((KB, self.readers[number].snapshot),)
        self._send(f"r{number}", LeaseCall(f"r{number}", LEASE_S, confirmed=confirmed))

    def _send(self, who: str, call: LeaseCall) -> None:
        self.sent.append(Sent(who, call, self.now))

    def _carry(self, place: int) -> None:
        sent = self.sent[place]
        reply = self.table.carry_out(sent.call, float(self.now))
        if sent.given_up:
            del self.sent[place]
        else:
            sent.reply = reply

    def _giveup(self, place: int) -> None:
        """The sender waits no longer; the call may still be carried out."""
        self._spend("lates")
        self.sent[place].given_up = True
        self._refused(self.sent[place])

    def _lose(self, place: int) -> None:
        """The call or its answer is lost, and the sender knows that."""
        sent = self.sent.pop(place)
        self._refused(sent)

    def _refused(self, sent: Sent) -> None:
        if sent.who == "w" and self.writer.step == "begun":
            self.writer.step = "idle"

    def _hear(self, place: int) -> None:
        sent = self.sent.pop(place)
        assert sent.reply is not None
        if sent.who == "w":
            self._writer_hears(sent)
            return
        reader = self.readers[int(sent.who[1:])]
        self._take(reader, sent)

    def _take(self, reader: Reader, sent: Sent) -> None:
        assert sent.reply is not None
        [(_, confirmed)] = sent.call.confirmed
        reader.held.granted(KB, confirmed, sent.reply.grants[0], float(sent.at))

    def _writer_hears(self, sent: Sent) -> None:
        writer = self.writer
        if writer.step == "begun":
            writer.step = "allowed"
            writer.waiting = Acknowledging(float(self.now), LEASE_S)
        elif writer.step == "committed":
            assert sent.reply is not None and writer.waiting is not None
            if writer.waiting.may(self.record, sent.reply.lowest[0], self.now):
                self._acknowledge()

    def _begin(self) -> None:
        self._spend("commits")
        writer = self.writer
        writer.step, writer.change = "begun", str(self.left.commits)
        begun = (Pending(KB, self.record, writer.change),)
        self._send("w", LeaseCall("w", LEASE_S, WRITES, begun=begun))

    def _commit(self) -> None:
        self.record += 1
        self.writer.step = "committed"

    def _publish(self) -> None:
        done = (Pending(KB, self.record, self.writer.change),)
        self._send("w", LeaseCall("w", LEASE_S, WRITES, done=done, asked=(KB,)))

    def _acknowledge(self) -> None:
        self.acknowledged = self.record
        self.writer.step, self.writer.waiting = "idle", None

    def _die(self) -> None:
        """What it sent may still arrive; a new one tells what the record holds."""
        self._spend("deaths")
        self.writer = Writer()
        for sent in self.sent:
            sent.given_up = sent.given_up or sent.who == "w"
        self.sent = [sent for sent in self.sent if sent.reply is None or not sent.given_up]

    def _forget(self) -> None:
        self._spend("losses")
        self.table = self.table_type()

    # Copies and their identity

    def _copy(self) -> Self:
        world = object.__new__(type(self))
        world.__dict__.update(self.__dict__)
        world.table = _copy_table(self.table)
        world.readers = [Reader(each.snapshot, _copy_held(each.held)) for each in self.readers]
        writer = self.writer
        world.writer = Writer(writer.step, writer.change, writer.waiting)
        world.sent = [
            Sent(each.who, each.call, each.at, each.reply, each.given_up) for each in self.sent
        ]
        return world

    def key(self) -> object:
        """Equal for states from which the same can happen."""
        writer, now = self.writer, self.now
        waiting = writer.waiting and max(0.0, _until(writer.waiting.over_at, now))
        return (
            self.left, self.record, self.acknowledged, _table_key(self.table, now),
            tuple((each.snapshot, _held_key(each.held, now)) for each in self.readers),
            (writer.step, writer.change if writer.step != "idle" else "", waiting),
            frozenset(sent.key(now) for sent in self.sent),
        )  # fmt: skip


def _copy_held(held: HeldLeases) -> HeldLeases:
    copy = type(held)()
    copy._held = dict(held._held)
    return copy


def _copy_table(table: LeaseTable) -> LeaseTable:
    copy = type(table)()
    for name, kb in table._kbs.items():
        other = copy._of(name, 0.0)
        other.__dict__.update(kb.__dict__)
        other.rows = dict(kb.rows)
    return copy


def _past(seconds: float) -> float:
    """A length of time after which nothing depends on how long it was."""
    return min(seconds, 2 * LEASE_S)


def _until(then: float, now: int) -> float:
    """A length of time to come, without what rounding made of it at this hour."""
    return max(-1.0, round(then - now, 6))


def _held_key(held: HeldLeases, now: int) -> object:
    until, confirmed = held._held.get(KB, (-1.0, 0))
    return _until(until, now), confirmed


def _table_key(table: LeaseTable, now: int) -> object:
    kb = table._kbs.get(KB)
    if kb is None:
        return None
    rows = frozenset(
        (who, _until(until, now), confirmed) for who, (until, confirmed) in kb.rows.items()
    )
    change_at = _past(now - kb.change_at) if kb.change else 0
    return _past(now - kb.known_since), kb.version, kb.change, change_at, rows


class System(Protocol):
    """What a search goes through."""

    def steps(self) -> Iterator[str]: ...

    def after(self, step: str) -> Self: ...

    def wrong(self) -> str | None: ...

    def key(self) -> object: ...


S = TypeVar("S", bound=System)
_Path: TypeAlias = tuple[str, "_Path | None"]
"""The last step and the way to it: ways share their beginnings."""


def search(start: S, most: int = 10_000_000) -> tuple[int, list[str] | None]:
    """Every state that can be reached: how many, and the fewest steps to a wrong one, if any."""
    seen = {start.key()}
    near: deque[tuple[S, _Path | None]] = deque([(start, None)])
    while near:
        world, path = near.popleft()
        for step in world.steps():
            following = world.after(step)
            key = following.key()
            if key in seen:
                continue
            seen.add(key)
            if wrong := following.wrong():
                return len(seen), [*_steps((step, path)), wrong]
            if len(seen) >= most:
                raise AssertionError(f"more than {most} states")
            near.append((following, (step, path)))
    return len(seen), None


def _steps(path: _Path | None) -> list[str]:
    steps = []
    while path is not None:
        step, path = path
        steps.append(step)
    return steps[::-1]
