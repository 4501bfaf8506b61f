"""Results to draw, made with the real recorder."""

from __future__ import annotations

import random

from forebay.lab.measure.batch import Finished
from forebay.lab.measure.recorder import Recorder, RecorderOptions
from forebay.lab.measure.result import CUT, OK, REFUSED, Generator, Machine, Run, RunResult

INVALID = Generator(valid=False, why_not=("1,203 of 9,000 requests were sent over 10 ms late",))


def result(
    requests: int = 2_000, *, kind: str = "light", generator: Generator | None = None
) -> RunResult:
    """Half a minute at an even rate, one request in twenty heavy, a few refused or cut."""
    chance = random.Random(1)
    recorder = Recorder(RecorderOptions())
    for number in range(requests):
        at_s = number * 30.0 / requests
        heavy = chance.random() < 0.05
        first_s = at_s + chance.lognormvariate(-2.5, 0.4)
        tokens = 400 if heavy else 32
        gap_s = chance.lognormvariate(-4, 0.2)
        recorder.record(
            Finished(
                at_s=at_s,
                kind="heavy" if heavy else kind,
                status=chance.choices((OK, REFUSED, CUT), (96, 3, 1))[0],
                finished_at_s=first_s + gap_s * tokens,
                first_at_s=first_s,
                last_at_s=first_s + gap_s * (tokens - 1),
                tenant=chance.choice(("acme", "bolt")),
                deadline_s=1.0,
                input_tokens=200,
                output_tokens=tokens,
                mean_gap_s=gap_s,
                gap_count=tokens - 1,
                cache="embedding=hit, retrieval=miss",
                rung="vector+bm25",
            )
        )
    run = Run(
        source="bench",
        target="http://127.0.0.1:8500/v1",
        seed=7,
        workload={"rate_per_s": requests / 30.0},
        machine=Machine(cpu="a CPU", cores=2, memory_bytes=8 << 30, system="Linux"),
        commit="0123abc",
    )
    return recorder.result(run, duration_s=30.0, generator=generator or Generator(sends=requests))
