"""``forebay simulate``: served engines, virtual runs, calibration, profiles."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from forebay.app.delivery import Delivery
from forebay.app.keys import read_key
from forebay.app.loads import LoadWords, build_load
from forebay.app.output import Output
from forebay.app.words import Words
from forebay.kernel.clock import SystemClock
from forebay.kernel.errors import ConfigError
from forebay.lab.sim.profiles import GpuProfile, Profile, find_profile
from forebay.lab.sim.profiles import profiles as known_profiles

T = TypeVar("T", bound=msgspec.Struct)
PROMPT_TOKENS = 1024
"""Length of the prompt that the list of profiles gives figures for."""


def settings_of(kind: type[T], values: Mapping[str, Any], pairs: list[str] | None) -> T:
    """A struct from values and ``name=value`` words; ``ConfigError`` names what is wrong."""
    known = kind.__struct_fields__
    given = dict(values)
    for pair in pairs or []:
        name, equals, value = pair.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or name not in known:
            raise ConfigError(f"--set takes name=value, not {pair!r}; names: {', '.join(known)}.")
        given[name] = value.strip()
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError(f"--set cannot be read: {error}.") from error


def serve(values: Mapping[str, Any], pairs: list[str] | None, output: Output) -> int:
    """Serve simulated engines until a signal; 0 when what was under way could end."""
    from forebay.lab.sim.serving import Addresses, SimulatedServer, serve_simulated

    def started(addresses: Addresses) -> None:
        if output.as_json:
            output.result(addresses)
            return
        many = f", {len(addresses.replicas)} replicas" if len(addresses.replicas) > 1 else ""
        output.line(f"simulating {addresses.profile}{many}")
        for url in addresses.replicas:
            output.line(f"  {url}")
        if addresses.shared is not None:
            output.line(f"  {addresses.shared} spreads requests over them")
        output.flush()

    return serve_simulated(settings_of(SimulatedServer, values, pairs), started)


class FleetWords(Words, frozen=True, kw_only=True):
    """What the command line says of the simulated fleet."""

    profile: str
    replicas: int = 1
    router: str = "least-outstanding"
    stay: bool = False
    seed: int = 1
    warmup: float = 0.0
    settings: list[str] | None = None


def run(words: FleetWords, load: LoadWords, delivery: Delivery) -> int:
    """Run a load through a simulated fleet in virtual time and deliver the result."""
    from forebay.lab.bench.describe import describe_workload
    from forebay.lab.measure.machine import describe_commit, describe_machine, describe_versions
    from forebay.lab.measure.recorder import RecorderOptions
    from forebay.lab.measure.result import Run
    from forebay.lab.sim.fleet import PoolConfig
    from forebay.lab.sim.run import VirtualOptions, simulate

    workload = build_load(load)
    profile = find_profile(words.profile)
    engine = profile.engine_config(**_engine_changes(words.settings))
    pool = PoolConfig(engine=engine, replicas=words.replicas)
    about = Run(
        source="simulation",
        target=f"{words.replicas} x {profile.name}",
        seed=words.seed,
        workload=describe_workload(workload),
        fingerprint=workload.fingerprint,
        options={"pools": [msgspec.to_builtins(pool)], "router": words.router, "stay": words.stay},
        machine=describe_machine(),
        commit=describe_commit(),
        versions=describe_versions("numpy"),
    )
    options = VirtualOptions(
        seed=words.seed,
        router=words.router,
        leaves_at_deadline=not words.stay,
        recorder=RecorderOptions(warmup_s=words.warmup),
    )
    return delivery.give_run(simulate(workload, [(pool, profile.step_model())], about, options))


class EngineChanges(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of an engine that ``--set`` may give; None: the profile's, or vLLM's default."""

    gpu_memory_utilization: float | None = None
    kv_tokens: int | None = None
    block_tokens: int | None = None
    watermark: float | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    max_model_len: int | None = None
    prefix_caching: bool | None = None
    scheduling: str | None = None


def _engine_changes(pairs: list[str] | None) -> dict[str, Any]:
    changes = msgspec.structs.asdict(settings_of(EngineChanges, {}, pairs))
    return {name: value for name, value in changes.items() if value is not None}


class CalibrateWords(Words, frozen=True, kw_only=True):
    """What the command line says of the endpoint and of how to measure it."""

    url: str
    out: Path
    model: str = ""
    key_file: Path | None = None
    in_flight: str = "1,2,4"
    repeats: int = 3
    seed: int = 0


def calibrate(words: CalibrateWords, output: Output) -> int:
    """Measure an endpoint and write its profile."""
    from forebay.lab.sim.calibrate import CalibrationSettings
    from forebay.lab.sim.calibrate import calibrate as measure
    from forebay.lab.sim.probe import Endpoint
    from forebay.lab.sim.profiles import save_profile

    try:
        levels = tuple(int(word) for word in words.in_flight.split(","))
    except ValueError as error:
        raise ConfigError(
            f"--in-flight takes numbers like 1,2,4, not {words.in_flight!r}."
        ) from error
    settings = CalibrationSettings(in_flight=levels, repeats=words.repeats, seed=words.seed)
    endpoint = Endpoint(url=words.url, model=words.model, api_key=read_key(words.key_file))
    if not words.out.resolve().parent.is_dir() or words.out.suffix != ".json":
        raise ConfigError(f"--out takes a .json file in a folder that exists, not {words.out}.")
    fitted = asyncio.run(
        measure(
            endpoint,
            settings,
            SystemClock(),
            name=words.out.stem,
            progress=output.note if output.interactive else lambda _: None,
        )
    )
    save_profile(fitted, words.out)
    if output.as_json:
        output.result(fitted)
        return 0
    output.line(f"{fitted.name}: {fitted.measured}")
    output.table(
        ("experiment", "measured", "fitted", "error"),
        [
            (
                item.what,
                f"{item.measured_s * 1000:.1f} ms",
                f"{item.fitted_s * 1000:.1f} ms",
                f"{item.error:+.1%}",
            )
            for item in fitted.residuals
        ],
    )
    output.note(f"written: {words.out}")
    return 0


def profiles(name: str | None, output: Output) -> int:
    """Print every built-in profile, or one with its figures and sources."""
    if name is not None:
        return _profile(find_profile(name), output)
    rows = [_figures(profile) for profile in known_profiles()]
    if output.as_json:
        output.result(rows)
        return 0
    output.table(
        ("profile", "KV tokens", f"first token of {PROMPT_TOKENS}", "tokens/s, 1", "tokens/s, 64"),
        [
            (
                row["profile"],
                f"{row['kv_tokens']:,}",
                f"{row['ttft_s'] * 1000:,.0f} ms",
                f"{row['tokens_per_s_of_1']:,.0f}",
                f"{row['tokens_per_s_of_64']:,.0f}",
            )
            for row in rows
        ],
    )
    return 0


def _figures(profile: Profile) -> dict[str, Any]:
    """What people compare engines by; decoding at a context of ``PROMPT_TOKENS`` each."""
    steps = profile.step_model()

    def rate(sequences: int) -> float:
        return sequences / steps.step_seconds(sequences, sequences * PROMPT_TOKENS, 0, 0)

    return {
        "profile": profile.name,
        "kv_tokens": profile.kv_tokens(),
        "ttft_s": steps.step_seconds(0, 0, PROMPT_TOKENS, PROMPT_TOKENS // 2),
        "tokens_per_s_of_1": rate(1),
        "tokens_per_s_of_64": rate(64),
    }


def _profile(profile: Profile, output: Output) -> int:
    values: dict[str, Any] = {**_figures(profile), **msgspec.to_builtins(profile)}
    if output.as_json:
        output.result(values)
        return 0
    if isinstance(profile, GpuProfile):
        values["hardware"] = profile.hardware.title
        values["model"] = profile.model.name
        values["hardware_source"] = profile.hardware.source
        values["model_source"] = profile.model.source
    output.table(("name", "value"), list(values.items()))
    return 0
