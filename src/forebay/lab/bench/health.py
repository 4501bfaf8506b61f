"""The generator looks at itself: how late it sent, how much of its core it used."""

from __future__ import annotations

import resource
from array import array

import numpy as np

from forebay.kernel.clock import Clock
from forebay.lab.bench.options import GeneratorBounds
from forebay.lab.measure.histogram import SparseCounts, layout, quantile, summarise
from forebay.lab.measure.reasons import Reason
from forebay.lab.measure.result import Generator, Quantiles

_BATCH = 4_096
_LEAST_ELAPSED_S = 1.0
"""Below this the start of the run, which no schedule waits for, is too much of the CPU's share."""
_WAITING_SHARE = 0.01
"""More requests than this that wait for the generator's own bound reach into the P99."""


class Health:
    """Counts sends and their lateness; judges the generator at the end."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._late = array("d")
        self._cells = SparseCounts()
        self._grid = layout(3)
        self._sum = self._max = 0.0
        self.sends = 0
        self.not_sent = 0
        self.max_in_flight = 0
        self._started_at = clock.now()
        self._cpu_at_start = _cpu_s()
        self._elapsed_s = self._final_share = 0.0
        self._connections = self._waited = 0

    def start(self) -> None:
        """The load begins now: what came before is not the generator's."""
        self._started_at = self._clock.now()
        self._cpu_at_start = _cpu_s()

    def sent(self, late_s: float, in_flight: int) -> None:
        """One request was handed to a connection, or to the wait for one."""
        self.sends += 1
        self._late.append(late_s)
        if in_flight > self.max_in_flight:
            self.max_in_flight = in_flight
        if len(self._late) >= _BATCH:
            self._flush()

    def lateness(self) -> Quantiles:
        """Sent minus intended start."""
        self._flush()
        index, counts = self._cells.items()
        return summarise(index, counts, total_s=self._sum, max_s=self._max)

    def lateness_p99_s(self) -> float:
        """For a live view: cheaper than all of ``lateness``."""
        self._flush()
        index, counts = self._cells.items()
        return quantile(self._grid.highest[index] / 1e6, counts, 0.99)

    def cpu_share(self) -> float:
        """CPU seconds of this process over elapsed seconds."""
        elapsed = self._clock.now() - self._started_at
        return (_cpu_s() - self._cpu_at_start) / elapsed if elapsed > 0 else 0.0

    def finish(self, connections: int, waited: int) -> None:
        """The load is over: so many connections were opened, so many requests waited for one."""
        self._waited = waited
        self._elapsed_s = self._clock.now() - self._started_at
        self._final_share = self.cpu_share()
        self._connections = connections

    def absorb(self, other: Health) -> None:
        """Add another process's health, which has finished; the busiest core counts."""
        self._flush()
        other._flush()
        self._cells.add(*other._cells.items())
        self._sum += other._sum
        self._max = max(self._max, other._max)
        self.sends += other.sends
        self.not_sent += other.not_sent
        self.max_in_flight += other.max_in_flight
        self._connections += other._connections
        self._waited += other._waited
        self._elapsed_s = max(self._elapsed_s, other._elapsed_s)
        self._final_share = max(self._final_share, other._final_share)

    def verdict(self, bounds: GeneratorBounds) -> Generator:
        """The generator's health over the whole run, which has finished."""
        lateness, cpu_share = self.lateness(), self._final_share
        measured = self._elapsed_s >= _LEAST_ELAPSED_S
        why = []
        if measured and cpu_share > bounds.max_cpu_share:
            told = {"used": f"{cpu_share:.0%}", "most": f"{bounds.max_cpu_share:.0%}"}
            why.append(Reason("generator_busy", told))
        if lateness.p99_s > bounds.max_lateness_p99_s:
            late_ms, most_ms = lateness.p99_s * 1000, bounds.max_lateness_p99_s * 1000
            told = {"late": f"{late_ms:.1f}", "most": f"{most_ms:.1f}"}
            why.append(Reason("generator_late", told))
        if self.not_sent and not bounds.accept_not_sent:
            told = {"count": str(self.not_sent), "most": str(bounds.max_in_flight)}
            why.append(Reason("generator_full", told))
        if self._waited > self.sends * _WAITING_SHARE:
            told = {"count": str(self._waited), "most": str(bounds.max_connections)}
            why.append(Reason("generator_waited", told))
        return Generator(
            valid=not why,
            why_not=tuple(map(str, why)),
            why=tuple(why),
            sends=self.sends,
            lateness=lateness,
            cpu_share=cpu_share,
            max_in_flight=self.max_in_flight,
            connections=self._connections,
            processes=bounds.processes,
        )

    def _flush(self) -> None:
        if not self._late:
            return
        late = np.maximum(np.frombuffer(self._late), 0.0)
        self._late = array("d")
        self._sum += float(late.sum())
        self._max = max(self._max, float(late.max()))
        self._cells.add(self._grid.index(late))


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
