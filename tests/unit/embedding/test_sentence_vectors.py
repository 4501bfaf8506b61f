"""Vectors of sentences as they are kept: small, found again by text, measured per embedder."""

from __future__ import annotations

import numpy as np
import pytest

from forebay.embedding.sentence_vectors import (
    Likeness,
    cosines,
    maker_of,
    nearest,
    pack,
    scale_by,
    unrelated_sentences,
)
from forebay.kernel.documents import Vectors
from forebay.kernel.sentences import SentenceScale, checksum


def unit(count: int, dimensions: int = 384, seed: int = 1) -> Vectors:
    rows = np.random.default_rng(seed).normal(size=(count, dimensions)).astype("<f4")
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return Vectors(tuple(range(count)), dimensions, rows.tobytes())


def test_cosines_are_found_again_by_text() -> None:
    texts = ["One thing.", "另一件事。", "A third."]
    vectors, query = unit(3), unit(1, seed=2)
    blob = pack(texts, vectors)
    assert len(blob) == 3 * (384 + 8)
    rows = np.frombuffer(vectors.data, "<f4").reshape(3, 384)
    exact = rows @ np.frombuffer(query.data, "<f4")
    found = cosines(blob, query)
    assert list(found) == [checksum(text) for text in texts]
    assert list(found.values()) == pytest.approx(exact.tolist(), abs=0.002)


def test_blobs_of_several_chunks_are_read_as_one() -> None:
    query = unit(1, seed=2)
    one, two = pack(["a", "b"], unit(2)), pack(["c"], unit(1, seed=3))
    apart = cosines(one, query) | cosines(two, query)
    # Products of other shapes differ in the last digits, by the machine's BLAS.
    assert cosines(one + two, query) == pytest.approx(apart, abs=1e-6)


def test_what_is_of_another_size_holds_nothing() -> None:
    assert cosines(b"", unit(1)) == {}
    assert cosines(pack(["a"], unit(1, 8)), unit(1)) == {}
    assert cosines(pack(["a"], Vectors((0,), 4, bytes(16))), unit(1, 4)) == {checksum("a"): 0.0}


def test_the_nearest_sentence_of_each_chunk() -> None:
    query = unit(1, seed=2)
    one, two = pack(["a", "b"], unit(2)), pack(["c"], unit(1, seed=3))
    found = nearest([one, b"", two, b""], query.data, 384)
    assert found[0] == pytest.approx(max(cosines(one, query).values()))
    assert found[2] == pytest.approx(max(cosines(two, query).values()))
    assert np.isnan(found[1]) and np.isnan(found[3])
    assert np.isnan(nearest([b""], query.data, 384)).all()
    assert nearest([one, pack(["d"], unit(1, 8))], query.data, 384) == []


def test_makers_are_apart_and_fit_a_column() -> None:
    made = {maker_of(name) for name in ("f1", "f2", "")}
    assert len(made) == 3 and all(0 <= one < 2**63 for one in made)
    assert maker_of("f1") == maker_of("f1")


def test_an_embedder_is_measured_by_sentences_in_both_languages() -> None:
    texts = unrelated_sentences()
    assert len(set(texts)) == 48 and all(texts)
    assert sum(text.isascii() for text in texts) == 24
    scale = scale_by(unit(48))
    assert abs(scale.mean) < 0.01 and 0.04 < scale.deviation < 0.06
    assert scale.of(scale.mean + 2 * scale.deviation) == pytest.approx(2.0)
    with pytest.raises(ValueError, match="too few"):
        scale_by(unit(3))


def test_sentences_of_two_chunks_are_compared_with_each_other() -> None:
    one, other, strange = (np.eye(3, 384, at, dtype="<f4")[:1] for at in (0, 0, 5))
    here = pack(["a", "b"], Vectors((0, 1), 384, np.vstack([one, strange]).tobytes()))
    there = pack(["c"], Vectors((0,), 384, other.tobytes()))
    scale = SentenceScale(0.25, 0.1)
    a, b, c = map(checksum, "abc")
    found = Likeness([here, there], 384, scale)
    assert found and len(found) == 3
    assert set(found) == {(min(pair), max(pair)) for pair in ((a, b), (a, c), (b, c))}
    assert found[min(a, c), max(a, c)] == pytest.approx(7.5, abs=0.1)
    assert found[min(b, c), max(b, c)] == pytest.approx(-2.5, abs=0.1)
    assert found.get((a, checksum("unknown")), 0.0) == 0.0


def test_nothing_is_compared_with_what_is_of_another_size() -> None:
    here = pack(["a"], unit(1))
    for blobs in ([], [here], [here, b"of another size"], [here, b""]):
        found = Likeness(blobs, 384, SentenceScale(0.25, 0.1))
        assert not found and found.get((1, 2)) is None


def test_deviations_are_counted_both_ways() -> None:
    scale = SentenceScale(0.25, 0.1)
    assert scale.of(scale.cosine(1.6)) == pytest.approx(1.6)
