"""A result is read back as it was written, and what is none is said to be none."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from forebay.kernel.errors import ConfigError
from forebay.lab.evaluate.result import EvalResult, Mean, Origin, Row, SetResult, load_result


def a_result() -> EvalResult:
    rows = (Row("1", "zh", {"recall@10": 1.0}, rung="bm25"), Row("2", "en", {}, error="late"))
    measures = {"all": {"recall@10": Mean(1.0, 1, 1.0, 1.0)}}
    one = SetResult("boats", "f", 3, 2, 1, measures, {}, {"bm25": 1}, rows)
    return EvalResult(Origin("in process"), (one,))


def test_a_result_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_bytes(msgspec.json.encode(a_result()))
    assert load_result(path) == a_result()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (b"{}", "no result of forebay eval"),
        (b"\xff", "no result of forebay eval"),
        (msgspec.json.encode(msgspec.structs.replace(a_result(), schema=99)), "schema 99"),
    ],
)
def test_what_is_no_result_is_said_to_be_none(tmp_path: Path, text: bytes, told: str) -> None:
    path = tmp_path / "result.json"
    path.write_bytes(text)
    with pytest.raises(ConfigError, match=told):
        load_result(path)
    with pytest.raises(ConfigError, match="cannot read"):
        load_result(tmp_path / "nothing.json")
