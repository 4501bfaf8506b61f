"""The simulated engine beside figures reported from real services (F0.8, F1.2, F1.7, F3.14, F4.1).

Those figures come from other people's cards and loads, which they do not name in full. So each
row says which card and load was simulated and whether the number, or only the shape, fits; what
does not fit is said too. Deterministic for the seed; needs no GPU and no network.

Run: python benchmarks/simulator/shapes.py   (writes shapes.json and shapes.md beside it)
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from forebay.lab.sim.engine import Engine, EngineConfig, EngineStatistics
from forebay.lab.sim.models import kv_bytes_per_layer
from forebay.lab.sim.profiles import GpuProfile, find_profile
from forebay.lab.sim.sequence import Sequence
from forebay.lab.sim.steps import StepModel

SEED = 20261130
HERE = Path(__file__).resolve().parent
Asked = list[tuple[float, int, int]]


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the table."""

    figure: str
    setting: str
    reported: str
    simulated: str
    fits: str
    """yes (the number), shape (only that), no."""
    values: dict[str, Any]


def gpu(name: str) -> GpuProfile:
    profile = find_profile(name)
    assert isinstance(profile, GpuProfile)
    return profile


def serve(
    config: EngineConfig, steps: StepModel, asked: Asked
) -> tuple[list[Sequence], EngineStatistics]:
    """Everything asked (time, tokens in, tokens out), to its end."""
    engine = Engine(config, steps)
    sequences = []
    for number, (at, tokens, output) in enumerate(asked):
        engine.advance(at)
        sequences.append(Sequence(number, tokens, output))
        engine.submit(sequences[-1], at)
    while (at_next := engine.next_event_at()) is not None:
        engine.advance(at_next)
    return sequences, engine.statistics()


def lognormal(rng: np.random.Generator, mean: float, deviation: float, count: int) -> list[int]:
    sigma = math.sqrt(math.log(1 + (deviation / mean) ** 2))
    values = rng.lognormal(math.log(mean) - sigma * sigma / 2, sigma, count)
    return [int(value) for value in np.clip(values, 8, 7000)]


def exponential(rng: np.random.Generator, mean: float, most: int, count: int) -> list[int]:
    return [int(value) for value in np.clip(rng.exponential(mean, count), 8, most)]


def ends(sequences: list[Sequence]) -> list[tuple[float, int]]:
    return sorted((s.finished_at or 0.0, s.output_tokens) for s in sequences)


def steady(sequences: list[Sequence]) -> tuple[float, float]:
    """Requests and output tokens a second in the middle three fifths of what finished."""
    done = ends(sequences)
    first, last = len(done) // 5, 4 * len(done) // 5
    seconds = done[last][0] - done[first][0]
    return (last - first) / seconds, sum(tokens for _, tokens in done[first:last]) / seconds


def totals(sequences: list[Sequence]) -> np.ndarray[Any, Any]:
    return np.array([(s.finished_at or 0.0) - s.arrived_at for s in sequences])


def firsts(sequences: list[Sequence]) -> np.ndarray[Any, Any]:
    return np.array([(s.first_token_at or 0.0) - s.arrived_at for s in sequences])


# --- F4.1 -----------------------------------------------------------------------------------------


def kv_formula() -> Iterator[Row]:
    found = kv_bytes_per_layer(8, 4096, 32, 128, 2)
    yield Row(
        figure="F4.1 KV bytes of a layer",
        setting="8 sequences x 4,096 tokens x 32 heads x 128 at 2 bytes",
        reported="512 MiB",
        simulated=f"{found / 2**20:g} MiB",
        fits="yes" if found == 512 << 20 else "no",
        values={"bytes": found},
    )


# --- F0.8 -----------------------------------------------------------------------------------------


def sliced(profile: GpuProfile, parts: int) -> GpuProfile:
    """One of ``parts`` equal slices of the card, with its own copy of the weights."""
    card = profile.hardware
    changed = msgspec.structs.replace(
        card,
        memory_bytes=card.memory_bytes // parts,
        bandwidth_bytes_per_s=card.bandwidth_bytes_per_s / parts,
        fp16_flops=card.fp16_flops / parts,
        fp8_flops=card.fp8_flops / parts if card.fp8_flops else None,
    )
    return msgspec.structs.replace(profile, hardware=changed)


def isolation() -> Iterator[Row]:
    """Tenants on one card: one engine for all, or an equal slice of the card for each."""
    rng = np.random.default_rng(SEED)
    whole = gpu("h100/8b/fp16")
    count = 4000
    backlog: Asked = [
        (0.0, tokens, output)
        for tokens, output in zip(
            lognormal(rng, 400, 250, count), exponential(rng, 300, 2000, count), strict=True
        )
    ]
    shared, _ = steady(serve(whole.engine_config(), whole.step_model(), backlog)[0])
    isolated = {}
    for tenants in (2, 3, 4):
        part = sliced(whole, tenants)
        config, steps = part.engine_config(), part.step_model()
        isolated[tenants] = sum(
            steady(serve(config, steps, backlog[tenant::tenants])[0])[0]
            for tenant in range(tenants)
        )
    gains = ", ".join(
        f"{shared / rate:.1f}x with {tenants} tenants ({rate:.0f} -> {shared:.0f} req/s)"
        for tenants, rate in isolated.items()
    )
    yield Row(
        figure="F0.8 shared against isolated KV, throughput",
        setting="H100, Llama-3.1-8B fp16, 400 in, 300 out, every tenant with a backlog; isolated = "
        "an equal slice of memory, bandwidth and compute, with its own weights",
        reported="2.3x (16 -> 38 req/s)",
        simulated=f"{gains}; twice that while half of the tenants are idle",
        fits="shape",
        values={"shared": shared, "isolated": isolated},
    )
    quarter = sliced(whole, 4)
    seconds = 120
    quiet: Asked = [(float(at), 400, 100) for at in np.cumsum(rng.exponential(1.0, seconds))]
    flood: Asked = [
        (float(at), tokens, 300)
        for at, tokens in zip(
            np.cumsum(rng.exponential(1 / (2 * shared), int(2 * shared * seconds))),
            lognormal(rng, 400, 250, int(2 * shared * seconds)),
            strict=True,
        )
    ]
    marked = sorted([(*one, 0) for one in quiet] + [(*one, 1) for one in flood])
    together, _ = serve(whole.engine_config(), whole.step_model(), [one[:3] for one in marked])
    beside = [s for s, one in zip(together, marked, strict=True) if one[3] == 0]
    alone, _ = serve(quarter.engine_config(), quarter.step_model(), quiet)
    tails = [float(np.percentile(firsts(group), 99)) for group in (beside, alone)]
    yield Row(
        figure="F0.8 tail of a quiet tenant while another floods",
        setting="same, 4 tenants; 1 request/s beside a flood of twice the capacity for 2 min",
        reported="shared: no tail guarantee; isolated: guaranteed",
        simulated=f"P99 to first token {tails[0]:.0f} s shared, {tails[1]:.2f} s isolated",
        fits="shape",
        values={"shared_p99_s": tails[0], "isolated_p99_s": tails[1]},
    )


# --- F1.2 -----------------------------------------------------------------------------------------


def capacity() -> Iterator[Row]:
    """How many requests a second one card answers, and how fast."""
    for output, band, seconds, rates in (
        (512, "5-15 QPS a card, 1-3 s", 3.0, (5, 8, 10, 12, 15, 20, 25)),
        (1024, "3-8 QPS a card, 2-5 s", 5.0, (2, 3, 4, 5, 6, 8, 10)),
    ):
        parts = []
        values: dict[str, Any] = {}
        for name in ("a100/8b/int4", "h100/8b/fp16", "h100/8b/fp8", "h100/8b/int4"):
            profile = gpu(name)
            rng = np.random.default_rng(SEED)
            inputs = lognormal(rng, 480, 320, 4000)
            config, steps = profile.engine_config(), profile.step_model()
            most, _ = steady(serve(config, steps, [(0.0, n, output) for n in inputs])[0])
            means = {}
            for rate in rates:
                count = rate * 150
                at = np.cumsum(rng.exponential(1 / rate, count)).tolist()
                asked = [(when, n, output) for when, n in zip(at, inputs, strict=False)]
                means[rate] = float(totals(serve(config, steps, asked)[0]).mean())
            inside = [rate for rate, mean in means.items() if mean <= seconds]
            held = f"mean <= {seconds:g} s up to {max(inside)} QPS" if inside else "always slower"
            parts.append(
                f"{profile.hardware.name.upper()} {profile.precision}: {most:.0f} QPS, {held}"
            )
            values[profile.name] = {"most_qps": most, "mean_s_by_qps": means}
        yield Row(
            figure=f"F1.2 generation, {output} tokens out",
            setting="Llama-3.1-8B, Poisson, 480 tokens in on average",
            reported=band,
            simulated="at most " + "; ".join(parts),
            fits="shape",
            values=values,
        )


# --- F1.7 -----------------------------------------------------------------------------------------


def batching() -> Iterator[Row]:
    """Continuous batching against static: a batch is padded to its longest and ends as one."""
    for name, places in (("a100/8b", 16), ("a100/8b", 32), ("h100/8b", 32), ("a100/8b", 64)):
        profile = gpu(name)
        rng = np.random.default_rng(SEED)
        count = 60 * places
        inputs = lognormal(rng, 250, 160, count)
        outputs = exponential(rng, 200, 2000, count)
        config = profile.engine_config(max_num_seqs=places, prefix_caching=False)
        steps = profile.step_model()
        asked = [(0.0, *one) for one in zip(inputs, outputs, strict=True)]
        flowing, _ = serve(config, steps, asked)
        _, continuous = steady(flowing)
        seconds = place_steps = 0.0
        for first in range(0, count, places):
            longest = max(outputs[first : first + places])
            padded = max(inputs[first : first + places])
            batch, _ = serve(config, steps, [(0.0, padded, longest)] * places)
            seconds += ends(batch)[-1][0]
            place_steps += longest * places
        static = sum(outputs) / seconds
        gain = continuous / static
        used = sum(outputs) / place_steps
        done = ends(flowing)
        begin, end = done[count // 5][0], done[4 * count // 5][0]
        busy = sum(
            max(0.0, min(end, s.finished_at or 0.0) - max(begin, s.first_token_at or 0.0))
            for s in flowing
        ) / (places * (end - begin))
        yield Row(
            figure="F1.7 continuous against static batching",
            setting=f"{profile.hardware.name.upper()}, Llama-3.1-8B fp16, batches of {places}, "
            "outputs exponential with mean 200",
            reported="3-5x; GPU use 20-40 -> 75-90 %",
            simulated=f"{gain:.1f}x; places of the batch in useful work {used:.0%} -> {busy:.0%}",
            fits="yes" if 3 <= gain <= 5 else "shape",
            values={"gain": gain, "static_tokens_per_s": static, "static_use": used, "use": busy},
        )


# --- F3.14 ----------------------------------------------------------------------------------------


def limits() -> Iterator[Row]:
    """Max sequences x max length tuned together: the middle wins where the KV cache runs out."""
    profile = gpu("l20/8b/fp16")
    rng = np.random.default_rng(SEED)
    inputs, outputs = lognormal(rng, 180, 120, 1500), exponential(rng, 900, 4000, 1500)
    reported = {(128, 2048): (1842, 142), (192, 3072): (2256, 203), (256, 4096): (2107, 298)}
    for (places, length), (tokens, latency) in reported.items():
        asked: Asked = []
        for tokens_in, tokens_out in zip(inputs, outputs, strict=True):
            short = min(tokens_in, length // 2)
            asked.append((0.0, short, min(tokens_out, length - short)))
        config = profile.engine_config(
            max_num_seqs=places, max_model_len=length, prefix_caching=False
        )
        done, figures = serve(config, profile.step_model(), asked)
        _, rate = steady(done)
        between = [
            ((s.finished_at or 0.0) - (s.first_token_at or 0.0)) / (s.output_tokens - 1)
            for s in done
        ]
        mean, tail = 1e3 * float(np.mean(between)), 1e3 * float(np.percentile(between, 99))
        yield Row(
            figure=f"F3.14 ({places}, {length})",
            setting="L20, Llama-3.1-8B fp16, 180 in, 900 out, backlog",
            reported=f"{tokens:,} tok/s, {latency} ms",
            simulated=f"{rate:,.0f} tok/s, {mean:.0f} ms between tokens (P99 {tail:.0f}), "
            f"{figures.preemptions} preemptions",
            fits="shape",
            values={"tokens_per_s": rate, "itl_ms": mean, "preemptions": figures.preemptions},
        )


def variance() -> Iterator[Row]:
    """Inputs of one length against inputs that vary, in a padded batch and in a flowing one."""
    profile = gpu("h100/8b")
    places = 32
    steps = profile.step_model()
    config = profile.engine_config(max_num_seqs=places, prefix_caching=False)
    padded: dict[int, float] = {}
    flowing: dict[int, float] = {}
    for deviation in (0, 35, 200, 300):
        rng = np.random.default_rng(SEED)
        count = 40 * places
        inputs = lognormal(rng, 600, deviation, count) if deviation else [600] * count
        seconds = 0.0
        for first in range(0, count, places):
            longest = max(inputs[first : first + places])
            seconds += ends(serve(config, steps, [(0.0, longest, 200)] * places)[0])[-1][0]
        padded[deviation] = count * 200 / seconds
        flowing[deviation] = steady(serve(config, steps, [(0.0, n, 200) for n in inputs])[0])[1]
    lost = {
        kind: {deviation**2: 1 - rate / rates[0] for deviation, rate in rates.items()}
        for kind, rates in (("padded", padded), ("flowing", flowing))
    }
    yield Row(
        figure="F3.14 variance of input lengths",
        setting="H100, Llama-3.1-8B fp16, 32 places, 600 in on average, 200 out",
        reported="variance > 1,200 costs 23 %",
        simulated="padded batches: "
        + ", ".join(f"{lost['padded'][v]:.0%} at variance {v:,}" for v in (1225, 40_000, 90_000))
        + f"; continuous batching: {max(lost['flowing'].values()):.0%} at most",
        fits="shape",
        values=lost,
    )


def markdown(rows: list[Row]) -> str:
    lines = [
        "| figure | simulated on | reported | simulated | fits |",
        "|---|---|---|---|---|",
        *(
            f"| {row.figure} | {row.setting} | {row.reported} | {row.simulated} | {row.fits} |"
            for row in rows
        ),
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parts = (kv_formula, isolation, capacity, batching, limits, variance)
    rows = [row for part in parts for row in part()]
    result = {
        "benchmark": "simulator/shapes",
        "seed": SEED,
        "rows": msgspec.to_builtins(rows, str_keys=True),
    }
    (HERE / "shapes.json").write_text(json.dumps(result, indent=1) + "\n")
    (HERE / "shapes.md").write_text(markdown(rows))
    print(markdown(rows))


if __name__ == "__main__":
    main()
