"""Documents cut by meaning: what is embedded, and what happens when nobody embeds."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Literal

import msgspec
import numpy as np
import pytest

from forebay.kernel.documents import ChunkDraft, Extracted, Vectors
from forebay.kernel.errors import EngineError, ForebayError, UnsupportedDocument
from forebay.pipeline.folders import FolderRequest, Parsed, ParseJob, content_hash, draft_of
from forebay.pipeline.meaning import (
    MeaningParser,
    MeaningSettings,
    breaks_of,
    neighbour_cosines,
)
from forebay.testing.embedding import HashEmbedder

TEXT = "Pumps pump. Pumps pump water. Pumps pump it up. Leave is granted. Leave is long."
TEXT_ZH = "水泵抽水。水泵抽很多水。水泵抽水很快。请假须申请。请假须批准。"


class Outline(msgspec.Struct, frozen=True):
    extracted: Extracted
    chunks: tuple[ChunkDraft, ...]
    sentences: tuple[tuple[int, int], ...]


def outline(text: str) -> Outline:
    stop = "。" if "。" in text else "."
    spans, at = [], 0
    for piece in text.split(stop)[:-1]:
        start = at + len(piece) - len(piece.lstrip())
        spans.append((start, at + len(piece) + 1))
        at += len(piece) + 1
    whole = ChunkDraft(0, 0, len(text), text, 20)
    return Outline(Extracted(text, (), "text/plain"), (whole,), tuple(spans))


class Parser:
    revision = "7"

    def __init__(self) -> None:
        self.breaks: list[tuple[int, ...]] = []

    async def parse_many(self, jobs: Sequence[ParseJob]) -> Sequence[Outline | ForebayError]:
        return [
            outline(job.data.decode()) if job.data else UnsupportedDocument("empty", code="empty")
            for job in jobs
        ]

    async def recut_many(
        self, jobs: Sequence[ParseJob], breaks: Sequence[tuple[int, ...]]
    ) -> Sequence[Outline | ForebayError]:
        self.breaks.extend(breaks)
        results: list[Outline | ForebayError] = []
        for job, at in zip(jobs, breaks, strict=True):
            text = job.data.decode()
            borders = [0, *at, len(text)]
            chunks = tuple(
                ChunkDraft(i, borders[i], borders[i + 1], text[borders[i] : borders[i + 1]], 5)
                for i in range(len(borders) - 1)
            )
            results.append(Outline(Extracted(text, (), "text/plain"), chunks, ()))
        return results


class Broken(HashEmbedder):
    async def embed(
        self, texts: Sequence[str], *, kind: Literal["query", "passage", "raw"]
    ) -> Vectors:
        raise EngineError("the embedder is gone.")


class Hung(HashEmbedder):
    async def embed(
        self, texts: Sequence[str], *, kind: Literal["query", "passage", "raw"]
    ) -> Vectors:
        await asyncio.Event().wait()
        raise AssertionError


def job(text: str) -> ParseJob:
    return ParseJob("a.txt", text.encode())


def only(results: Sequence[Parsed | ForebayError]) -> Parsed:
    [found] = results
    assert not isinstance(found, ForebayError)
    return found


@pytest.mark.parametrize(("text", "border"), [(TEXT, "Leave is granted"), (TEXT_ZH, "请假须申请")])
async def test_the_least_alike_neighbours_part(text: str, border: str) -> None:
    inner = Parser()
    parser = MeaningParser(inner, HashEmbedder(), 20.0, MeaningSettings(batch_size=2))
    found = only(await parser.parse_many([job(text)]))
    assert inner.breaks == [(text.index(border),)]
    assert len(found.chunks) == 2
    assert not found.provisional and not found.extracted.warnings


async def test_a_bad_file_costs_its_own_error_only() -> None:
    parser = MeaningParser(Parser(), HashEmbedder(), 20.0, MeaningSettings())
    first, second, third = await parser.parse_many([job(TEXT), job(""), job("One. Two.")])
    assert isinstance(second, UnsupportedDocument)
    assert not isinstance(first, ForebayError) and len(first.chunks) == 2
    assert not isinstance(third, ForebayError) and len(third.chunks) == 1


@pytest.mark.parametrize(
    ("embedder", "settings", "reason"),
    [
        (Broken(), MeaningSettings(), "the embedder failed (the embedder is gone)"),
        (Hung(), MeaningSettings(timeout_s=0.01), "the embedder took longer than 0.01 s"),
        (HashEmbedder(), MeaningSettings(max_sentences=4), "it has more than 4 sentences"),
    ],
)
async def test_what_cannot_be_embedded_keeps_its_structure_with_a_note(
    embedder: HashEmbedder, settings: MeaningSettings, reason: str
) -> None:
    inner = Parser()
    found = only(await MeaningParser(inner, embedder, 20.0, settings).parse_many([job(TEXT)]))
    assert not inner.breaks and len(found.chunks) == 1
    assert found.extracted.warnings == (f"It was cut by structure, not by meaning: {reason}.",)


async def test_a_failure_is_tried_again_by_the_next_ingest() -> None:
    request = FolderRequest("kb", "")
    broken = MeaningParser(Parser(), Broken(), 20.0, MeaningSettings())
    well = MeaningParser(Parser(), HashEmbedder(), 20.0, MeaningSettings())
    digest = content_hash(TEXT.encode(), broken.revision, request)
    assert broken.revision == well.revision
    hashes = [
        draft_of(only(await parser.parse_many([job(TEXT)])), "a", "a", digest, request).content_hash
        for parser in (broken, well)
    ]
    assert hashes == [f"{digest}:provisional", digest]


async def test_without_an_embedder_nothing_waits_for_one() -> None:
    parser = MeaningParser(Parser(), None, 20.0, MeaningSettings())
    found = only(await parser.parse_many([job(TEXT)]))
    assert not found.provisional
    assert "no embedder is configured" in found.extracted.warnings[0]


def test_another_embedder_or_parser_is_another_revision() -> None:
    settings = MeaningSettings()
    one = MeaningParser(Parser(), HashEmbedder(salt="a"), 20.0, settings).revision
    other = MeaningParser(Parser(), HashEmbedder(salt="b"), 20.0, settings).revision
    none = MeaningParser(Parser(), None, 20.0, settings).revision
    assert len({one, other, none}) == 3


def test_cosines_do_not_depend_on_batches() -> None:
    rows = np.eye(4, 8, dtype="<f4")
    rows[1] = rows[0]
    split = [
        Vectors((0, 1), 8, rows[:2].tobytes()),
        Vectors((0,), 8, rows[2:3].tobytes()),
        Vectors((0,), 8, rows[3:].tobytes()),
    ]
    whole = [Vectors((0, 1, 2, 3), 8, rows.tobytes())]
    assert neighbour_cosines(split).tolist() == neighbour_cosines(whole).tolist() == [1.0, 0.0, 0.0]
    assert neighbour_cosines([]).tolist() == []


def test_breaks_are_a_share_of_a_documents_own_neighbours() -> None:
    cosines = np.array([0.9, 0.71, 0.95, 0.8, 0.92], np.float32)
    crowded = 0.9 + cosines / 10
    starts = [0, 10, 20, 30, 40, 50]
    assert breaks_of(starts, cosines, 30.0) == breaks_of(starts, crowded, 30.0) == (20, 40)
    assert breaks_of(starts, np.full(5, 0.9, np.float32), 30.0) == ()
    assert breaks_of([0], np.empty(0, np.float32), 30.0) == ()
