"""The configuration patch."""

from __future__ import annotations

import tomllib
from pathlib import Path

from forebay.app.settings import load_settings
from forebay.lab.tune.patch import changed, merged, toml_value, write_patch
from forebay.lab.tune.space import Value

BEFORE: dict[str, Value] = {
    "retrieval.candidates": 30,
    "retrieval.vector.kind": "auto",
    "retrieval.fusion.ceiling": 0.65,
    "ingest.chunks.max_tokens": 256,
}
AFTER: dict[str, Value] = {
    "retrieval.vector.kind": "hnsw",
    "retrieval.vector.hnsw_ef_search": 64,
    "retrieval.fusion.ceiling": 0.7,
    "retrieval.candidates": 30,
    "ingest.chunks.max_tokens": 384,
}


def test_a_patch_holds_what_changed_with_what_it_was() -> None:
    text = write_patch(BEFORE, AFTER, ("选定", "two\nlines"))
    assert text.splitlines()[:3] == ["# 选定", "# two", "# lines"]
    assert "ceiling = 0.7  # was 0.65" in text
    assert 'kind = "hnsw"  # was "auto"' in text
    assert "candidates" not in text
    assert changed(BEFORE, AFTER).keys() == AFTER.keys() - {"retrieval.candidates"}


def test_the_configuration_accepts_it(tmp_path: Path) -> None:
    file = tmp_path / "tuned.toml"
    file.write_text(write_patch(BEFORE, AFTER), encoding="utf-8")
    settings, configuration = load_settings(file, {}, {})
    assert settings.retrieval.vector.kind == "hnsw"
    assert settings.retrieval.vector.hnsw_ef_search == 64
    assert settings.retrieval.fusion.ceiling == 0.7
    assert settings.ingest.chunks.max_tokens == 384
    assert settings.retrieval.candidates == 30
    assert configuration.origins["retrieval.vector.kind"] == str(file)


def test_values_come_back_as_they_were() -> None:
    values: list[Value] = [True, False, 7, -3, 0.1, 1e-7, 'a "b" \\ 中\n\x7f', ""]
    for value in values:
        assert tomllib.loads(f"x = {toml_value(value)}")["x"] == value


def test_no_change_is_an_empty_patch() -> None:
    assert write_patch(BEFORE, BEFORE).strip() == ""
    assert merged({"a": 1}, {"a": 2, "b": 3}) == {"a": 2, "b": 3}
