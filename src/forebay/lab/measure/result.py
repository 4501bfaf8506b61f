"""The one result schema of bench and of virtual runs: JSON in, JSON out.

Times are seconds; histograms are HdrHistogram V2 texts of microseconds
(``forebay.lab.measure.histogram.decode`` reads them, and so does any HdrHistogram library).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from forebay.kernel.errors import ConfigError
from forebay.lab.measure.reasons import Reason

SCHEMA = 1

OK = "ok"
REFUSED = "refused"
HTTP_ERROR = "http_error"
TIMEOUT = "timeout"
CONNECT_FAILED = "connect_failed"
CUT = "cut"
ERROR_EVENT = "error_event"
MALFORMED = "malformed"
DISCONNECTED = "disconnected"
NOT_SENT = "not_sent"
STATUSES = (
    OK,
    REFUSED,
    HTTP_ERROR,
    TIMEOUT,
    CONNECT_FAILED,
    CUT,
    ERROR_EVENT,
    MALFORMED,
    DISCONNECTED,
    NOT_SENT,
)
"""How a request can end.

``refused``: 429, or 503 with ``retry-after``. ``cut``: the connection ended before the answer
did. ``error_event``: an error inside a stream. ``malformed``: not the
protocol, or not its JSON. ``disconnected``: the client left on purpose.
``not_sent``: the generator could not send it (its own bound).
"""


class Quantiles(msgspec.Struct, frozen=True):
    """One distribution: seconds, at three significant digits; zeros when nothing was counted."""

    count: int = 0
    mean_s: float = 0.0
    p50_s: float = 0.0
    p90_s: float = 0.0
    p99_s: float = 0.0
    p999_s: float = 0.0
    max_s: float = 0.0
    tail_ratio: float = 0.0
    """P99 over P50 (F1.8)."""
    histogram: str = ""
    """HdrHistogram V2, base64, microseconds."""


class Figures(msgspec.Struct, frozen=True):
    """What a set of requests was like.

    *Good* is a request answered whole within its deadline, counted from its intended start.
    ``goodput_share`` is good over all that were meant to be answered: sent or not sent, without
    those that left on purpose. TTFT and total count from the intended start. A time-out counts
    with the time it waited, a lower bound: leaving it out would make overload look fast. ``itl``
    takes every gap between content chunks; ``tpot`` is (last - first chunk) / (tokens - 1) of
    each answer, hence per token also where a chunk carries several. ``refused`` is how long those
    that were refused waited to hear it.
    """

    sent: int = 0
    ok: int = 0
    good: int = 0
    disconnected: int = 0
    not_sent: int = 0
    goodput_share: float = 0.0
    goodput_per_s: float = 0.0
    ok_per_s: float = 0.0
    input_tokens: int = 0
    output_tokens: int = 0
    output_tokens_per_s: float = 0.0
    ttft: Quantiles = Quantiles()
    itl: Quantiles = Quantiles()
    tpot: Quantiles = Quantiles()
    total: Quantiles = Quantiles()
    refused: Quantiles = Quantiles()
    statuses: dict[str, int] = {}


class SliceFigures(msgspec.Struct, frozen=True):
    """One request kind in one slice, by intended start; histograms at two digits."""

    sent: int = 0
    ok: int = 0
    good: int = 0
    statuses: dict[str, int] = {}
    ttft: str = ""
    itl: str = ""
    total: str = ""


class Slice(msgspec.Struct, frozen=True):
    """One slice of the run; ``finished`` and tokens are counted where answers ended."""

    start_s: float
    kinds: dict[str, SliceFigures] = {}
    finished: int = 0
    output_tokens: int = 0


class Timeline(msgspec.Struct, frozen=True):
    """Slices of equal width in time order, empty ones included."""

    width_s: float = 1.0
    slices: tuple[Slice, ...] = ()


class Generator(msgspec.Struct, frozen=True):
    """The load generator's own health: whether it, not the target, was the bottleneck."""

    valid: bool = True
    why_not: tuple[str, ...] = ()
    sends: int = 0
    lateness: Quantiles = Quantiles()
    """Sent minus intended start, of every send (open loop) or ready turn (closed loop)."""
    cpu_share: float = 0.0
    """Process CPU seconds over elapsed seconds: 1.0 is one core."""
    max_in_flight: int = 0
    connections: int = 0
    """Connections opened over the whole run."""
    processes: int = 1
    why: tuple[Reason, ...] = ()
    """``why_not`` for other languages."""


class Machine(msgspec.Struct, frozen=True):
    """Where the run ran."""

    cpu: str = ""
    cores: int = 0
    memory_bytes: int = 0
    system: str = ""
    python: str = ""


class Run(msgspec.Struct, frozen=True):
    """What was run, apart from what came out: given by who runs it."""

    source: str
    """``bench`` or ``simulation``."""
    target: str = ""
    seed: int = 0
    workload: dict[str, Any] = {}
    fingerprint: str = ""
    """Of the workload without its seed: equal means comparable."""
    options: dict[str, Any] = {}
    started_at: str = ""
    """ISO 8601, UTC; empty in virtual time."""
    machine: Machine = Machine()
    commit: str = ""
    versions: dict[str, str] = {}


class RunResult(msgspec.Struct, frozen=True):
    """Everything one run has to say."""

    run: Run
    duration_s: float
    """Length of the schedule that the rates are over (without warm-up)."""
    elapsed_s: float
    """Until the last answer ended."""
    offered_per_s: float
    sent_per_s: float
    total: Figures
    warmup_s: float = 0.0
    """Before the duration: in the timeline, not in the figures."""
    by_kind: dict[str, Figures] = {}
    by_tenant: dict[str, Figures] = {}
    codes: dict[str, int] = {}
    """HTTP statuses of what was not answered whole."""
    messages: dict[str, str] = {}
    """Status -> the first message the target gave with it."""
    cache: dict[str, dict[str, int]] = {}
    """Tier -> result (hit, miss, off, …) -> answers, from ``x-forebay-cache``."""
    rungs: dict[str, int] = {}
    timeline: Timeline = Timeline()
    generator: Generator | None = None
    """None in virtual time, where nothing can be late."""
    engine: dict[str, Any] = {}
    """What a simulated fleet has to say of itself (preemptions, KV use, …)."""
    schema: int = SCHEMA


def encode_result(result: RunResult) -> bytes:
    """JSON of one result, one line."""
    return msgspec.json.encode(result)


def decode_result(data: bytes, name: str = "the result") -> RunResult:
    """A result from JSON; ``ConfigError`` names what ``name`` lacks."""
    try:
        result = msgspec.json.decode(data, type=RunResult)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(
            f"{name} is not a result of bench or simulate run ({error}); "
            "write one with their --out option"
        ) from error
    if result.schema != SCHEMA:
        raise ConfigError(
            f"{name} has schema {result.schema}, this version reads {SCHEMA}; run it again"
        )
    return result


def load_result(path: Path) -> RunResult:
    """A result from a file; ``ConfigError`` when it cannot be read."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}; name a result file") from error
    return decode_result(data, str(path))
