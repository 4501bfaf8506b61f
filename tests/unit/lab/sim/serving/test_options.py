"""Options are checked when they are made; what is wrong is one sentence."""

from __future__ import annotations

from typing import Any

import pytest

from forebay.kernel.errors import ConfigError
from forebay.lab.sim.serving.options import SimulatedServer
from forebay.lab.sim.serving.server import Simulated


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"replicas": 0}, "replicas must be at least 1, not 0."),
        ({"replicas": 300}, "replicas must be at most 256, not 300."),
        ({"port": 70_000}, "port must be from 0 to 65535, not 70000."),
        ({"port": 65_535, "replicas": 2}, "choose a lower port"),
        ({"replicas": 3, "shared_port": 8502}, "is a replica's own port (8500 to 8502)"),
        ({"speed": 0.0}, "speed must be above 0"),
        ({"speed": float("nan")}, "speed must be above 0"),
        ({"tokens_per_write": 0}, "tokens_per_write must be at least 1"),
        ({"tokens_per_write": 4, "write_every_ms": 20.0}, "give one of them"),
        ({"write_every_ms": float("nan")}, "write_every_ms must be at least 0"),
        ({"output": "long"}, "output must be draw or cap, not long."),
        ({"gpu_memory_utilization": 1.5}, "gpu_memory_utilization must be above 0"),
        ({"model": ""}, "model needs a name"),
    ],
)
def test_nonsense_is_refused(values: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as error:
        SimulatedServer(**values)
    assert said in error.value.message


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"profile": "h100/8b/fp61"}, "fp16"),
        ({"profile": "h1000/8b"}, "h100"),
        ({"max_num_seqs": 4096}, "max_num_batched_tokens"),
        ({"faults": ("stal",)}, "did you mean stall?"),
        ({"faults": ("stall:replica=1",)}, "there is no replica 1 for a fault; there are 1"),
    ],
)
def test_what_only_others_can_judge_is_refused_before_serving(
    values: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError) as error:
        Simulated.of(SimulatedServer(**values))
    assert said in error.value.message


def test_engine_settings_come_from_the_profile_unless_they_are_given() -> None:
    plain = Simulated.of(SimulatedServer(profile="h100/8b")).config
    changed = Simulated.of(SimulatedServer(profile="h100/8b", max_num_seqs=8)).config
    assert (plain.max_num_seqs, changed.max_num_seqs) == (256, 8)
    assert plain.kv_tokens == changed.kv_tokens > 100_000
