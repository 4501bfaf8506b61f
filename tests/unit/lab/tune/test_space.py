"""What a search may change."""

from __future__ import annotations

import msgspec
import pytest

from forebay.kernel.errors import ConfigError
from forebay.lab.tune.space import (
    Choice,
    Corpus,
    Parameter,
    Real,
    SpaceFile,
    Value,
    When,
    Whole,
    applies,
    check_space,
    default_space,
    suggest,
    within,
)

KIND = "retrieval.vector.kind"


class Highest:
    """Draws the last choice and the upper bound, and notes what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def suggest_categorical(self, name: str, choices: object) -> str:
        self.asked.append(name)
        return list(choices)[-1]  # type: ignore[call-overload,no-any-return]

    def suggest_int(self, name: str, low: int, high: int, *, log: bool = False) -> int:
        self.asked.append(name)
        return high

    def suggest_float(
        self, name: str, low: float, high: float, *, step: float | None = None, log: bool = False
    ) -> float:
        self.asked.append(name)
        return high - 1e-12


def test_a_parameter_is_drawn_only_where_it_means_something() -> None:
    space: tuple[Parameter, ...] = (
        Choice(KIND, ("hnsw", "exact")),
        Whole("retrieval.vector.hnsw_ef_search", 16, 256, when=When(KIND, "hnsw")),
        Real("retrieval.fusion.ceiling", 0.3, 0.9, step=0.05),
    )
    source = Highest()
    assert suggest(space, source) == {KIND: "exact", "retrieval.fusion.ceiling": 0.9}
    assert "retrieval.vector.hnsw_ef_search" not in source.asked


def test_the_start_is_what_of_the_settings_lies_within_the_space() -> None:
    space: tuple[Parameter, ...] = (
        Choice(KIND, ("exact", "hnsw")),
        Whole("a.ef", 16, 256, when=When(KIND, "hnsw")),
        Real("a.share", 0.0, 1.0),
        Choice("a.size", (128, 256)),
    )
    values: dict[str, Value] = {KIND: "hnsw", "a.ef": 64, "a.share": 2.0, "a.size": 300}
    assert within(space, values) == {KIND: "hnsw", "a.ef": 64}
    assert within(space, {**values, KIND: "auto"}) == {}


def test_a_space_names_each_path_once_and_conditions_look_back() -> None:
    with pytest.raises(ConfigError, match=r"a\.b twice"):
        check_space((Whole("a.b", 1, 2), Whole("a.b", 1, 3)))
    with pytest.raises(ConfigError, match="must stand before"):
        check_space((Whole("a.b", 1, 2, when=When("a.c", 1)), Choice("a.c", (1, 2))))


@pytest.mark.parametrize(
    "told",
    [
        {"type": "whole", "path": "a.b", "low": 3, "high": 3},
        {"type": "whole", "path": "a.b", "low": 0, "high": 3, "log": True},
        {"type": "real", "path": "a.b", "low": 0.1, "high": 3.0, "log": True, "step": 0.1},
        {"type": "choice", "path": "a.b", "values": []},
        {"type": "choice", "path": "a.b", "values": [1, 1]},
        {"type": "choice", "path": "a.b", "values": [1], "colour": 2},
    ],
)
def test_a_file_with_a_wrong_parameter_is_refused(told: dict[str, object]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"parameters": [told]}, SpaceFile)


def test_index_parameters_matter_only_where_an_index_is_built() -> None:
    small = {each.path for each in default_space(Corpus(chunks=100, exact_rows_max=8192))}
    middle = {each.path for each in default_space(Corpus(chunks=8192, exact_rows_max=8192))}
    large = {each.path for each in default_space(Corpus(chunks=10_000, exact_rows_max=8192))}
    assert KIND not in small
    assert {KIND, "retrieval.vector.hnsw_m"} <= middle
    assert large - middle == {
        f"retrieval.vector.ivfpq_{name}" for name in ("lists", "parts", "nprobe", "refine")
    }
    words = default_space(Corpus(chunks=8192, exact_rows_max=8192, embedded=False))
    assert {each.path for each in words} == {
        "ingest.chunks.max_tokens",
        "ingest.chunks.overlap_tokens",
        "retrieval.candidates",
        "retrieval.lexical.heading_repeats",
    }


def test_how_many_are_ordered_anew_matters_only_with_a_reranker() -> None:
    def paths(*backends: str) -> set[str]:
        corpus = Corpus(chunks=100, exact_rows_max=8192, rerankers=backends)
        return {each.path for each in default_space(corpus) if each.path.startswith("rerank")}

    assert paths() == paths("off") == set()
    assert paths("off", "light") == {"rerank.backend", "rerank.candidates"}
    corpus = Corpus(chunks=100, exact_rows_max=8192, rerankers=("off", "light", "cascade"))
    [how_many] = [one for one in default_space(corpus) if one.path == "rerank.candidates"]
    drawn = {name: applies(how_many, {"rerank.backend": name}) for name in corpus.rerankers}
    assert drawn == {"off": False, "light": True, "cascade": True}


def test_hidden_headings_have_no_weight_to_tune() -> None:
    hidden = default_space(Corpus(chunks=100, exact_rows_max=8192, headings_hidden=True))
    assert "retrieval.lexical.heading_repeats" not in {each.path for each in hidden}


def test_the_default_space_holds_together() -> None:
    check_space(default_space(Corpus(chunks=10**6, exact_rows_max=8192)))
