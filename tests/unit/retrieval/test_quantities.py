"""Numbers and units: what is one spelling, and what is left as it stands."""

from __future__ import annotations

import time

import pytest

from forebay.retrieval.quantities import joined, scaled


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("5 GB and 12 ms", "5GB and 12ms"),
        ("1,234,567.50", "1234567.50"),
        ("1\u202f234", "1234"),
        ("1'000", "1000"),
        ("in 2019 Acme", "in 2019 Acme"),
        ("5 Gbit/s", "5 Gbit/s"),
        ("AB 5 min", "AB 5min"),
        ("1,23", "1,23"),
        ("2019 204", "2019 204"),
        ("rock'n'roll", "rock'n'roll"),
    ],
)
def test_joined(text: str, result: str) -> None:
    assert joined(text) == result


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("3.5万", ["35000"]),
        ("售价 3.5 万元，共12亿", ["35000", "1200000000"]),
        ("1.2万亿", ["1200000000000"]),
        ("0.00001万", ["0.1"]),
        ("2.5 Million users", ["2500000"]),
        ("3万5千", []),
        ("2万一千", []),
        ("5千克、3千瓦、10千米", []),
        ("5 millionaires", []),
        ("万一", []),
        ("v1.5万", []),
    ],
)
def test_scaled(text: str, numbers: list[str]) -> None:
    assert list(scaled(text)) == numbers


def test_hostile_numbers_take_linear_time() -> None:
    begun = time.perf_counter()
    for text in ("9" * 200_000, "9," * 100_000, "1,111" * 40_000, "1.1 " * 50_000, "9 " * 100_000):
        joined(text)
        list(scaled(text))
    assert time.perf_counter() - begun < 5.0
