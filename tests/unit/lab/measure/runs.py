"""Results of made-up runs of a server whose load has a memory."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from forebay.lab.measure.batch import Finished
from forebay.lab.measure.recorder import Recorder, RecorderOptions
from forebay.lab.measure.result import OK, TIMEOUT, Run, RunResult

BASE_S = {"light": 0.2, "heavy": 1.0}


class MadeUp(msgspec.Struct, frozen=True):
    """A load, and how its server fares."""

    scale: float = 1.0
    rate: float = 40.0
    duration_s: float = 40.0
    memory: float = 0.8
    noise: float = 0.03
    failing: float = 0.0
    fingerprint: str = "same"


def made_up_run(seed: int, **changes: Any) -> RunResult:
    """Poisson arrivals; times are log-normal around a level that drifts (autoregressive)."""
    made_up = MadeUp(**changes)
    rate, duration_s = made_up.rate, made_up.duration_s
    rng = np.random.default_rng(seed)
    count = rng.poisson(rate * duration_s)
    starts = np.sort(rng.uniform(0, duration_s, count))
    level = np.zeros(int(duration_s * 2) + 1)
    for step in range(1, len(level)):
        level[step] = made_up.memory * level[step - 1] + rng.normal(0, made_up.noise)
    recorder = Recorder(RecorderOptions())
    for at_s in starts.tolist():
        kind = "heavy" if rng.random() < 0.2 else "light"
        drift = level[int(at_s * 2)] + rng.normal(0, 0.3)
        total_s = made_up.scale * BASE_S[kind] * float(np.exp(drift))
        recorder.record(
            Finished(
                at_s=at_s,
                kind=kind,
                status=TIMEOUT if rng.random() < made_up.failing else OK,
                finished_at_s=at_s + total_s,
                first_at_s=at_s + total_s * 0.3,
                deadline_s=5.0,
                output_tokens=20,
            )
        )
    return recorder.result(
        Run(
            source="bench",
            fingerprint=made_up.fingerprint,
            workload={"rate": rate, "kinds": [{"a": 1}]},
        ),
        duration_s=duration_s,
    )
