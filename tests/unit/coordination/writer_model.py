"""Two store folders under one shared kb as a system whose every step a search can choose.

Processes claim, announce, commit and tell; they stand still, die and begin anew at any point. What
was acknowledged must be one history, whoever did it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Self

from forebay.coordination.leases import LeaseTable
from forebay.kernel.leases import FOREIGN, Claim, LeaseCall, Pending, Seat
from tests.unit.coordination.lease_model import KB, LEASE_S

NOTHING_HEARD = Seat(FOREIGN)
KNOWN = (Pending(KB, 1, "", "m1"),)


@dataclass(frozen=True)
class Folder:
    """A store and the process on it; ``history`` has the mark of version i + 1 at i."""

    name: str
    history: tuple[str, ...]
    seat: Seat = NOTHING_HEARD
    step: str = "idle"
    lives: int = 0

    @property
    def holder(self) -> str:
        """The name of the process, another after each death."""
        return f"{self.name}{self.lives}"

    def mark(self, version: int) -> str:
        """See ``StoreReader.mark``."""
        return self.history[version - 1] if 0 < version <= len(self.history) else ""

    def pending(self) -> tuple[Pending, ...]:
        """What the store is at."""
        return (Pending(KB, len(self.history), self.holder, self.mark(len(self.history))),)


class Writers:
    """One state of the first folder, whose history is in force, and a ``second``."""

    table_type: type[LeaseTable] = LeaseTable

    def __init__(self, second: tuple[str, ...], commits: int = 3, deaths: int = 1) -> None:
        self.table = self.table_type()
        self.table.carry_out(
            LeaseCall("before", LEASE_S, (Claim(KB, "s", held=True),), done=KNOWN), -10.0
        )
        self.now = 0
        self.left = {"commits": commits, "deaths": deaths}
        self.folders = (Folder("a", ("m1",)), Folder("b", second))
        self.acknowledged: tuple[str, ...] = ("m1",)
        self.forked = ""

    def wrong(self) -> str | None:
        """Two histories were acknowledged."""
        return self.forked or None

    def steps(self) -> Iterator[str]:
        yield "tick"
        for number, folder in enumerate(self.folders):
            if folder.step == "idle" and self.left["commits"]:
                yield f"begin {number}"
            if folder.step == "begun":
                yield f"commit {number}"
            if folder.step == "committed":
                yield f"done {number}"
            yield f"renew {number}"
            if self.left["deaths"]:
                yield f"die {number}"

    def after(self, step: str) -> Self:
        world = object.__new__(type(self))
        world.__dict__.update(self.__dict__)
        world.left = dict(self.left)
        world.table = self._copy()
        name, _, number = step.partition(" ")
        if name == "tick":
            world.now += 1
            return world
        folders = list(world.folders)
        folders[int(number)] = getattr(world, f"_{name}")(folders[int(number)])
        world.folders = (folders[0], folders[1])
        return world

    def _ask(self, folder: Folder, **what: tuple[Pending, ...]) -> Folder:
        """As a process does: a claim by what it last heard, with what it wants to say."""
        held = not folder.seat.refusal
        version = -1 if held else folder.seat.version
        claim = Claim(KB, "s", version, folder.mark(version), held)
        call = LeaseCall(folder.holder, LEASE_S, (claim,), **what)  # type: ignore[arg-type]
        return replace(folder, seat=self.table.carry_out(call, float(self.now)).seats[0])

    def _renew(self, folder: Folder) -> Folder:
        asked = self._ask(folder)
        if asked.seat.refusal or asked.step != "idle":
            return asked
        return self._ask(asked, done=asked.pending())

    def _begin(self, folder: Folder) -> Folder:
        asked = self._ask(folder, begun=folder.pending())
        if asked.seat.refusal:
            return asked
        self.left["commits"] -= 1
        return replace(asked, step="begun")

    def _commit(self, folder: Folder) -> Folder:
        mark = f"{folder.name}{len(folder.history) + 1}"
        return replace(folder, history=(*folder.history, mark), step="committed")

    def _done(self, folder: Folder) -> Folder:
        asked = self._ask(folder, done=folder.pending())
        if not asked.seat.refusal:
            if asked.history[: len(self.acknowledged)] != self.acknowledged:
                self.forked = f"{asked.history} after {self.acknowledged}"
            self.acknowledged = asked.history
        return replace(asked, step="idle")

    def _die(self, folder: Folder) -> Folder:
        self.left["deaths"] -= 1
        return replace(folder, seat=NOTHING_HEARD, step="idle", lives=folder.lives + 1)

    def _copy(self) -> LeaseTable:
        copy = type(self.table)()
        for name, kb in self.table._kbs.items():
            copy._of(name, 0.0).__dict__.update(kb.__dict__)
        return copy

    def key(self) -> object:
        """Equal for states from which the same can happen."""
        kb = self.table._kbs[KB]
        until = max(-1.0, kb.writer_until - self.now)
        return (
            *self.left.values(), self.folders, self.acknowledged, self.forked,
            kb.writer, until, kb.version, kb.mark,
        )  # fmt: skip
