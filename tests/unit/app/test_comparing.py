"""Questions are compared with sentences where that helps, and what was read is remembered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import msgspec
import numpy as np
import pytest

from forebay.app import comparing as comparing_module
from forebay.app.comparing import KeptSentences, open_comparing
from forebay.app.runtime import Reading
from forebay.app.settings import IngestSettings, Settings
from forebay.cache.embeddings import CachedEmbedder
from forebay.embedding.sentence_vectors import pack
from forebay.kernel.documents import Vectors
from forebay.kernel.errors import Unavailable
from forebay.kernel.sentences import SentenceScale, checksum
from forebay.kernel.stages import EmbedderSpec, GenerationRequest, Sampling
from forebay.pipeline.sentences import SentenceSettings
from forebay.testing.generation import context, passage

TEXT, OTHER = "The gate closes at nine.", "大门九点关闭。"
QUERY = Vectors((0,), 4, np.array([1, 0, 0, 0], "<f4").tobytes())
OTHERS = Vectors((0, 1), 4, np.array([[1, 0, 0, 0], [0, 1, 0, 0]], "<f4").tobytes())


class Reader:
    """Sentences of one or two chunks, the first at a cosine of one; counts what is asked."""

    def __init__(self, *, measured: bool = True, chunks: Sequence[int] = (1,)) -> None:
        self.kept = {1: pack([TEXT], QUERY), 2: pack([OTHER, "无关。"], OTHERS)}
        self.chunks = chunks
        self.scale = SentenceScale(0.2, 0.1) if measured else None
        self.fails = False
        self.asked: list[list[int]] = []

    def sentence_scale(self, maker: int) -> SentenceScale | None:
        return self.scale

    def sentences(self, kb: str, maker: int, chunk_ids: Sequence[int]) -> Mapping[int, bytes]:
        if self.fails:
            raise Unavailable("too many reads of the store are under way.")
        self.asked.append(list(chunk_ids))
        return {each: self.kept[each] for each in chunk_ids if each in self.chunks}


class Threads:
    """Runs beside the loop."""

    async def run(self, work: Callable[[], Any]) -> Any:
        return await asyncio.to_thread(work)


def comparing(
    reader: Reader, seen: Vectors | None = QUERY, *, reach: int = 0, within: bool = False
) -> KeptSentences:
    parts = {"threads": Threads(), "reader": reader, "embedder": Embedder()}
    reading = type("Reading", (), parts)

    async def vector_of(question: str) -> Vectors | None:
        return seen

    return KeptSentences(cast(Reading, reading), vector_of, 7, within=within, reach=reach)


def prompt(question: str, *texts: str) -> GenerationRequest:
    return GenerationRequest(
        question=question,
        language="en" if question.isascii() else "zh",
        messages=(),
        passages=tuple(passage(text, number=at) for at, text in enumerate(texts, 1)),
        sampling=Sampling(),
        max_output_tokens=9,
        prompt_tokens=9,
    )


async def test_sentences_are_told_in_deviations() -> None:
    reader = Reader()
    found = await comparing(reader).compared(context(), "kb", prompt("大门几点关？", TEXT))
    assert found.sentences == pytest.approx({checksum(TEXT): 8.0}, abs=0.1)
    assert reader.asked == [[1]]
    await comparing(reader, reach=1).compared(context(), "kb", prompt("When?", OTHER))
    assert reader.asked[1] == [0, 1, 2]


@pytest.mark.parametrize(
    ("question", "texts"),
    [
        ("When does it close?", (TEXT,)),
        ("大门几点关？", (OTHER,)),
        ("When does it close?", (TEXT, TEXT)),
        ("大门几点关？", ()),
    ],
)
async def test_nothing_is_read_where_words_can_meet(question: str, texts: tuple[str, ...]) -> None:
    reader, asked = Reader(), prompt(question, *texts)
    assert await comparing(reader).compared(context(), "kb", asked) is asked
    assert reader.asked == []


async def test_within_a_language_they_are_compared_where_nobody_else_reads_them() -> None:
    reader = Reader()
    part = comparing(reader, within=True)
    found = await part.compared(context(), "kb", prompt("When does it close?", TEXT, OTHER))
    assert found.sentences == pytest.approx({checksum(TEXT): 8.0}, abs=0.1)
    assert reader.asked == [[1, 2]]
    # What was read is kept; what was not there may come.
    await part.compared(context(), "kb", prompt("When does it close?", TEXT, OTHER))
    assert reader.asked == [[1, 2], [2]]
    again = await part.compared(context(), "kb", prompt("When does it close?", TEXT))
    assert again.sentences == found.sentences
    assert len(reader.asked) == 2


async def test_sentences_of_several_documents_are_compared_where_quotations_are_made() -> None:
    # The question's own vector is not known: words were sure of what they found.
    reader, asked = Reader(chunks=(1, 2)), prompt("When does it close?", TEXT, TEXT + " " + TEXT)
    found = await comparing(reader, within=True, seen=None).compared(context(), "kb", asked)
    assert found.likeness and found.sentences == {}
    alone = prompt("When does it close?", TEXT)
    found = await comparing(reader, within=True, seen=None).compared(context(), "kb", alone)
    assert found is alone


async def test_only_so_many_chunks_stay_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparing_module, "_IN_MEMORY", 1)
    reader = Reader()
    part = comparing(reader, within=True)
    for kb in ("a", "b", "a"):
        await part.compared(context(), kb, prompt("When does it close?", TEXT))
    assert len(reader.asked) == 3


async def test_sentences_of_passages_in_two_languages_are_compared_with_each_other() -> None:
    reader, asked = Reader(chunks=(1, 2)), prompt("大门几点关？", TEXT, OTHER)
    found = await comparing(reader, seen=None).compared(context(), "kb", asked)
    pair = sorted((checksum(TEXT), checksum(OTHER)))
    assert found.likeness[pair[0], pair[1]] == pytest.approx(8.0, abs=0.1)
    assert found.sentences == {} and reader.asked == [[1, 2]]
    failing = Reader()
    failing.fails = True
    assert await comparing(failing).compared(context(), "kb", asked) is asked
    unmeasured = await comparing(Reader(measured=False)).compared(context(), "kb", asked)
    assert unmeasured.likeness == {}


async def test_answers_do_without_where_it_is_not_known() -> None:
    asked = prompt("大门几点关？", TEXT)
    assert await comparing(Reader(), seen=None).compared(context(), "kb", asked) is asked
    unmeasured = await comparing(Reader(measured=False)).compared(context(), "kb", asked)
    assert unmeasured.sentences == {}
    reader = Reader()
    reader.fails = True
    assert await comparing(reader).compared(context(), "kb", asked) is asked


class Embedder:
    """Makes and remembers one vector."""

    spec = EmbedderSpec("fake", "f", 4, 512)

    def __init__(self) -> None:
        self.made = 0

    def seen(self, text: str) -> Vectors | None:
        return QUERY

    async def embed(self, texts: Sequence[str], *, kind: str) -> Vectors:
        self.made += 1
        return QUERY


def reading(sentences: SentenceSettings, embedder: Embedder | None) -> Reading:
    settings = msgspec.structs.replace(Settings(), ingest=IngestSettings(sentences=sentences))
    parts = {"settings": settings, "embedder": embedder, "reader": Reader(), "threads": Threads()}
    return cast(Reading, type("Reading", (), parts))


def test_it_is_off_without_what_it_needs() -> None:
    assert open_comparing(reading(SentenceSettings(), None), None) is None
    assert open_comparing(reading(SentenceSettings(enabled=False), Embedder()), None) is None


async def test_a_question_is_embedded_again_only_where_nobody_remembers() -> None:
    asked = prompt("大门几点关？", TEXT)
    for remembering, made in ((True, 0), (False, 1)):
        embedder = Embedder()
        cached = cast(CachedEmbedder, embedder) if remembering else None
        part = open_comparing(reading(SentenceSettings(), embedder), cached)
        assert part is not None
        assert (await part.compared(context(), "kb", asked)).sentences
        assert embedder.made == made
