"""Stored values: what comes back is what was stored, or nothing."""

from __future__ import annotations

import pickle
import struct
from array import array

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forebay.cache import values
from forebay.cache.values import (
    KIND_ANSWER,
    KIND_RETRIEVAL,
    Codec,
    StructCodec,
    VectorCodec,
    retrieval_codec,
)
from forebay.kernel.caching import Evidence, LegList
from forebay.kernel.documents import ChunkRow, Hit, Vectors
from forebay.kernel.stages import SearchResult

KEY = b"k" * 16


def vectors(rows: int = 1, dimensions: int = 8) -> Vectors:
    data = array("f", [number / 7 for number in range(rows * dimensions)]).tobytes()
    return Vectors(tuple(range(rows)), dimensions, data)


def result(hits: int = 2) -> SearchResult:
    row = ChunkRow(
        chunk_id=2**40,
        document_id="文档/a.md",
        ordinal=3,
        start=0,
        end=4,
        text="水坝\N{WATER WAVE}\0",
        context="",
        tokens=3,
        page=None,
        heading_path=("一", "b"),
        title="t",
        source="s",
        language="zh",
        tags=("x",),
        groups=(),
        metadata={"k": "v"},
        version=9,
    )
    evidence = Evidence(
        chunks=10,
        words=LegList((1, 2), (2.5, 1.25), True),
        vectors=None,
        fused=LegList((1,), (0.1 + 0.2,)),
        constants=bytes(range(256)),
        limit=100,
        lead=0.05,
    )
    return SearchResult((Hit(row, 1 / 3, bm25=2.5, cosine=None),) * hits, "bm25", 7, evidence)


class Answer(msgspec.Struct, frozen=True):
    text: str
    documents: tuple[str, ...] = ()


class AnswerWithMore(msgspec.Struct, frozen=True):
    text: str
    documents: tuple[str, ...] = ()
    refused: bool = False


ANSWER = Answer("水坝 [1]", ("a",))
STORED: list[tuple[Codec[object], object]] = [
    (VectorCodec(8), vectors(1)),  # type: ignore[list-item]
    (VectorCodec(8), vectors(3)),  # type: ignore[list-item]
    (VectorCodec(8), vectors(0)),  # type: ignore[list-item]
    (retrieval_codec(), result()),  # type: ignore[list-item]
    (retrieval_codec(), SearchResult((), "keyword", 1)),  # type: ignore[list-item]
    (StructCodec(KIND_ANSWER, Answer), ANSWER),  # type: ignore[list-item]
]


@pytest.mark.parametrize(("codec", "value"), STORED)
def test_what_was_stored_comes_back(codec: Codec[object], value: object) -> None:
    assert codec.decode(KEY, codec.encode(KEY, value)) == value


@pytest.mark.parametrize(("codec", "value"), STORED)
def test_cut_or_longer_is_nothing(codec: Codec[object], value: object) -> None:
    data = codec.encode(KEY, value)
    assert all(codec.decode(KEY, data[:size]) is None for size in range(len(data)))
    assert codec.decode(KEY, data + b"\0") is None


@pytest.mark.parametrize(("codec", "value"), STORED)
def test_every_flipped_bit_is_noticed(codec: Codec[object], value: object) -> None:
    data = codec.encode(KEY, value)
    for at in range(len(data)):
        for bit in range(8):
            poisoned = bytearray(data)
            poisoned[at] ^= 1 << bit
            assert codec.decode(KEY, bytes(poisoned)) is None


@pytest.mark.parametrize(("codec", "value"), STORED)
def test_under_another_key_it_is_nothing(codec: Codec[object], value: object) -> None:
    data = codec.encode(KEY, value)
    assert codec.decode(b"j" * 16, data) is None
    assert codec.decode(KEY + data[12:13], data[:12] + data[13:]) is None


def test_kinds_are_apart_also_where_they_look_alike() -> None:
    data = StructCodec(KIND_ANSWER, Answer).encode(KEY, ANSWER)
    assert StructCodec(KIND_RETRIEVAL, Answer).decode(KEY, data) is None
    assert VectorCodec(8).decode(KEY, data) is None


def test_another_format_version_is_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    data = StructCodec(KIND_ANSWER, Answer).encode(KEY, ANSWER)
    monkeypatch.setattr(values, "FORMAT_VERSION", values.FORMAT_VERSION + 1)
    assert StructCodec(KIND_ANSWER, Answer).decode(KEY, data) is None


def test_a_type_that_got_a_field_reads_nothing_of_before() -> None:
    data = StructCodec(KIND_ANSWER, Answer).encode(KEY, ANSWER)
    assert StructCodec(KIND_ANSWER, AnswerWithMore).decode(KEY, data) is None


def test_another_embedders_size_is_nothing() -> None:
    assert VectorCodec(4).decode(KEY, VectorCodec(8).encode(KEY, vectors(1))) is None


@pytest.mark.parametrize(
    "data",
    [b"", b"\0", b"FB", b"FB\x01\x03", pickle.dumps(ANSWER), b"\x91" * 300_000, b"FB\x01\x03" * 9],
)
def test_anything_else_is_nothing(data: bytes) -> None:
    for codec, _ in STORED:
        assert codec.decode(KEY, data) is None


def test_a_body_that_proves_itself_and_is_none_is_nothing_all_the_same() -> None:
    codec = StructCodec(KIND_ANSWER, Answer)
    for body in (b"", b"\xc1", b"\x91" * 300_000, b"\x81\xa4text\xa1\xff", b"\x81\xa4text\x01"):
        assert codec.decode(KEY, codec._envelope.seal(KEY, body)) is None
    vector = VectorCodec(8)
    for body in (b"", b"\0" * 7, struct.pack("<II", 2**31, 8), struct.pack("<II", 1, 8) + b"\0"):
        assert vector.decode(KEY, vector._envelope.seal(KEY, body)) is None


@settings(deadline=None)
@given(st.binary(max_size=64))
def test_nothing_random_is_a_value(data: bytes) -> None:
    for codec, _ in STORED:
        assert codec.decode(KEY, data) is None
        assert codec.decode(KEY, b"FB\x01\x02" + data) is None


def test_vectors_are_stored_as_they_are() -> None:
    one = vectors(1, 384)
    data = VectorCodec(384).encode(KEY, one)
    assert data.endswith(one.data) and len(data) == 20 + 4 * 384


@settings(deadline=None)
@given(st.lists(st.floats(width=32), min_size=8, max_size=8))
def test_numbers_keep_every_bit(numbers: list[float]) -> None:
    one = Vectors((0,), 8, struct.pack("<8f", *numbers))
    assert VectorCodec(8).decode(KEY, VectorCodec(8).encode(KEY, one)) == one
