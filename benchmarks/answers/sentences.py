"""What vectors of single sentences bring where question and documents are in two languages.

    python benchmarks/answers/sentences.py --data ../shared/data > benchmarks/answers/sentences.json
    … --fit       prints constants for NEARNESS in forebay.generation.nearness to stderr as well
    … --keep F    keeps what was found and embedded in a file, and reads it from there

XQuAD's questions over the other language's passages, the same without the passage that answers,
unrelated ones of other sets, and the scenes and pages of this folder, each answered twice: without
vectors of sentences, and with those that are kept at ingest (a byte a number). Constants are fitted
on XQuAD's questions with an even checksum and the development scenes; figures of XQuAD are of the
other half.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import natural  # noqa: E402
from measure import (  # noqa: E402  (of benchmarks/extractive)
    SPEC,
    context,
    embed,
    fill_corpus,
    half,
    lines,
    logistic,
    open_embedder,
    simplified,
)
from twice import ask_twice  # noqa: E402

from forebay.app.comparing import KeptSentences  # noqa: E402
from forebay.app.records import BlockingPool  # noqa: E402
from forebay.app.sentence_record import sentences_of  # noqa: E402
from forebay.context import language_of  # noqa: E402
from forebay.embedding.sentence_vectors import (  # noqa: E402
    cosines,
    pack,
    scale_by,
    unrelated_sentences,
)
from forebay.embedding.settings import EmbeddingSettings  # noqa: E402
from forebay.generation import ExtractiveGenerator  # noqa: E402
from forebay.generation.statements import named_share, open_share  # noqa: E402
from forebay.kernel.clock import SystemClock  # noqa: E402
from forebay.kernel.documents import Hit, Vectors  # noqa: E402
from forebay.kernel.sentences import SentenceScale  # noqa: E402
from forebay.kernel.stages import (  # noqa: E402
    Embedder,
    GenerationRequest,
    Sampling,
    SearchRequest,
)
from forebay.retrieval import (  # noqa: E402
    HybridRetriever,
    KbIndex,
    RetrievalSettings,
    search_executor,
)
from forebay.store import StoreWriter  # noqa: E402
from forebay.testing.embedding import WordCounter  # noqa: E402
from forebay.testing.feed_suite import draft_of, unit_vectors  # noqa: E402
from forebay.testing.index_feed import MemoryIndexFeed  # noqa: E402

_spec = importlib.util.spec_from_file_location("scenes", HERE / "measure.py")
assert _spec is not None and _spec.loader is not None
scenes = importlib.util.module_from_spec(_spec)
sys.modules["scenes"] = scenes
_spec.loader.exec_module(scenes)

READ = (
    "share", "cosine_lead", "found", "window", "told", "open", "named",
    "nearest", "before_second", "before_middle",
)  # fmt: skip
FIELDS = READ[1:]
WORDS = READ[:7]
"""What is read of each answer, what the decision is fitted on, and what there is without."""


class Item(msgspec.Struct, frozen=True):
    """A question with what was found; ``values``: what an answer must hold one of."""

    group: str
    kind: str
    question: str
    hits: tuple[Hit, ...]
    values: tuple[str, ...] = ()

    def right(self, text: str) -> bool:
        """Whether a text holds the answer."""
        if self.group.startswith("xquad"):
            return any(value in text for value in self.values)
        # A table's row is quoted with the names of its columns.
        return any(
            all(scenes.holds(text, cell) for cell in value.split(" | ")) for value in self.values
        )


class Known(msgspec.Struct, frozen=True):
    """Vectors of questions, blobs of sentences by passage text, and the embedder's scale."""

    questions: dict[str, bytes]
    sentences: dict[str, bytes]
    scale: SentenceScale


class Outcome(msgspec.Struct, frozen=True):
    """How an item was answered; ``features``: None where words of the question can stand.

    ``unsure``: it is told as the nearest, and not as the answer.
    """

    item: Item
    refused: bool
    right: bool
    milliseconds: float
    features: tuple[float, ...] | None = None
    unsure: bool = False


async def found_in(
    data: Path, cache: Path, embedder: Embedder, asked: str, corpus: str
) -> list[Item]:
    """XQuAD's questions of one language over the documents of the other, and unrelated ones."""
    record = MemoryIndexFeed(SPEC.dimensions)
    await fill_corpus(record, corpus, data, cache, embedder)
    rows = natural.questions(data, asked, corpus)
    strange = unrelated(data, asked)
    vectors = await embed([*(row[0] for row in rows), *strange], embedder)
    group = f"xquad, {asked[-2:]} on {corpus[-2:]}"
    items = []
    with tempfile.TemporaryDirectory() as folder, search_executor(1) as pool:
        index = KbIndex.open(
            Path(folder), "kb", record, writable=True, fingerprint=lambda: SPEC.fingerprint
        )
        retriever = HybridRetriever(lambda kb: index, vectors, RetrievalSettings(), pool)

        async def hits_of(question: str) -> tuple[Hit, ...]:
            request = SearchRequest(kb="kb", query=question)
            return (await retriever.retrieve(context(), request)).hits

        for question, gold, answers in rows:
            hits = await hits_of(question)
            items.append(Item(group, "answerable", question, hits, answers))
            left = tuple(h for h in hits if h.chunk.document_id.split("/")[-1] not in gold)
            if not any(one in hit.chunk.text for one in answers for hit in left):
                items.append(Item(group, "near miss", question, left))
        for question in strange:
            hits = await hits_of(question)
            items.append(Item(group, "unrelated", question, hits))
        index.close()
    return items


def unrelated(data: Path, asked: str) -> list[str]:
    """Questions of other sets, in the language asked."""

    def some(name: str, count: int) -> list[str]:
        rows = lines(data / "retrieval" / name / "queries.jsonl")
        return [row["text"] for row in rows[:count]]

    if asked == "xquad_en":
        return [*some("hotpotqa_train100", 100), *some("scifact_train", 200)]
    written = (HERE.parent / "extractive" / "unrelated_zh.txt").read_text("utf-8").splitlines()
    return [*simplified(some("drcd_dev", 400)), *(line for line in written if line)]


async def gather(data: Path, cache: Path) -> tuple[list[Item], Known]:
    """Everything that is asked across languages, and the vectors of what was found."""
    embedder = await open_embedder(EmbeddingSettings(), cache=cache / "models", clock=SystemClock())
    if embedder is None:
        raise SystemExit("no embedder is configured")
    items = []
    for asked, corpus in (("xquad_zh", "xquad_en"), ("xquad_en", "xquad_zh")):
        items += await found_in(data, cache, embedder, asked, corpus)
    for part, pair, question, hits, *_ in await scenes.everything(alike=False):
        if "+" not in pair and pair[:2] != pair[-2:]:
            kind = {"twice alike": "answerable"}.get(question.kind, question.kind)
            items.append(Item(f"{part}, across", kind, question.text, hits, question.values))
    asked_ = sorted({item.question for item in items})
    questions = await embedder.embed(asked_, kind="query")
    size = 4 * questions.dimensions
    sentences = {}
    for item in items:
        for hit in item.hits:
            if hit.chunk.text not in sentences:
                sentences[hit.chunk.text] = await blob_of(hit, embedder)
    scale = scale_by(await embedder.embed(unrelated_sentences(), kind="passage"))
    await embedder.close()
    rows = (questions.data[at * size : (at + 1) * size] for at in range(len(asked_)))
    return items, Known(dict(zip(asked_, rows, strict=True)), sentences, scale)


async def blob_of(hit: Hit, embedder: Embedder) -> bytes:
    """What is kept at ingest of the sentences of a hit's chunk."""
    chunk = hit.chunk
    texts = sentences_of(chunk)
    return pack(texts, await embedder.embed(texts, kind="passage")) if texts else b""


def answered(
    generator: ExtractiveGenerator, item: Item, known: Known, *, by_sentences: bool
) -> Outcome:
    """Answer one question, with vectors of sentences or without."""
    request = GenerationRequest(
        question=item.question,
        language=language_of(item.question),
        messages=(),
        passages=item.hits,
        sampling=Sampling(),
        max_output_tokens=1024,
        prompt_tokens=0,
    )
    near: dict[int, float] = {}
    if by_sentences:
        data = known.questions[item.question]
        vector = Vectors((0,), len(data) // 4, data)
        blob = b"".join(known.sentences[hit.chunk.text] for hit in item.hits)
        near = {each: known.scale.of(cosine) for each, cosine in cosines(blob, vector).items()}
        request = msgspec.structs.replace(request, sentences=near)
    begun = time.perf_counter()
    draft = generator.draft(request)
    took = 1000 * (time.perf_counter() - begun)
    text = "".join(draft.pieces)
    features = features_of(generator, request) if by_sentences else None
    right = not draft.refused and item.right(text)
    return Outcome(item, draft.refused, right, took, features, draft.unsure)


def features_of(
    generator: ExtractiveGenerator, request: GenerationRequest
) -> tuple[float, ...] | None:
    """What the decision by sentences is made from, whatever it is; None: it is not made.

    The generator's own score is stood in for, so what is read is what it would read.
    """
    seen: list[tuple[float, ...]] = []

    def score(asked: Any, reading: Any, near: Any, chosen: Any) -> float:
        if not any(one.unit.kind in ("row", "code") or asked[0].shown(one.unit) for one in chosen):
            return -np.inf
        features, terms = reading.features, reading.terms
        lead = 2.0 if features.cosine_lead is None else features.cosine_lead
        seen.append(
            (
                features.share,
                lead,
                features.found,
                features.window,
                features.told,
                open_share(terms, reading, chosen),
                named_share(asked[1], terms, reading, chosen),
                near.nearest,
                near.before_second,
                near.before_middle,
            )
        )
        return 100.0

    module = sys.modules[ExtractiveGenerator.__module__]
    own = module.nearness_score  # type: ignore[attr-defined]
    module.nearness_score = score  # type: ignore[attr-defined]
    try:
        refused = generator.draft(request).refused
    finally:
        module.nearness_score = own  # type: ignore[attr-defined]
    return seen[0] if seen and not refused else None


def is_fitted_on(item: Item) -> bool:
    """Whether constants are fitted on it."""
    if item.group.startswith("xquad"):
        return half(item.question) == 0
    return item.group.startswith("development")


def fit(outcomes: Sequence[Outcome], quoted: Sequence[bool], fields: Sequence[str]) -> Any:
    """Coefficients and constant; each group weighs the same, a kind of negatives half as much as
    the positives. ``quoted``: whether what would be quoted holds the answer.
    """
    columns = [READ.index(field) for field in fields]
    rows, labels, weights = [], [], []
    groups: dict[tuple[str, str], list[int]] = {}
    for outcome, right in zip(outcomes, quoted, strict=True):
        item = outcome.item
        if outcome.features is None or not is_fitted_on(item):
            continue
        if item.kind == "contradictory" or (item.kind == "answerable" and not right):
            continue
        groups.setdefault((item.group, item.kind), []).append(len(rows))
        rows.append([outcome.features[at] for at in columns])
        labels.append(float(item.kind == "answerable"))
        weights.append(0.0)
    for (_, kind), members in groups.items():
        worth = 800.0 if kind == "answerable" else 400.0
        for at in members:
            weights[at] = worth / len(members)
    return logistic(np.array(rows), np.array(labels), np.array(weights))


def scores(outcomes: Sequence[Outcome], fields: Sequence[str], found: Any) -> np.ndarray:
    """Log-odds by a fit; what shows no such thing is far below."""
    columns = [READ.index(field) for field in fields]
    coefficients, constant = found
    return np.array(
        [
            -99.0
            if one.features is None
            else constant + float(np.dot(coefficients, [one.features[at] for at in columns]))
            for one in outcomes
        ]
    )


def auc(right: np.ndarray, wrong: np.ndarray) -> float:
    """Chance that a right one scores above a wrong one."""
    above = right[:, None] > wrong[None]
    level = right[:, None] == wrong[None]
    return round(float(np.mean(above) + 0.5 * np.mean(level)), 3)


def rates(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Shares of one group, by kind."""
    found: dict[str, Any] = {}
    for kind in ("answerable", "near miss", "unstated", "unrelated", "contradictory"):
        mine = [one for one in outcomes if one.item.kind == kind]
        if not mine:
            continue
        row = {
            "count": len(mine),
            "refused": natural.share(one.refused for one in mine),
            "told as the nearest": natural.share(one.unsure for one in mine),
        }
        if kind == "answerable":
            row["right"] = natural.share(one.right for one in mine)
            row["right, told as the nearest"] = natural.share(
                one.right and one.unsure for one in mine
            )
            row["wrong"] = natural.share(not one.refused and not one.right for one in mine)
        found[kind] = row
    found["ms_median"] = round(float(np.median([one.milliseconds for one in outcomes])), 3)
    return found


def table(before: Sequence[Outcome], after: Sequence[Outcome]) -> dict[str, Any]:
    """Rates by group without and with vectors of sentences; XQuAD by halves."""
    found: dict[str, Any] = {}
    for group in dict.fromkeys(one.item.group for one in before):
        parts = (("held out", False), ("fitted", True)) if "xquad" in group else (("", None),)
        for name, fitted in parts:
            rows = [
                at
                for at, one in enumerate(before)
                if one.item.group == group and fitted in (None, is_fitted_on(one.item))
            ]
            found[f"{group}, {name}" if name else group] = {
                "without": rates([before[at] for at in rows]),
                "with": rates([after[at] for at in rows]),
            }
    return found


def compared(after: Sequence[Outcome], quoted: Sequence[bool]) -> dict[str, Any]:
    """How well right answers are told from near misses, with the same choice of sentences."""
    found = {}
    for name, fields in (("words and passages", WORDS), ("with sentences", FIELDS)):
        values = scores(after, fields, fit(after, quoted, fields))
        for group in dict.fromkeys(one.item.group for one in after):
            mine = [
                at
                for at, one in enumerate(after)
                if one.item.group == group and not ("xquad" in group and is_fitted_on(one.item))
            ]
            right = [at for at in mine if after[at].item.kind == "answerable" and quoted[at]]
            near = [at for at in mine if after[at].item.kind == "near miss"]
            found.setdefault(group, {})[name] = auc(values[right], values[near])
    return found


def quotable(item: Item, known: Known) -> bool:
    """Whether what is chosen by sentences holds the answer, were it not refused."""
    if item.kind != "answerable":
        return False
    module = sys.modules[ExtractiveGenerator.__module__]
    own = module.nearness_score  # type: ignore[attr-defined]
    module.nearness_score = lambda *_: 100.0  # type: ignore[attr-defined]
    try:
        return answered(_GENERATOR, item, known, by_sentences=True).right
    finally:
        module.nearness_score = own  # type: ignore[attr-defined]


_GENERATOR = ExtractiveGenerator(WordCounter())


async def costs(items: Sequence[Item], known: Known) -> dict[str, float]:
    """What reading and comparing costs a request, across languages and within one, in ms.

    Over a store of everything that was found across languages, through the production part.
    """
    items = [item for item in items if item.hits and item.group.startswith("xquad")][:1000]
    chunks = {hit.chunk.text: hit for item in items for hit in item.hits}
    with tempfile.TemporaryDirectory() as folder, search_executor(4) as pool:
        store = StoreWriter(Path(folder))
        ids: dict[str, int] = {}
        texts = list(chunks)
        store.commit("kb", [draft_of(f"d{at}", text) for at, text in enumerate(texts)], [])
        for row in store.pending("kb", len(texts)):
            ids[row.text] = row.chunk_id
        store.store_vectors("kb", unit_vectors(sorted(ids.values())), "f")
        store.store_sentences("kb", 1, {ids[text]: known.sentences[text] for text in texts})
        store.store_scale(1, known.scale)
        vector = Vectors((0,), SPEC.dimensions, known.questions[items[0].question])
        parts = {"reader": store.reader, "threads": BlockingPool(pool), "embedder": None}
        reading: Any = type("Reading", (), parts)

        async def vector_of(question: str) -> Vectors:
            return vector

        part = KeptSentences(reading, vector_of, 1, within=True)
        took: dict[str, list[float]] = {"across": [], "within": []}
        for item in items:
            hits = tuple(
                msgspec.structs.replace(
                    hit, chunk=msgspec.structs.replace(hit.chunk, chunk_id=ids[hit.chunk.text])
                )
                for hit in item.hits
            )
            language = language_of(item.question)
            for name, asked in (("across", language), ("within", _OTHER[language])):
                prompt = GenerationRequest(item.question, asked, (), hits, Sampling(), 1024, 0)
                begun = time.perf_counter()
                found = await part.compared(context(), "kb", prompt)
                took[name].append(1000 * (time.perf_counter() - begun))
                assert found.sentences
        store.close()
    return {
        f"{name}_ms_{label}": round(float(np.percentile(values, at)), 4)
        for name, values in took.items()
        for label, at in (("median", 50), ("p99", 99))
    }


_OTHER = {"zh": "en", "en": "zh"}


def threshold(before: Sequence[Outcome], after: Sequence[Outcome], values: np.ndarray) -> float:
    """Where of no fitted group more near misses are answered than without."""
    near: dict[str, list[int]] = {}
    for at, one in enumerate(after):
        if one.item.kind == "near miss" and is_fitted_on(one.item):
            near.setdefault(one.item.group, []).append(at)
    return max(
        float(np.quantile(values[rows], np.mean([before[at].refused for at in rows])))
        for rows in near.values()
    )


def main() -> None:
    """Ask, and print the result as JSON."""
    asked = ask_twice(__doc__, gather, partial(answered, _GENERATOR))
    items, known, before, after = asked.items, asked.known, asked.before, asked.after
    quoted = [quotable(item, known) for item in items]
    if asked.fit:
        found = fit(after, quoted, FIELDS)
        least = threshold(before, after, scores(after, FIELDS, found))
        told = {"constant": round(found[1] - least, 2)}
        told |= {field: round(float(one), 2) for field, one in zip(FIELDS, found[0], strict=True)}
        print(told, file=sys.stderr)
    kept = [len(blob) for blob in known.sentences.values()]
    result = {
        "scale": msgspec.structs.asdict(known.scale),
        "bytes_a_chunk": {"mean": round(float(np.mean(kept))), "chunks": len(kept)},
        "comparing": asyncio.run(costs(items, known)),
        "auc": compared(after, quoted),
        "groups": table(before, after),
    }
    print(json.dumps(result, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
