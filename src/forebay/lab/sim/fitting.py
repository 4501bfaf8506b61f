"""Rates from measured times: least squares of relative errors, no rate below zero."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterable, Sequence

import msgspec
import numpy as np

from forebay.kernel.errors import EngineError
from forebay.lab.sim.profiles import Residual
from forebay.lab.sim.slots import SlotLevel, SlotRates, SlotSteps

# Prompts up to this many times a bare step say nothing about what a token costs.
_ABOVE_FLOOR = 1.25
# Prompts up to this length are read in the time of one bare step on any GPU.
_SHORT_TOKENS = 64


class PrefillPoint(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt alone in the engine: time to its first token."""

    prompt_tokens: int
    seconds: float


class DecodePoint(msgspec.Struct, frozen=True, kw_only=True):
    """Mean step time while ``in_flight`` sequences decode, all their contexts together."""

    in_flight: int
    context_tokens: float
    seconds: float


class MixedPoint(msgspec.Struct, frozen=True, kw_only=True):
    """One step that took a whole prompt while ``in_flight`` sequences decoded."""

    in_flight: int
    context_tokens: float
    prompt_tokens: int
    seconds: float


class Fit(msgspec.Struct, frozen=True, kw_only=True):
    """The rates, and how well they describe each point."""

    rates: SlotRates
    request_s: float
    residuals: tuple[Residual, ...]


def fit_rates(
    prefills: Sequence[PrefillPoint],
    decodes: Sequence[DecodePoint],
    mixed: Sequence[MixedPoint] = (),
) -> Fit:
    """The table of rates that fits these points best, and how well it does for each.

    Prefill of n tokens is ``prefill_s + n * prefill_token_s + pairs * prefill_pair_s`` with
    n (n+1) / 2 pairs, where that is longer than a bare step; a decode level is a line over the
    context; ``overlap`` is the median of what the mixed steps saved. ``EngineError`` when nothing
    was measured.
    """
    if not prefills or not decodes:
        raise EngineError("There is nothing to fit: no measurement succeeded.")
    levels = []
    for in_flight, group in itertools.groupby(
        sorted(decodes, key=lambda point: point.in_flight), key=lambda point: point.in_flight
    ):
        points = list(group)
        base, slope = _non_negative(
            [(1.0, point.context_tokens) for point in points], [point.seconds for point in points]
        )
        levels.append(
            SlotLevel(in_flight=in_flight, decode_s=max(base, 1e-9), context_token_s=slope)
        )
    before = _before_engine(prefills, levels[0].decode_s)
    fixed, token, pair = _prefill(prefills, levels[0].decode_s, before)
    rates = SlotRates(
        levels=tuple(levels), prefill_s=fixed, prefill_token_s=token, prefill_pair_s=pair
    )
    if mixed:
        rates = msgspec.structs.replace(rates, overlap=_overlap(rates, mixed))
    residuals = tuple(_residuals(rates, before, prefills, decodes, mixed))
    return Fit(rates=rates, request_s=before, residuals=residuals)


def _before_engine(points: Sequence[PrefillPoint], floor_s: float) -> float:
    """What a request costs outside the engine: a very short prompt's time beyond a bare step.

    Zero when even that one takes two steps' time, as on a CPU: there it is the prompt.
    """
    shortest = min(points, key=lambda point: point.prompt_tokens)
    more = shortest.seconds - floor_s
    return more if shortest.prompt_tokens <= _SHORT_TOKENS and 0 < more < floor_s else 0.0


def _prefill(points: Sequence[PrefillPoint], floor_s: float, before_s: float) -> list[float]:
    """Fixed, per-token and per-pair time, from the prompts that take longer than a bare step."""
    longer = [one for one in points if one.seconds - before_s > _ABOVE_FLOOR * floor_s]
    used = longer if len(longer) > 1 else points
    rows = [(1.0, float(one.prompt_tokens), _pairs(one.prompt_tokens)) for one in used]
    return _non_negative(rows, [one.seconds - before_s for one in used])


def _pairs(prompt_tokens: int) -> float:
    return prompt_tokens * (prompt_tokens + 1) / 2


def _non_negative(rows: Sequence[tuple[float, ...]], seconds: Sequence[float]) -> list[float]:
    """Least squares of relative errors without negative factors, over all subsets of columns.

    Columns are few, so trying each subset is simpler than an active-set method.
    """
    weights = 1 / np.asarray(seconds)
    matrix = np.asarray(rows) * weights[:, None]
    ones = np.ones(len(seconds))
    width = matrix.shape[1]
    best: tuple[float, list[float]] | None = None
    for size in range(min(width, len(seconds)), 0, -1):
        for columns in itertools.combinations(range(width), size):
            scale = np.linalg.norm(matrix[:, columns], axis=0)
            found, *_ = np.linalg.lstsq(matrix[:, columns] / scale, ones, rcond=None)
            factors = found / scale
            if (factors < 0).any():
                continue
            left = float(np.sum((matrix[:, columns] @ factors - ones) ** 2))
            if best is None or left < best[0] - 1e-12:
                values = [0.0] * width
                for column, factor in zip(columns, factors, strict=True):
                    values[column] = float(factor)
                best = (left, values)
    if best is None:
        raise EngineError("The measured times fit no rates at all; measure again.")
    return best[1]


def _overlap(rates: SlotRates, mixed: Sequence[MixedPoint]) -> float:
    steps = SlotSteps(rates)
    saved = []
    for point in mixed:
        context = round(point.context_tokens)
        decode = steps.step_seconds(point.in_flight, context, 0, 0)
        attended = (point.prompt_tokens + 1) // 2
        prefill = steps.step_seconds(0, 0, point.prompt_tokens, attended)
        saved.append((decode + prefill - point.seconds) / min(decode, prefill))
    return min(1.0, max(0.0, statistics.median(saved)))


def _residuals(
    rates: SlotRates,
    before_s: float,
    prefills: Iterable[PrefillPoint],
    decodes: Iterable[DecodePoint],
    mixed: Iterable[MixedPoint],
) -> Iterable[Residual]:
    steps = SlotSteps(rates)
    for prompt in prefills:
        tokens = prompt.prompt_tokens
        yield Residual(
            what=f"first token of a prompt of {tokens} tokens",
            measured_s=prompt.seconds,
            fitted_s=before_s + steps.step_seconds(0, 0, tokens, (tokens + 1) // 2),
        )
    for point in decodes:
        context = round(point.context_tokens)
        yield Residual(
            what=f"step with {point.in_flight} in flight, {context} tokens of context",
            measured_s=point.seconds,
            fitted_s=steps.step_seconds(point.in_flight, context, 0, 0),
        )
    for both in mixed:
        tokens, context = both.prompt_tokens, round(both.context_tokens)
        yield Residual(
            what=f"step with {both.in_flight} in flight and a prompt of {tokens} tokens",
            measured_s=both.seconds,
            fitted_s=steps.step_seconds(both.in_flight, context, tokens, (tokens + 1) // 2),
        )
