"""``forebay simulate``: served engines, virtual runs, calibration, profiles."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from forebay.app.delivery import Delivery
from forebay.app.keys import read_key
from forebay.app.loads import LoadWords, build_load
from forebay.app.output import Output
from forebay.app.pools import FleetWords, build_pools
from forebay.app.words import Words, settings_of
from forebay.kernel.clock import SystemClock
from forebay.kernel.errors import ConfigError
from forebay.lab.sim.profiles import GpuProfile, Profile, find_profile
from forebay.lab.sim.profiles import profiles as known_profiles

PROMPT_TOKENS = 1024
"""Length of the prompt that the list of profiles gives figures for."""
DOUBTFUL_ERROR = 0.5
"""Share by which a fit may miss a measurement before somebody should measure again."""


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

    return serve_simulated(settings_of(SimulatedServer, values, pairs, "--set"), started)


class VirtualWords(Words, frozen=True, kw_only=True):
    """What the command line says of a run in virtual time."""

    router: str = "least-outstanding"
    stay: bool = False
    seed: int = 1
    warmup: float = 0.0


def run(fleet: FleetWords, words: VirtualWords, load: LoadWords, delivery: Delivery) -> int:
    """Run a load through a simulated fleet in virtual time and deliver the result."""
    from forebay.lab.bench.describe import describe_workload
    from forebay.lab.measure.machine import describe_commit, describe_machine, describe_versions
    from forebay.lab.measure.recorder import RecorderOptions
    from forebay.lab.measure.result import Run
    from forebay.lab.sim.run import VirtualOptions, simulate

    workload = build_load(load)
    pools = build_pools(fleet)
    about = Run(
        source="simulation",
        target=" + ".join(f"{pool.config.replicas} x {pool.profile}" for pool in pools),
        seed=words.seed,
        workload=describe_workload(workload),
        fingerprint=workload.fingerprint,
        options={
            "pools": [
                {"profile": pool.profile, **msgspec.to_builtins(pool.config)} for pool in pools
            ],
            "router": words.router,
            "stay": words.stay,
        },
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
    built = [(pool.config, pool.steps) for pool in pools]
    return delivery.give_run(simulate(workload, built, about, options))


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
    worst = max((abs(item.error) for item in fitted.residuals), default=0.0)
    if worst > DOUBTFUL_ERROR:
        output.alarm(
            f"The profile misses a measurement by {worst:.0%}: one or the other was disturbed. "
            "Measure again while nothing else runs here or there, with more --repeats."
        )
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
