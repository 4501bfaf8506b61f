"""The engine double of ``run.py``: a step takes 8 ms and 40 us a sequence, as a process.

Run: python benchmarks/mixes/engine.py [--scale 0.25] [--port 0]. It prints its address as JSON and
ends with its standard input. ``--scale`` makes a smaller engine of the same latencies: so many
times the sequences at the same length of a step, so many times the prefill and the KV cache.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading

import msgspec
import uvloop

from forebay.lab.sim.config import EngineConfig
from forebay.lab.sim.serving.options import SimulatedServer
from forebay.lab.sim.serving.server import Addresses, Simulated, SimulationServer

STEP_S, SEQUENCE_S = 0.008, 40e-6
PREFILL_PER_S = 1_200_000
KV_TOKENS = 600_000
MAX_SEQUENCES = 256
"""vLLM's default, as are the tokens of a step."""
MAX_MODEL_LEN = 16_384 + 1_024
TOKENS_PER_WRITE = 4


class Double:
    """A ``StepModel`` of three numbers; what is attended to costs nothing."""

    def __init__(self, scale: float) -> None:
        self._sequence_s = SEQUENCE_S / scale
        self._prefill_per_s = PREFILL_PER_S * scale

    def step_seconds(
        self,
        decode_sequences: int,
        context_tokens: int,
        prefill_tokens: int,
        prefill_context_tokens: int,
    ) -> float:
        """One step's length."""
        return self._step_s(decode_sequences) + prefill_tokens / self._prefill_per_s

    def run_seconds(self, sequences: int, context_tokens: int, steps: int) -> float:
        """So many steps without prefill."""
        return steps * self._step_s(sequences)

    def steps_within(self, sequences: int, context_tokens: int, seconds: float) -> int:
        """Whole steps without prefill that end in time."""
        return max(0, int(seconds / self._step_s(sequences)))

    def _step_s(self, sequences: int) -> float:
        return STEP_S + self._sequence_s * sequences


def engine_config(scale: float) -> EngineConfig:
    """Prefixes are not kept: texts are asked more than once here, which users do not."""
    return EngineConfig(
        kv_tokens=int(KV_TOKENS * scale),
        max_num_seqs=max(1, round(MAX_SEQUENCES * scale)),
        max_model_len=MAX_MODEL_LEN,
        prefix_caching=False,
    )


def _end_with_parent() -> None:
    while os.read(sys.stdin.fileno(), 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def _told(addresses: Addresses) -> None:
    print(msgspec.json.encode(addresses).decode(), flush=True)


def main() -> int:
    """Serve until the parent is gone."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--port", type=int, default=0)
    asked = parser.parse_args()
    options = SimulatedServer(port=asked.port, output="cap", tokens_per_write=TOKENS_PER_WRITE)
    simulated = Simulated(options, engine_config(asked.scale), Double(asked.scale), (), "double")
    threading.Thread(target=_end_with_parent, daemon=True).start()
    return uvloop.run(SimulationServer(simulated).serve(_told))


if __name__ == "__main__":
    sys.exit(main())
