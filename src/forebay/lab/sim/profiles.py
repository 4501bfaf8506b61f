"""Engines by name: a card with a model on it, or what was fitted to a real endpoint.

`h100/llama-3.1-8b/fp16/tp1` names card, model, precision of the weights and number of cards that
share it; `kv-fp8` may follow. Precision and cards may be left out, and a model may be named by its
class: `h100/8b`. Anything that ends in `.json` is a file written by `save_profile`.
"""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any

import msgspec

from forebay.kernel.errors import ConfigError
from forebay.lab.sim.config import EngineConfig
from forebay.lab.sim.hardware import HARDWARE, Hardware
from forebay.lab.sim.models import (
    KV_PRECISIONS,
    MODELS,
    PRECISIONS,
    KvPrecision,
    Model,
    Precision,
)
from forebay.lab.sim.roofline import Efficiency, RooflineSteps
from forebay.lab.sim.slots import SlotRates, SlotSteps
from forebay.lab.sim.steps import StepModel

# Kept free per card for activations, buffers and graphs. An assumption; engines measure it.
_WORKING_BYTES = 1 << 30
# A profile fits when at least one request of this length does.
_SMALLEST_KV_TOKENS = 2048
_TENSOR_PARALLEL = (1, 2, 4, 8)
_DEFAULT_UTILISATION = 0.9
_MAX_FILE_BYTES = 1 << 20


class GpuProfile(msgspec.Struct, frozen=True, kw_only=True):
    """A model on one card, or spread over several."""

    hardware: Hardware
    model: Model
    precision: Precision = "fp16"
    kv_precision: KvPrecision = "fp16"
    tensor_parallel: int = 1
    efficiency: Efficiency = Efficiency()

    @property
    def name(self) -> str:
        """The full name, which `find_profile` understands."""
        kv = "" if self.kv_precision == "fp16" else f"/kv-{self.kv_precision}"
        parallel = f"tp{self.tensor_parallel}"
        return f"{self.hardware.name}/{self.model.name}/{self.precision}/{parallel}{kv}"

    def step_model(self) -> StepModel:
        """Step times from the roofline."""
        return RooflineSteps(
            self.hardware,
            self.model,
            precision=self.precision,
            kv_precision=self.kv_precision,
            tensor_parallel=self.tensor_parallel,
            efficiency=self.efficiency,
        )

    def kv_tokens(self, gpu_memory_utilization: float = _DEFAULT_UTILISATION) -> int:
        """Tokens the KV cache holds: what the weights leave of the used part of all memory.

        ``ConfigError`` when the model does not fit.
        """
        if not 0 < gpu_memory_utilization <= 1:
            raise ConfigError(
                f"gpu_memory_utilization lies above 0 and up to 1, not {gpu_memory_utilization}"
            )
        tokens = _kv_tokens(self, gpu_memory_utilization)
        if tokens < _SMALLEST_KV_TOKENS:
            raise ConfigError(_does_not_fit(self, gpu_memory_utilization))
        return tokens

    def engine_config(self, **changes: Any) -> EngineConfig:
        """The engine's settings on this profile, vLLM's defaults where nothing is said.

        ``changes`` are fields of ``EngineConfig``, or ``gpu_memory_utilization``.
        """
        share = changes.pop("gpu_memory_utilization", _DEFAULT_UTILISATION)
        if "kv_tokens" not in changes:
            changes["kv_tokens"] = self.kv_tokens(share)
        return EngineConfig(**changes)


class EngineLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of a measured engine that cannot be seen from outside."""

    max_num_seqs: int = 256
    max_num_batched_tokens: int = 2048
    max_model_len: int = 8192
    kv_tokens: int = 131_072
    prefix_caching: bool = False


class Residual(msgspec.Struct, frozen=True, kw_only=True):
    """One measured point beside what the fit says of it."""

    what: str
    measured_s: float
    fitted_s: float

    @property
    def error(self) -> float:
        """Relative: 0.1 when the fit is 10 % above the measurement."""
        return self.fitted_s / self.measured_s - 1


class FittedProfile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `calibrate` found out about one endpoint."""

    name: str
    rates: SlotRates
    limits: EngineLimits = EngineLimits()
    request_s: float = 0.0
    """What a request costs outside the engine (network, parsing), as seen by who measured, where
    it can be told from the prompt; no part of the engine's steps."""
    model: str = ""
    measured: str = ""
    """When and how, for people."""
    residuals: tuple[Residual, ...] = ()
    forebay_profile: int = 1
    """Version of this file's layout."""

    def step_model(self) -> StepModel:
        """Step times from the table of rates."""
        return SlotSteps(self.rates)

    def kv_tokens(self, gpu_memory_utilization: float = _DEFAULT_UTILISATION) -> int:
        """What the limits say; the argument is there to be one with ``GpuProfile``."""
        return self.limits.kv_tokens

    def engine_config(self, **changes: Any) -> EngineConfig:
        """The measured engine's settings; ``changes`` are fields of ``EngineConfig``."""
        changes.pop("gpu_memory_utilization", None)
        return EngineConfig(**{**msgspec.structs.asdict(self.limits), **changes})


Profile = GpuProfile | FittedProfile


def profiles() -> tuple[GpuProfile, ...]:
    """Every built-in card, model, precision and power-of-two number of cards that fits."""
    return tuple(
        profile
        for card in HARDWARE
        for model in MODELS
        for precision in PRECISIONS
        for parallel in _TENSOR_PARALLEL
        if _divides(model, parallel)
        and _fits(
            profile := GpuProfile(
                hardware=card, model=model, precision=precision, tensor_parallel=parallel
            )
        )
    )


def find_profile(name: str) -> Profile:
    """The profile of this name, or in this file.

    ``ConfigError`` for a name nobody knows (with the nearest ones), a model that does not fit the
    card (with what would fit), and a file that is not a profile.
    """
    if name.endswith(".json"):
        return read_profile(Path(name))
    words = name.strip().lower().split("/")
    if len(words) < 2 or not all(words):
        raise ConfigError(
            f"{name!r} is not a profile: write CARD/MODEL[/PRECISION][/tpN][/kv-fp8], like "
            "h100/8b or h100/llama-3.1-8b/fp16/tp1, or the path of a .json file that "
            "`forebay simulate calibrate` wrote."
        )
    card = _named(words[0], {card.name: card for card in HARDWARE}, "card")
    sizes = {model.size: model for model in MODELS}
    model = _named(words[1], sizes | {model.name: model for model in MODELS}, "model")
    profile = GpuProfile(hardware=card, model=model, **_options(name, words[2:]))
    parallel = profile.tensor_parallel
    if not _divides(model, parallel):
        allowed = ", ".join(f"tp{n}" for n in _TENSOR_PARALLEL if _divides(model, n))
        raise ConfigError(
            f"{model.name} has {model.heads} attention heads, which {parallel} cards cannot "
            f"share evenly; choose one of {allowed}."
        )
    if not _fits(profile):
        raise ConfigError(_does_not_fit(profile, _DEFAULT_UTILISATION))
    return profile


def read_profile(path: Path) -> FittedProfile:
    """A fitted profile from its file; ``ConfigError`` when it is none."""
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be read ({error.strerror}); `forebay simulate calibrate` writes such "
            "a file."
        ) from error
    try:
        profile = msgspec.json.decode(data, type=FittedProfile)
    except msgspec.DecodeError as error:
        raise ConfigError(f"{path} is not a fitted profile: {error}.") from error
    if profile.forebay_profile != 1:
        raise ConfigError(
            f"{path} has layout {profile.forebay_profile}, and this version reads layout 1; "
            "calibrate again."
        )
    return profile


def save_profile(profile: FittedProfile, path: Path) -> None:
    """Write it where ``find_profile`` reads it."""
    path.write_bytes(msgspec.json.format(msgspec.json.encode(profile), indent=2) + b"\n")


def _options(name: str, words: list[str]) -> dict[str, Any]:
    known: dict[str, tuple[str, Any]] = {
        **{precision: ("precision", precision) for precision in PRECISIONS},
        **{f"kv-{kv}": ("kv_precision", kv) for kv in KV_PRECISIONS},
        **{f"tp{n}": ("tensor_parallel", n) for n in _TENSOR_PARALLEL},
    }
    options: dict[str, Any] = {}
    for word in words:
        field, value = _named(word, known, "option")
        if field in options:
            raise ConfigError(f"{name!r} says {field.replace('_', ' ')} twice.")
        options[field] = value
    return options


def _named(word: str, known: dict[str, Any], what: str) -> Any:
    if word in known:
        return known[word]
    near = difflib.get_close_matches(word, known, n=2, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"known are {', '.join(known)}."
    raise ConfigError(f"There is no {what} {word!r} among the profiles; {hint}")


def _divides(model: Model, cards: int) -> bool:
    """Heads are shared evenly; with more cards than key-value heads, those are kept twice."""
    return model.heads % cards == 0 and (model.kv_heads % cards == 0 or cards % model.kv_heads == 0)


def _kv_tokens(profile: GpuProfile, share: float) -> int:
    """What is left for the cache, below zero when the weights alone are too much."""
    model, cards = profile.model, profile.tensor_parallel
    used = cards * (profile.hardware.memory_bytes * share - _WORKING_BYTES)
    copies = max(1, cards // model.kv_heads)
    left = used - model.weight_bytes(profile.precision)
    return int(left / (model.kv_bytes_per_token(profile.kv_precision) * copies))


def _fits(profile: GpuProfile, share: float = _DEFAULT_UTILISATION) -> bool:
    return _kv_tokens(profile, share) >= _SMALLEST_KV_TOKENS


def _does_not_fit(profile: GpuProfile, share: float) -> str:
    """One sentence with what would fit: lighter weights, more cards, or a larger card."""
    fields = msgspec.structs.asdict(profile)
    parallel = profile.tensor_parallel
    ways: list[dict[str, Any]] = [
        *({"precision": lighter} for lighter in PRECISIONS[PRECISIONS.index(profile.precision) :]),
        *({"tensor_parallel": more} for more in _TENSOR_PARALLEL if more > parallel),
        *({"hardware": card} for card in HARDWARE),
    ]
    fitting: dict[str, str] = {}
    for way in ways:
        other = GpuProfile(**{**fields, **way})
        if _divides(other.model, other.tensor_parallel) and _fits(other, share):
            fitting.setdefault(next(iter(way)), other.name)
    if not fitting:
        fitting = {
            p.name: p.name for p in profiles() if p.model is profile.model and p.precision == "int4"
        }
    weights = profile.model.weight_bytes(profile.precision) / 1e9
    memory = parallel * profile.hardware.memory_bytes * share / 1e9
    cards = "one card" if parallel == 1 else f"{parallel} cards"
    return (
        f"{profile.name} does not fit: the weights take {weights:.1f} GB and {cards} gives "
        f"{memory:.1f} GB at {share:.0%} of its memory; these would fit: "
        f"{', '.join(list(fitting.values())[:3])}."
    )
