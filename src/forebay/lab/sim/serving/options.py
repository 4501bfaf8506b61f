"""What ``forebay simulate serve`` is told: ports, engine, lengths of answers, faults."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from forebay.kernel.errors import ConfigError

OUTPUTS = ("draw", "cap")
TEXTS = ("invented", "quoted")
_MAX_PORT = 65_535
_MAX_REPLICAS = 256


class SimulatedServer(msgspec.Struct, frozen=True, kw_only=True):
    """One process that serves simulated replicas over HTTP, each on its own port."""

    host: str = "127.0.0.1"
    port: int = 8500
    """Port of the first replica; the others take the next ones. 0: any free ports."""
    replicas: int = 1
    shared_port: int | None = None
    """A further port that spreads requests over all replicas by what each has under way."""
    model: str = "sim"
    """Name of the model in ``/v1/models`` and in requests; others are 404."""

    profile: str = "h100/8b/fp16/tp1"
    """Hardware, model, precision and tensor parallelism, or the path of a fitted profile."""
    gpu_memory_utilization: float = 0.9
    kv_tokens: int | None = None
    """Tokens that the KV cache holds; None here and below: what the profile says."""
    block_tokens: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    max_model_len: int | None = None
    prefix_caching: bool | None = None
    scheduling: Literal["fifo", "priority"] | None = None
    speed: float = 1.0
    """How many of the engine's seconds pass in one real second."""

    output: Literal["draw", "cap"] = "draw"
    """Lengths of answers: drawn per prompt below the request's cap, or always the cap."""
    output_median_tokens: int = 200
    output_sigma: float = 0.7
    """Log-normal spread of drawn lengths; 0: always the median."""
    text: Literal["invented", "quoted"] = "invented"
    """What answers say: words of no meaning, or sentences of the prompt's first passage, as a model
    that keeps to its documents would."""
    honour_stop: bool = True
    """End an answer before the first of the request's ``stop`` texts."""
    seed: int = 1

    tokens_per_write: int = 1
    """Tokens of one event of a stream; the first token always leaves at once."""
    write_every_ms: float = 0.0
    """Least time between two writes of a stream, instead of ``tokens_per_write``. 0: off."""

    faults: tuple[str, ...] = ()
    """Faults in force from the start, each ``kind`` or ``kind:name=value,name=value``."""
    max_waiting: int = 10_000
    """Requests that may wait in one engine; more are 503."""
    max_connections: int = 16_384
    max_body_bytes: int = 4 * 1024 * 1024
    drain_s: float = 10.0
    """How long answers may take to end after the first SIGTERM or SIGINT."""

    def __post_init__(self) -> None:
        self._check_ports()
        for name in ("replicas", "output_median_tokens", "tokens_per_write", "max_waiting"):
            _at_least(name, getattr(self, name), 1)
        for name in ("max_connections", "max_body_bytes"):
            _at_least(name, getattr(self, name), 1)
        for name in ("output_sigma", "write_every_ms", "drain_s"):
            _at_least(name, getattr(self, name), 0)
        if not 0 < self.speed <= 1000:
            raise ConfigError(f"speed must be above 0 and at most 1000, not {self.speed:g}.")
        if not 0 < self.gpu_memory_utilization <= 1:
            raise ConfigError(
                "gpu_memory_utilization must be above 0 and at most 1, not "
                f"{self.gpu_memory_utilization:g}."
            )
        if self.write_every_ms and self.tokens_per_write != 1:
            raise ConfigError(
                "tokens_per_write and write_every_ms are two ways of coalescing: give one of them."
            )
        if self.output not in OUTPUTS:
            raise ConfigError(f"output must be draw or cap, not {self.output}.")
        if self.text not in TEXTS:
            raise ConfigError(f"text must be invented or quoted, not {self.text}.")
        if not self.model:
            raise ConfigError("model needs a name, for example sim.")

    def engine_changes(self) -> dict[str, Any]:
        """What differs from the profile's own engine settings."""
        names = (
            "kv_tokens",
            "block_tokens",
            "max_num_seqs",
            "max_num_batched_tokens",
            "max_model_len",
            "prefix_caching",
            "scheduling",
        )
        changes = {name: getattr(self, name) for name in names}
        changes["gpu_memory_utilization"] = self.gpu_memory_utilization
        return {name: value for name, value in changes.items() if value is not None}

    def _check_ports(self) -> None:
        if self.replicas > _MAX_REPLICAS:
            raise ConfigError(f"replicas must be at most {_MAX_REPLICAS}, not {self.replicas}.")
        for name in ("port", "shared_port"):
            value = getattr(self, name)
            if value is not None and not 0 <= value <= _MAX_PORT:
                raise ConfigError(f"{name} must be from 0 to {_MAX_PORT}, not {value}.")
        if not self.port:
            return
        last = self.port + self.replicas - 1
        if last > _MAX_PORT:
            raise ConfigError(
                f"{self.replicas} replicas from port {self.port} on need ports up to {last}: "
                "choose a lower port."
            )
        if self.shared_port and self.port <= self.shared_port <= last:
            raise ConfigError(
                f"shared_port {self.shared_port} is a replica's own port "
                f"({self.port} to {last}): choose another."
            )


def _at_least(name: str, value: float, least: float) -> None:
    # Also refuses NaN, which is neither below nor above anything.
    if not value >= least:
        raise ConfigError(f"{name} must be at least {least:g}, not {value:g}.")
