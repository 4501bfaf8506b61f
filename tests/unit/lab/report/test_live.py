"""The live view: figures on a terminal, nothing in a pipe."""

from __future__ import annotations

import io

from rich.console import Console

from forebay.lab.bench.options import Snapshot
from forebay.lab.report.live import LiveView

SNAPSHOT = Snapshot(
    elapsed_s=12.0,
    sent=2_400,
    finished=2_390,
    good=2_300,
    in_flight=10,
    statuses={"ok": 2_350, "refused": 40},
    recent_sent_per_s=200.0,
    recent_ok_per_s=199.0,
    recent_good_share=0.95,
    recent_ttft_p99_s=0.21,
    lateness_p99_s=0.05,
    label="200/s",
)


def console_of(stream: io.StringIO, *, terminal: bool = True) -> Console:
    """One that draws whatever terminal the tests run in: a dumb one shows no live view."""
    return Console(
        file=stream, force_terminal=terminal, width=100, _environ={"TERM": "xterm-256color"}
    )


def shown(*, terminal: bool) -> str:
    stream = io.StringIO()
    console = console_of(stream, terminal=terminal)
    with LiveView(console) as view:
        view(SNAPSHOT)
        view(SNAPSHOT)
    return stream.getvalue()


def test_a_terminal_sees_the_figures() -> None:
    text = shown(terminal=True)
    for told in ("200/s", "12 s", "in flight 10", "95.0%", "210 ms", "refused 40", "██"):
        assert told in text


def test_a_generator_out_of_bounds_is_loud() -> None:
    assert "\x1b[1;31m50 ms" in shown(terminal=True)


def test_a_pipe_sees_nothing() -> None:
    assert shown(terminal=False) == ""


def test_a_run_that_has_answered_nothing_is_drawn() -> None:
    stream = io.StringIO()
    with LiveView(console_of(stream)) as view:
        view(Snapshot(elapsed_s=0.0))
    assert "sent 0" in stream.getvalue()
