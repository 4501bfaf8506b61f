"""What is asked, and the same requests as the engines see them, for the virtual clock."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import msgspec

from forebay.app.proof_traffic import QUESTIONS
from forebay.lab.workload.arrivals import PoissonArrivals, PulseArrivals, Step, StepArrivals
from forebay.lab.workload.distributions import LogNormal
from forebay.lab.workload.kinds import Kind
from forebay.lab.workload.plan import Workload, WorkloadSpec
from forebay.lab.workload.presets import preset_kinds
from forebay.lab.workload.queries import QueriesSpec
from forebay.lab.workload.request import PlannedRequest
from forebay.lab.workload.tokens import count_tokens

BLOCK_TOKENS = 16
Arrivals = PoissonArrivals | PulseArrivals | StepArrivals
_ASKED = QueriesSpec(file=QUESTIONS, zipf=0.0)


def light() -> tuple[Kind, ...]:
    """Short questions alone, about 32 tokens of answer, within 2 s."""
    return tuple(_about(kind) for kind in preset_kinds("light"))


def mixed() -> tuple[Kind, ...]:
    """The laboratory's exam: 80 % light, 18 % summaries, 2 % heavy (8,000 in, 2,000 out).

    Light answers are all of one length, so that a ratio of their latencies speaks of waiting and
    crowding and not of lengths.
    """
    first, *others = (_about(kind) for kind in preset_kinds("mixed"))
    return (msgspec.structs.replace(first, output_tokens=32), *others)


def _about(kind: Kind) -> Kind:
    """The kind with questions that the documents answer; the shortest is as long as those are."""
    asked = kind.input_tokens
    if isinstance(asked, LogNormal):
        asked = msgspec.structs.replace(asked, min=max(20, asked.min))
    return msgspec.structs.replace(kind, queries=_ASKED, input_tokens=asked)


def load(folder: Path, arrivals: Arrivals, kinds: tuple[Kind, ...]) -> Workload:
    """Kinds at times; ``folder`` has the file of questions."""
    return Workload(WorkloadSpec(arrivals=arrivals, kinds=kinds), folder)


def steps(*parts: tuple[float, float]) -> StepArrivals:
    """Stretches of rate and seconds, one after the other."""
    return StepArrivals(steps=tuple(Step(rate=rate, duration_s=length) for rate, length in parts))


class Built(Workload):
    """The same requests with prompts as long as the gateway builds them.

    ``added_tokens`` are rules and passages, as measured; of them the rules come from the engine's
    prefix cache.
    """

    def __init__(self, asked: Workload, added_tokens: int) -> None:
        super().__init__(asked.spec, asked.folder)
        self._asked = asked
        self._added_tokens = added_tokens
        self._cached = tuple(range(_rules_tokens() // BLOCK_TOKENS))

    def requests(self, seed: int) -> Iterator[PlannedRequest]:
        """See ``Workload.requests``."""
        for planned in self._asked.requests(seed):
            yield msgspec.structs.replace(
                planned,
                input_tokens=planned.input_tokens + self._added_tokens,
                prefix=self._cached,
                prefix_block_tokens=BLOCK_TOKENS,
            )


def _rules_tokens() -> int:
    """The beginning that every prompt shares."""
    template = resources.files("forebay.context") / "templates" / "en" / "system.j2"
    return count_tokens(template.read_text(encoding="utf-8").split("{{ fence }}")[0])


class Limited(Workload):
    """What a limiter of requests a second lets through, whatever they ask: a token bucket."""

    def __init__(self, inner: Workload, rate_per_s: float, burst: float = 10.0) -> None:
        super().__init__(inner.spec, inner.folder)
        self._inner = inner
        self._rate_per_s = rate_per_s
        self._burst = burst

    def requests(self, seed: int) -> Iterator[PlannedRequest]:
        """See ``Workload.requests``."""
        level, at_s = self._burst, 0.0
        for planned in self._inner.requests(seed):
            level = min(self._burst, level + (planned.at_s - at_s) * self._rate_per_s)
            at_s = planned.at_s
            if level >= 1.0:
                level -= 1.0
                yield planned
