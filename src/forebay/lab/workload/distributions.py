"""Numbers drawn at random: fixed, uniform, lognormal, exponential, from a file; and Zipf ranks."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np
from numpy.typing import NDArray

from forebay.kernel.errors import ConfigError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Sampler = Callable[[np.random.Generator, int], Floats]
Number = Annotated[float, msgspec.Meta(ge=0, le=1e9)]
Positive = Annotated[float, msgspec.Meta(gt=0, le=1e9)]
MAX_FILE_NUMBERS = 1_000_000


class Uniform(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="uniform",
              tag_field="distribution"):  # fmt: skip
    """Every value between ``min`` and ``max`` alike."""

    min: Number
    max: Number


class LogNormal(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="lognormal",
                tag_field="distribution", kw_only=True):  # fmt: skip
    """Many small values and a long tail, cut at ``min`` and ``max``.

    ``mean`` is that before the cut; ``cv`` is the standard deviation over the mean:
    sigma^2 = ln(1 + cv^2), mu = ln(mean) - sigma^2 / 2.
    """

    mean: Positive
    cv: Annotated[float, msgspec.Meta(gt=0, le=100)] = 1.0
    min: Number = 0.0
    max: Positive = 1e9


class Exponential(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="exponential",
                  tag_field="distribution", kw_only=True):  # fmt: skip
    """Waiting without memory, cut at ``max``."""

    mean: Positive
    max: Positive = 1e9


class FromFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="file",
               tag_field="distribution", kw_only=True):  # fmt: skip
    """Each value of a file alike: one number a line, or a ``column`` of a CSV file."""

    file: Annotated[str, msgspec.Meta(min_length=1)]
    column: str = ""


Tokens = (
    Annotated[int, msgspec.Meta(ge=1, le=10_000_000)] | Uniform | LogNormal | Exponential | FromFile
)
Amount = Annotated[float, msgspec.Meta(ge=0, le=1e9)] | Uniform | LogNormal | Exponential | FromFile


def sampler(amount: Tokens | Amount, name: str, folder: Path) -> Sampler:
    """What draws ``amount``; ``name`` is the setting's, ``folder`` that of relative files.

    Raises ``ConfigError`` for bounds in the wrong order and for a file that holds no numbers.
    """
    match amount:
        case Uniform(low, high):
            _ordered(low, high, name)
            return lambda rng, count: rng.uniform(low, high, count)
        case LogNormal(mean=mean, cv=cv, min=low, max=high):
            _ordered(low, high, name)
            sigma = math.sqrt(math.log1p(cv * cv))
            mu = math.log(mean) - sigma * sigma / 2
            return lambda rng, count: np.clip(rng.lognormal(mu, sigma, count), low, high)
        case Exponential(mean=mean, max=high):
            return lambda rng, count: np.minimum(rng.exponential(mean, count), high)
        case FromFile(file=file, column=column):
            values = np.array(_numbers(folder / file, column), dtype=np.float64)
            return lambda rng, count: values[rng.integers(0, len(values), count)]
        case _:
            fixed = float(amount)
            return lambda _, count: np.full(count, fixed)


def whole_tokens(values: Floats) -> list[int]:
    """Drawn values as tokens: whole, at least one."""
    tokens: list[int] = np.maximum(np.rint(values), 1).astype(np.int64).tolist()
    return tokens


class Zipf:
    """Ranks 0 .. count-1 with probability proportional to 1 / (rank + 1)^exponent, exactly.

    The support is bounded, so any exponent from 0 (all alike) on works; a draw is a binary
    search in the cumulative table.
    """

    def __init__(self, count: int, exponent: float) -> None:
        weights = np.arange(1, count + 1, dtype=np.float64) ** -exponent
        self._cumulative = np.cumsum(weights)
        self.probabilities: Floats = weights / self._cumulative[-1]

    def draw(self, rng: np.random.Generator, count: int) -> Ints:
        """``count`` independent ranks."""
        wanted = rng.random(count) * self._cumulative[-1]
        # Rounding may carry a number just under the total up to it.
        ranks = np.searchsorted(self._cumulative, wanted, side="right")
        last = len(self._cumulative) - 1
        return np.asarray(np.minimum(ranks, last), dtype=np.int64)


class Shares:
    """Indices drawn by weight."""

    def __init__(self, weights: list[float]) -> None:
        self._cumulative = np.cumsum(np.array(weights))

    def draw(self, rng: np.random.Generator, count: int) -> Ints:
        """``count`` independent indices; a lone one costs no chance."""
        if len(self._cumulative) == 1:
            return np.zeros(count, dtype=np.int64)
        wanted = rng.random(count) * self._cumulative[-1]
        found = np.searchsorted(self._cumulative, wanted, side="right")
        last = len(self._cumulative) - 1
        return np.asarray(np.minimum(found, last), dtype=np.int64)


def _ordered(low: float, high: float, name: str) -> None:
    if low > high:
        raise ConfigError(f"{name} has min {low:g} above max {high:g}: swap them.", param=name)


def _numbers(path: Path, column: str) -> list[float]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as handle:
            rows = csv.reader(handle)
            place = 0
            if column:
                header = next(rows, [])
                if column not in header:
                    raise ConfigError(
                        f"{path.name} has no column {column}; it has {', '.join(header)}."
                    )
                place = header.index(column)
            numbers = [_number(path, rows.line_num, row, place) for row in rows if row]
    except OSError as error:
        raise unreadable(path, error) from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(f"{path.name} is not a text file of numbers: {error}.") from error
    if not numbers:
        raise ConfigError(f"{path.name} holds no numbers; put one on each line.")
    if len(numbers) > MAX_FILE_NUMBERS:
        raise ConfigError(f"{path.name} has more than {MAX_FILE_NUMBERS:,} numbers; take a sample.")
    return numbers


def _number(path: Path, line: int, row: list[str], place: int) -> float:
    text = row[place].strip() if place < len(row) else ""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= 1e9:
        raise ConfigError(f'{path.name} line {line}: "{text[:40]}" is not a number from 0 on.')
    return value


def unreadable(path: Path, error: OSError) -> ConfigError:
    """The sentence for a file that cannot be opened."""
    if isinstance(error, FileNotFoundError):
        return ConfigError(f"{path} does not exist; check the name and the folder.")
    return ConfigError(f"cannot read {path}: {error.strerror or type(error).__name__}.")
