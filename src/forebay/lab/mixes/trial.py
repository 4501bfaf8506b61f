"""One mix tried: what no gate decides once, and then the gate's own run."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np

from forebay.lab.mixes.clairvoyant import Clairvoyant
from forebay.lab.mixes.judge import Offered, Reference, Verdict, fits, judge, sizes
from forebay.lab.mixes.mix import Mix
from forebay.lab.mixes.outcome import Flags, Outcome, drive
from forebay.lab.sim.admitted import admitted
from forebay.lab.sim.fleet import Fleet, Pool, Router
from forebay.lab.sim.routers import find_router
from forebay.lab.workload.request import PlannedRequest

STRAIGHT_ON = "least-outstanding"


class Trial:
    """A mix with its requests, drawn once."""

    def __init__(self, mix: Mix) -> None:
        self.mix = mix
        self.work = mix.work
        self.requests: list[PlannedRequest] = mix.requests()
        names = tuple(kind.name for kind in mix.workload.kinds)
        places = {name: place for place, name in enumerate(names)}
        self.offered = Offered(
            np.array([one.at_s for one in self.requests]),
            np.array([places[one.kind] for one in self.requests], np.int64),
            np.array([mix.work.work_s(o.input_tokens, o.output_tokens) for o in self.requests]),
            names,
        )

    def reference(self) -> tuple[Reference, str]:
        """What other schedules achieve, and the name of the clairvoyant's."""
        offered = self.offered
        straight = self.run(find_router(STRAIGHT_ON)).good
        protected: tuple[int, ...] = ()
        alone = np.zeros(len(self.requests), np.bool_)
        every = sizes(offered)
        for kinds in every:
            good = straight if kinds == every[-1] else self._alone(kinds)
            if not fits(offered, kinds, good):
                break
            protected, alone = kinds, good
        best = Clairvoyant(self, protected, alone).search(straight)
        return Reference(protected, alone, straight, best.good), best.name

    def verdict(self, reference: Reference, router: Callable[[Fleet], Router]) -> Verdict:
        """Run a router and judge it."""
        outcome = self.run(router)
        reasons = {f"{kind}: {why}": n for (kind, why), n in sorted(outcome.reasons.items())}
        return judge(self.offered, reference, outcome.good, reasons)

    def run(self, router: Callable[[Fleet], Router]) -> Outcome:
        """All requests through a router."""
        return drive(self.pools(), self.requests, len(self.requests), router)

    def pools(self) -> list[Pool]:
        """Fresh engines."""
        return self.mix.pools()

    def _alone(self, kinds: tuple[int, ...]) -> Flags:
        chosen = np.isin(self.offered.kind, kinds)
        few = [one for one in self.requests if chosen[one.index]]
        router = find_router(STRAIGHT_ON)
        return drive(self.pools(), few, len(self.requests), router).good


class Stored(msgspec.Struct, frozen=True):
    """A reference on disk: flags as packed bits."""

    fingerprint: str
    count: int
    protected: tuple[int, ...]
    alone: bytes
    straight: bytes
    clairvoyant: bytes
    name: str


def pack(reference: Reference, name: str, fingerprint: str) -> bytes:
    """A reference for a file."""
    flags = [np.packbits(f).tobytes() for f in (
        reference.alone, reference.straight, reference.clairvoyant
    )]  # fmt: skip
    count = len(reference.alone)
    return msgspec.msgpack.encode(
        Stored(fingerprint, count, reference.protected, flags[0], flags[1], flags[2], name)
    )


def unpack(data: bytes, fingerprint: str) -> tuple[Reference, str] | None:
    """A reference from a file; None when it is another mix's."""
    stored = msgspec.msgpack.decode(data, type=Stored)
    if stored.fingerprint != fingerprint:
        return None
    flags = [
        np.unpackbits(np.frombuffer(bits, np.uint8), count=stored.count).astype(np.bool_)
        for bits in (stored.alone, stored.straight, stored.clairvoyant)
    ]
    return Reference(stored.protected, flags[0], flags[1], flags[2]), stored.name


def production() -> Callable[[Fleet], Router]:
    """The server's admission with its defaults."""
    return admitted()
