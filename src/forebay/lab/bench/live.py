"""What a live view shows: counts so far, and rates and percentiles of the last seconds."""

from __future__ import annotations

from array import array
from collections import Counter, deque

import numpy as np

from forebay.lab.bench.options import Snapshot
from forebay.lab.measure.batch import Finished
from forebay.lab.measure.result import DISCONNECTED, NOT_SENT, OK, TIMEOUT

_BUCKETS = 10
_SAMPLES = 4_096
"""Times kept of each bucket; more would not change what a person sees."""


class _Bucket:
    __slots__ = ("good", "meant", "ok", "seconds", "sent", "tokens", "total", "ttft")

    def __init__(self) -> None:
        self.sent = self.ok = self.good = self.meant = self.tokens = 0
        self.seconds = 0.0
        self.ttft = array("d")
        self.total = array("d")


class Live:
    """Counts ends; ``snapshot`` closes a bucket of time and looks over the last ones."""

    def __init__(self) -> None:
        self._statuses: Counter[str] = Counter()
        self._good = 0
        self._sent = 0
        self._now = _Bucket()
        self._buckets: deque[_Bucket] = deque(maxlen=_BUCKETS)
        self._closed_at_s = 0.0

    def sent(self) -> None:
        """One request was sent."""
        self._sent += 1
        self._now.sent += 1

    def finished(self, finished: Finished) -> None:
        """One request ended."""
        status, bucket = finished.status, self._now
        self._statuses[status] += 1
        bucket.tokens += finished.output_tokens
        if status == DISCONNECTED:
            return
        bucket.meant += 1
        total_s = finished.finished_at_s - finished.at_s
        if status == OK:
            bucket.ok += 1
            if finished.deadline_s is None or total_s <= finished.deadline_s:
                bucket.good += 1
                self._good += 1
        if status in (OK, TIMEOUT) and len(bucket.total) < _SAMPLES:
            bucket.total.append(total_s)
            first = finished.first_at_s
            bucket.ttft.append(total_s if first is None else first - finished.at_s)

    def snapshot(
        self, elapsed_s: float, in_flight: int, *, lateness_p99_s: float, cpu_share: float
    ) -> Snapshot:
        """The run so far; call it at a steady pace."""
        self._now.seconds = elapsed_s - self._closed_at_s
        self._closed_at_s = elapsed_s
        self._buckets.append(self._now)
        self._now = _Bucket()
        recent = self._buckets
        seconds = sum(bucket.seconds for bucket in recent) or 1.0
        meant = sum(bucket.meant for bucket in recent)
        ttft_p50, ttft_p99 = _percentiles([bucket.ttft for bucket in recent])
        total_p50, total_p99 = _percentiles([bucket.total for bucket in recent])
        return Snapshot(
            elapsed_s=elapsed_s,
            sent=self._sent,
            finished=sum(self._statuses.values()) - self._statuses[NOT_SENT],
            ok=self._statuses[OK],
            good=self._good,
            in_flight=in_flight,
            not_sent=self._statuses[NOT_SENT],
            statuses=dict(self._statuses),
            recent_sent_per_s=sum(bucket.sent for bucket in recent) / seconds,
            recent_ok_per_s=sum(bucket.ok for bucket in recent) / seconds,
            recent_good_share=sum(b.good for b in recent) / meant if meant else 0.0,
            recent_tokens_per_s=sum(bucket.tokens for bucket in recent) / seconds,
            recent_ttft_p50_s=ttft_p50,
            recent_ttft_p99_s=ttft_p99,
            recent_total_p50_s=total_p50,
            recent_total_p99_s=total_p99,
            lateness_p99_s=lateness_p99_s,
            cpu_share=cpu_share,
        )


def _percentiles(parts: list[array[float]]) -> tuple[float, float]:
    times = np.concatenate([np.frombuffer(part) for part in parts])
    if not len(times):
        return 0.0, 0.0
    p50, p99 = np.percentile(times, (50, 99))
    return float(p50), float(p99)
