"""Answers, near misses and contradictions over written scenes, in Chinese, English and across.

    python benchmarks/answers/measure.py > benchmarks/answers/result.json
    python benchmarks/answers/measure.py --show        # the development half's failures, too
    python benchmarks/answers/measure.py --alike       # sentences in two languages compared, too

A scene has two things of a kind that the documents tell of, and a third that they do not. Its
facts are stated of both things, of one of them alone, or twice and differently. Each part of the
scenes makes knowledge bases of its own, in either language and mixed (the second documents in the
other language); every question goes through the production retriever with the built-in embedder
and its five hits to the extractive generator. ``unseen.toml``, ``fresh.toml`` and
``sealed.toml`` are looked at as sums only; all but ``unseen`` have pages of prose, too, asked about
as people do.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import re
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np

from forebay.context import language_of
from forebay.embedding.opening import open_embedder
from forebay.embedding.sentence_vectors import Likeness as SentenceLikeness
from forebay.embedding.sentence_vectors import pack, scale_by, unrelated_sentences
from forebay.embedding.settings import EmbeddingSettings
from forebay.generation import ExtractiveGenerator
from forebay.generation.passages import PassageCache
from forebay.kernel.clock import SystemClock
from forebay.kernel.documents import Hit
from forebay.kernel.sentences import SentenceScale
from forebay.kernel.stages import Embedder, GenerationRequest, Sampling, SearchRequest
from forebay.retrieval import HybridRetriever, KbIndex, RetrievalSettings, search_executor
from forebay.testing.embedding import WordCounter
from forebay.testing.generation import context
from forebay.testing.index_feed import MemoryIndexFeed

HERE = Path(__file__).resolve().parent
PARTS = ("development", "unseen", "fresh", "sealed")
PAGES = ("development", "fresh", "sealed")
LANGUAGES = ("en", "zh")
Likeness = Mapping[tuple[int, int], float]
Kind = Literal["answerable", "twice alike", "near miss", "unstated", "contradictory", "unrelated"]


class Question(msgspec.Struct, frozen=True):
    """A question, what it is to show, and the values an answer must hold, spellings apart.

    ``answerable``: stated once. ``twice alike``: twice, in two notations. ``near miss``: stated of
    a sibling only. ``unstated``: the thing is known, this of it is not. ``unrelated``: of another
    part.
    """

    kind: Kind
    text: str
    values: tuple[str, ...] = ()


class Row(msgspec.Struct, frozen=True):
    """One question's end."""

    half: str
    pair: str
    question: Question
    refused: bool
    held: int
    text: str
    milliseconds: float


def scenes(half: str, what: str = "scene") -> list[dict[str, Any]]:
    """The scenes of one part, or its pages."""
    with (HERE / f"{half}.toml").open("rb") as file:
        found: list[dict[str, Any]] = tomllib.load(file)[what]
    return found


def filled(template: str, thing: str, value: str = "") -> str:
    """A template with its thing and value in place; a sentence begins with a capital."""
    text = template.format(x=thing, X=thing[0].upper() + thing[1:], v=value, V=value)
    return text[0].upper() + text[1:]


def documents(half: str, first: str, second: str) -> Iterator[tuple[str, str]]:
    """(document, text): the scenes in one language, what is said again of them in another."""
    for number, scene in enumerate(scenes(half)):
        a, b = scene[first][:2]
        facts = [fact[:4] if first == "en" else fact[4:] for fact in scene["facts"]]
        of_a = [filled(facts[at][1], a, facts[at][3][0]) for at in (0, 1, 2)]
        of_b = [filled(facts[at][1], b, facts[at][3][at < 2]) for at in (0, 1, 3)]
        between = " " if first == "en" else ""
        if number % 2:
            yield f"{half}-{number}-a", between.join(of_a)
            yield f"{half}-{number}-b", between.join(of_b)
        else:
            yield f"{half}-{number}", "\n\n".join((between.join(of_a), between.join(of_b)))
        a, b = scene[second][:2]
        facts = [fact[:4] if second == "en" else fact[4:] for fact in scene["facts"]]
        for at, thing in ((0, b), (2, a), (3, b)):
            yield f"{half}-{number}-{at}", filled(facts[at][2], thing, facts[at][3][-1])


def questions(half: str, asked: str, first: str, second: str) -> Iterator[Question]:
    """The questions of one half in one language, with values as the documents write them."""
    side = slice(0, 4) if first == "en" else slice(4, 8)
    again = slice(0, 4) if second == "en" else slice(4, 8)
    for scene in scenes(half):
        a, b, c = scene[asked]
        texts = [fact[0 if asked == "en" else 4] for fact in scene["facts"]]
        values = [fact[side][3] for fact in scene["facts"]]
        others = [fact[again][3][-1] for fact in scene["facts"]]
        yield Question("answerable", filled(texts[0], a), (values[0][0],))
        yield Question("answerable", filled(texts[1], a), (values[1][0],))
        yield Question("answerable", filled(texts[1], b), (values[1][1],))
        yield Question("twice alike", filled(texts[0], b), (values[0][1], others[0]))
        yield Question("contradictory", filled(texts[2], a), (values[2][0], others[2]))
        yield Question("contradictory", filled(texts[3], b), (values[3][0], others[3]))
        for at in (0, 1):
            yield Question("near miss", filled(texts[at], c))
        yield Question("near miss", filled(texts[3], a))
        yield Question("near miss", filled(texts[2], b))
        for absent, thing in zip(scene["absent"], (a, b), strict=True):
            yield Question("unstated", filled(absent[asked == "zh"], thing))
    for scene in scenes(PARTS[half == PARTS[0]]):
        fact = scene["facts"][1]
        yield Question("unrelated", filled(fact[0 if asked == "en" else 4], scene[asked][0]))


def prose(half: str, language: str) -> tuple[list[tuple[str, str]], list[tuple[str, Question]]]:
    """The pages of a part in one language, and (language pair, question) in both."""
    pages = scenes(half, "page")
    asked = []
    for page in pages:
        for kind, english, values, chinese, others in page["ask"]:
            there = tuple(values if language == "en" else others)
            asked += [
                (f"{one} on {language}", Question(kind, text, there))
                for one, text in (("en", english), ("zh", chinese))
            ]
    return [(f"{half}-page-{at}", page[language]) for at, page in enumerate(pages)], asked


class Asker:
    """Puts questions to the knowledge bases; hits are kept, so that generators can be compared."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder

    async def fill(self, record: MemoryIndexFeed, texts: Sequence[tuple[str, str]]) -> None:
        """Commit documents of one chunk each, with their vectors."""
        ids = [
            record.add(text, document=name, language=language_of(text))[0] for name, text in texts
        ]
        found = await self._embedder.embed([text for _, text in texts], kind="passage")
        rows = np.frombuffer(found.data, "<f4").reshape(len(ids), -1)
        record.embed(dict(zip(ids, rows, strict=True)))

    async def hits(
        self, half: str, first: str, second: str
    ) -> list[tuple[str, Question, tuple[Hit, ...]]]:
        """Every question over one knowledge base with what was found for it."""
        asked = []
        for language in LANGUAGES:
            pair = (
                f"{language} on {first}" if first == second else f"{language} on {first}+{second}"
            )
            asked += [
                (pair, question)
                for question in questions(half, language, first, second)
                if first == second or question.kind not in ("near miss", "unstated", "unrelated")
            ]
        return await self.found(list(documents(half, first, second)), asked)

    async def found(
        self, texts: Sequence[tuple[str, str]], asked: Sequence[tuple[str, Question]]
    ) -> list[tuple[str, Question, tuple[Hit, ...]]]:
        """What is found for each of (language pair, question) in a knowledge base of ``texts``."""
        record = MemoryIndexFeed(self._embedder.spec.dimensions)
        await self.fill(record, texts)
        rows = []
        with tempfile.TemporaryDirectory() as folder, search_executor(1) as pool:
            fingerprint = self._embedder.spec.fingerprint
            index = KbIndex.open(
                Path(folder), "kb", record, writable=True, fingerprint=lambda: fingerprint
            )
            retriever = HybridRetriever(lambda kb: index, self._embedder, RetrievalSettings(), pool)
            for pair, question in asked:
                request = SearchRequest(kb="kb", query=question.text)
                found = await retriever.retrieve(context(), request)
                rows.append((pair, question, found.hits))
            index.close()
        return rows


def answer(
    generator: ExtractiveGenerator,
    half: str,
    pair: str,
    question: Question,
    hits: tuple[Hit, ...],
    likeness: Likeness,
) -> Row:
    """Answer one question and look at the answer."""
    request = GenerationRequest(
        question=question.text,
        language=language_of(question.text),
        messages=(),
        passages=hits,
        sampling=Sampling(),
        max_output_tokens=1024,
        prompt_tokens=0,
        likeness=likeness,
    )
    begun = time.perf_counter()
    draft = generator.draft(request)
    took = 1000 * (time.perf_counter() - begun)
    text = "".join(draft.pieces)
    held = sum(holds(text, value) for value in question.values)
    return Row(half, pair, question, draft.refused, held, text, took)


def holds(text: str, value: str) -> bool:
    """Whether a value stands in a text, by itself."""
    text = re.sub(r"\[\d+\]", "", text).lower()
    edge = r"(?<![\w.,:])" if value[0].isascii() else ""
    end = r"(?![\d])" if value[-1].isdigit() else ""
    digits = r"(?<![\d.,:])" if value[0].isdigit() else edge
    return re.search(digits + re.escape(value.lower()) + end, text) is not None


def share(hit: int, count: int) -> dict[str, Any]:
    """A share with Wilson's 95 % interval."""
    if not count:
        return {"count": 0}
    z, p = 1.96, hit / count
    middle = (p + z * z / (2 * count)) / (1 + z * z / count)
    half = z / (1 + z * z / count) * math.sqrt(p * (1 - p) / count + z * z / (4 * count * count))
    low, high = round(middle - half, 3), round(middle + half, 3)
    return {"share": round(p, 3), "interval": [max(low, 0.0), high], "count": count}


def _scripts(text: str) -> int:
    """In how many scripts an answer quotes: a second one is another document's."""
    quotes = [line for line in text.splitlines() if line.startswith(">")]
    return len({re.search("[一-龥]", quote) is None for quote in quotes})


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """Rates of one group of rows."""

    def of(kinds: Sequence[Kind], good: Any) -> dict[str, Any]:
        mine = [row for row in rows if row.question.kind in kinds]
        return share(sum(map(good, mine)), len(mine))

    return {
        "answerable, refused": of(("answerable", "twice alike"), lambda r: r.refused),
        "answerable, wrong": of(
            ("answerable", "twice alike"), lambda r: not r.refused and not r.held
        ),
        "answerable, a value too many": of(
            ("answerable",), lambda r: r.held and _scripts(r.text) > 1
        ),
        "near miss, answered": of(("near miss",), lambda r: not r.refused),
        "unstated, answered": of(("unstated",), lambda r: not r.refused),
        "unrelated, answered": of(("unrelated",), lambda r: not r.refused),
        "contradictory, both sides": of(("contradictory",), lambda r: r.held == 2),
        "contradictory, one side": of(("contradictory",), lambda r: not r.refused and r.held < 2),
        "contradictory, refused": of(("contradictory",), lambda r: r.refused),
        "ms_median": round(float(np.median([row.milliseconds for row in rows])), 3),
        "ms_p99": round(float(np.percentile([row.milliseconds for row in rows], 99)), 3),
    }


KINDS = ("en on en", "zh on zh", "zh on en", "en on zh", "en on en+zh", "zh on en+zh",
         "en on zh+en", "zh on zh+en")  # fmt: skip


def table(rows: Sequence[Row]) -> dict[str, Any]:
    """Rates by half and language pair; ``same`` and ``across`` are sums."""
    found: dict[str, Any] = {}
    for half in (*PARTS, *(f"{part}, prose" for part in PAGES)):
        mine = [row for row in rows if row.half == half]
        groups = {pair: [row for row in mine if row.pair == pair] for pair in KINDS}
        groups["same"] = groups["en on en"] + groups["zh on zh"]
        groups["across"] = groups["zh on en"] + groups["en on zh"]
        groups["mixed"] = [row for row in mine if "+" in row.pair]
        found[half] = {name: summary(group) for name, group in groups.items() if group}
    return found


Asked = tuple[str, str, Question, tuple[Hit, ...], Likeness]


async def everything(*, alike: bool) -> list[Asked]:
    """Every question of all parts with its hits, and how like their sentences are where they are in
    two languages, if ``alike``.
    """
    embedder = await open_embedder(
        EmbeddingSettings(),
        cache=Path.home() / ".cache" / "forebay-bench" / "models",
        clock=SystemClock(),
    )
    if embedder is None:
        raise SystemExit("no embedder is configured")
    asker = Asker(embedder)
    found = []
    for half in PARTS:
        for first in LANGUAGES:
            for second in LANGUAGES:
                rows = await asker.hits(half, first, second)
                found += [(half, pair, question, hits) for pair, question, hits in rows]
        print(f"asked {half}", file=sys.stderr)
    for half in PAGES:
        for language in LANGUAGES:
            rows = await asker.found(*prose(half, language))
            found += [(f"{half}, prose", pair, question, hits) for pair, question, hits in rows]
    comparing = await Comparing.with_scale(embedder) if alike else None
    asked: list[Asked] = []
    for half, pair, question, hits in found:
        two = comparing is not None and "+" in pair
        asked.append((half, pair, question, hits, await comparing.of(hits) if two else {}))
    await embedder.close()
    return asked


class Comparing:
    """How like sentences are to each other, by such vectors as are kept at ingest."""

    def __init__(self, embedder: Embedder, scale: SentenceScale) -> None:
        self._embedder = embedder
        self._scale = scale
        self._cut = PassageCache()
        self._blobs: dict[str, bytes] = {}

    @classmethod
    async def with_scale(cls, embedder: Embedder) -> Comparing:
        """Measured by unrelated sentences."""
        vectors = await embedder.embed(unrelated_sentences(), kind="passage")
        return cls(embedder, scale_by(vectors))

    async def of(self, hits: Sequence[Hit]) -> Likeness:
        """In deviations of unrelated sentences."""
        for hit in hits:
            if hit.chunk.text not in self._blobs:
                said = [unit.said for unit in self._cut.get(hit).units]
                vectors = await self._embedder.embed(said, kind="passage")
                self._blobs[hit.chunk.text] = pack(said, vectors)
        blobs = [self._blobs[hit.chunk.text] for hit in hits]
        return SentenceLikeness(blobs, self._embedder.spec.dimensions, self._scale)


def main() -> None:
    """Ask, and print the result as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--show", action="store_true", help="development failures to stderr")
    parser.add_argument("--alike", action="store_true", help="sentences in two languages compared")
    chosen = parser.parse_args()
    asked = asyncio.run(everything(alike=chosen.alike))
    generator = ExtractiveGenerator(WordCounter())
    rows = [answer(generator, *one) for one in asked]
    if chosen.show:
        show(rows)
    print(json.dumps({"questions": len(rows), **table(rows)}, indent=1, ensure_ascii=False))


def show(rows: Sequence[Row]) -> None:
    """Print what went wrong in the development half."""
    for row in rows:
        if not row.half.startswith(PARTS[0]):
            continue
        kind = row.question.kind
        good = row.refused
        if kind in ("answerable", "twice alike"):
            good = row.held > 0
        elif kind == "contradictory":
            good = row.held == 2
        if not good:
            text = " ".join(row.text.split())
            print(f"{row.pair} | {kind} | {row.question.text} | {text}", file=sys.stderr)


if __name__ == "__main__":
    main()
