"""The simulated fleet that a command is told of: replicas in one pool or in several."""

from __future__ import annotations

from typing import Any

import msgspec

from forebay.app.words import Words, settings_of
from forebay.kernel.errors import ConfigError
from forebay.lab.sim.fleet import PoolConfig
from forebay.lab.sim.profiles import find_profile
from forebay.lab.sim.steps import StepModel


class EngineChanges(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of an engine that may be given; None: the profile's, or vLLM's default."""

    gpu_memory_utilization: float | None = None
    kv_tokens: int | None = None
    block_tokens: int | None = None
    watermark: float | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    max_model_len: int | None = None
    prefix_caching: bool | None = None
    scheduling: str | None = None


class PoolChanges(EngineChanges, frozen=True, kw_only=True):
    """What one ``--pool`` may say."""

    profile: str | None = None
    replicas: int = 1
    max_input_tokens: int | None = None
    max_output_tokens: int | None = None
    max_waiting: int | None = None


class FleetWords(Words, frozen=True, kw_only=True):
    """What the command line says of the simulated fleet."""

    profile: str
    replicas: int = 1
    pool: list[str] | None = None
    settings: list[str] | None = None


class BuiltPool(msgspec.Struct, frozen=True):
    """A pool with the step times of its engines."""

    config: PoolConfig
    steps: StepModel
    profile: str


def build_pools(words: FleetWords) -> list[BuiltPool]:
    """The pools, in the order in which requests are offered to them.

    ``ConfigError`` for unknown profiles and settings, and for pools without names of their own.
    """
    common = settings_of(EngineChanges, {}, words.settings, "--set")
    if not words.pool:
        changes = PoolChanges(replicas=words.replicas)
        return [_built("default", words.profile, changes, common)]
    if words.replicas != 1:
        raise ConfigError(
            "--replicas and --pool exclude each other: a pool says replicas=N itself."
        )
    built: list[BuiltPool] = []
    for text in words.pool:
        name, _, rest = text.partition(":")
        if not name or "=" in name or any(name == other.config.name for other in built):
            raise ConfigError(
                f"--pool takes name:key=value,key=value, each name once, not {text!r}."
            )
        pairs = [pair for pair in rest.split(",") if pair.strip()]
        changes = settings_of(PoolChanges, {}, pairs, "--pool")
        built.append(_built(name, changes.profile or words.profile, changes, common))
    return built


def _built(name: str, profile_name: str, own: PoolChanges, common: EngineChanges) -> BuiltPool:
    profile = find_profile(profile_name)
    engine: dict[str, Any] = {}
    for field in EngineChanges.__struct_fields__:
        value = getattr(own, field)
        value = getattr(common, field) if value is None else value
        if value is not None:
            engine[field] = value
    config = PoolConfig(
        engine=profile.engine_config(**engine),
        name=name,
        replicas=own.replicas,
        max_input_tokens=own.max_input_tokens,
        max_output_tokens=own.max_output_tokens,
        max_waiting=own.max_waiting,
    )
    return BuiltPool(config, profile.step_model(), profile.name)
