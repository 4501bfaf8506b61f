"""A load test as it runs, on a terminal: redrawn in place, gone when the run ends.

Drawing happens on the caller's thread, since another would compete with the generator for the
interpreter at moments nobody chose; one drawing takes a few milliseconds, twice a second.
"""

from __future__ import annotations

from collections import deque
from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from forebay.lab.bench.options import GeneratorBounds, Snapshot
from forebay.lab.measure.result import OK
from forebay.lab.report.numbers import seconds

_BARS = "▁▂▃▄▅▆▇█"
_HISTORY = 60
_HEALTHY = 0.99


class LiveView:
    """Shows snapshots while it is open; without a terminal it shows nothing."""

    def __init__(self, console: Console | None, bounds: GeneratorBounds | None = None) -> None:
        self._bounds = bounds or GeneratorBounds()
        self._rates: deque[float] = deque(maxlen=_HISTORY)
        self._live = (
            Live(console=console, auto_refresh=False, transient=True)
            if console is not None and console.is_terminal
            else None
        )

    def __enter__(self) -> LiveView:
        if self._live is not None:
            self._live.start()
            # The first drawing imports and measures, some 40 ms: before the load, not in it.
            self(Snapshot(elapsed_s=0.0))
            self._rates.clear()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def __call__(self, snapshot: Snapshot) -> None:
        """Draw the latest figures."""
        if self._live is not None:
            self._rates.append(snapshot.recent_ok_per_s)
            self._live.update(draw(snapshot, self._rates, self._bounds), refresh=True)


def draw(snapshot: Snapshot, rates: deque[float], bounds: GeneratorBounds) -> Group:
    """One picture of the run so far."""
    return Group(_heading(snapshot), Text(_line(rates), style="cyan"), _body(snapshot, bounds))


def _heading(snapshot: Snapshot) -> Text:
    label = f"{snapshot.label}  " if snapshot.label else ""
    return Text.assemble(
        (f"{label}{snapshot.elapsed_s:.0f} s", "bold"),
        f"   sent {snapshot.sent:,}   finished {snapshot.finished:,}"
        f"   good {snapshot.good:,}   in flight {snapshot.in_flight:,}",
    )


def _body(snapshot: Snapshot, bounds: GeneratorBounds) -> Table:
    body = Table(box=None, show_header=False, pad_edge=False)
    for _ in range(4):
        body.add_column(min_width=14)
    share = snapshot.recent_good_share
    body.add_row(
        "sent/s",
        f"{snapshot.recent_sent_per_s:.1f}",
        "TTFT P50, P99",
        f"{seconds(snapshot.recent_ttft_p50_s)}, {seconds(snapshot.recent_ttft_p99_s)}",
    )
    body.add_row(
        "answered/s",
        f"{snapshot.recent_ok_per_s:.1f}",
        "total P50, P99",
        f"{seconds(snapshot.recent_total_p50_s)}, {seconds(snapshot.recent_total_p99_s)}",
    )
    body.add_row(
        "good",
        Text(f"{share:.1%}", style="green" if share >= _HEALTHY else "bold red"),
        "tokens/s",
        f"{snapshot.recent_tokens_per_s:,.0f}",
    )
    late = snapshot.lateness_p99_s > bounds.max_lateness_p99_s
    busy = snapshot.cpu_share > bounds.max_cpu_share
    body.add_row(
        "sent late, P99",
        Text(seconds(snapshot.lateness_p99_s), style="bold red" if late else ""),
        "generator CPU",
        Text(f"{snapshot.cpu_share:.0%}", style="bold red" if busy else ""),
    )
    failed = {name: count for name, count in snapshot.statuses.items() if name != OK and count}
    if failed or snapshot.not_sent:
        told = ", ".join(f"{name} {count:,}" for name, count in failed.items())
        body.add_row("not whole", Text(told or f"not sent {snapshot.not_sent:,}", style="yellow"))
    return body


def _line(rates: deque[float]) -> str:
    top = max(rates, default=0.0)
    if top <= 0:
        return ""
    return "".join(_BARS[int(rate / top * (len(_BARS) - 1))] for rate in rates)
