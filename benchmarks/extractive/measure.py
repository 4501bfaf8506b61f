"""Refusals and quotations of the extractive generator, and the fit of its constants.

    python benchmarks/extractive/measure.py --data ../shared/data --cache ~/.cache/forebay-bench
    … --fit     prints constants for SUPPORT in forebay.generation.extractive as well

Questions are put through the production retriever (five hits), with vectors and without, and its
hits to the generator. Constants are fitted on the questions whose checksum is even (those over
``examples/handbook``, colloquial and few, on all of them); figures are given for all questions
and for the held-out half. Unrelated questions come from other sets and ``unrelated_zh.txt``;
where the package ``opencc`` is installed, DRCD's questions are asked in simplified characters too.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import json
import random
import sys
import tempfile
import time
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "retrieval"))

from quality import (  # noqa: E402
    SPEC,
    CachedEmbedder,
    embed_sets,
    fill,
    lines,
    load_vectors,
    read,
)

from forebay.context import language_of  # noqa: E402
from forebay.embedding.opening import open_embedder  # noqa: E402
from forebay.embedding.settings import EmbeddingSettings  # noqa: E402
from forebay.generation import ExtractiveGenerator  # noqa: E402
from forebay.generation.support import Features  # noqa: E402
from forebay.generation.terms import question_terms  # noqa: E402
from forebay.ingest import EstimatedTokenCounter  # noqa: E402
from forebay.ingest.chunker import StructureChunker  # noqa: E402
from forebay.ingest.registry import parse  # noqa: E402
from forebay.ingest.settings import ChunkSettings  # noqa: E402
from forebay.kernel.clock import SystemClock  # noqa: E402
from forebay.kernel.documents import Hit  # noqa: E402
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
from forebay.testing.embedding import WordCounter  # noqa: E402
from forebay.testing.generation import context  # noqa: E402
from forebay.testing.index_feed import MemoryIndexFeed  # noqa: E402

EXAMPLES = HERE.parent.parent / "examples"
SEED = 7
FIELDS = ("window", "found", "names_missing", "share", "cosine_lead")
Array = npt.NDArray[np.float64]


class Asked(msgspec.Struct, frozen=True):
    """A set of questions put to a corpus; ``answers`` by question where there are any."""

    name: str
    corpus: str
    questions: tuple[str, ...]
    answerable: bool
    answers: dict[str, tuple[str, ...]] = {}


class Outcome(msgspec.Struct, frozen=True):
    """What one question came to."""

    asked: str
    mode: str
    question: str
    features: Features
    refused: bool
    quoted: bool
    characters: int
    milliseconds: float


class Fit(msgspec.Struct, frozen=True):
    """One logistic model to fit: where it applies, on what, and what its threshold rests on."""

    name: str
    mode: str
    fields: tuple[str, ...]
    anchor: tuple[str, ...]
    percentile: float
    handbook: bool = False


ANSWERABLE = ("xquad_en", "xquad_zh", "drcd_dev", "hotpotqa_train100", "tatqa_dev")
FITS = (
    Fit("words", "bm25", FIELDS[:3], ANSWERABLE[:2], 4.6),
    Fit("words_share", "bm25", FIELDS[:4], ANSWERABLE[:2], 4.6),
    Fit("vectors", "hybrid", (*FIELDS[:3], FIELDS[4]), ANSWERABLE[:2], 4.4),
    Fit("vectors_share", "hybrid", FIELDS, ANSWERABLE[:2], 2.1, handbook=True),
)
CROSSING = ("xquad_zh on xquad_en", "xquad_en on xquad_zh")


def question_sets(data: Path) -> list[Asked]:
    """Answerable and unrelated questions over each corpus, seeded samples of the large sets."""
    chance = random.Random(SEED)
    texts: dict[str, list[str]] = {}
    answers: dict[str, dict[str, tuple[str, ...]]] = {}
    for name in (*ANSWERABLE, "scifact_train"):
        rows = lines(data / "retrieval" / name / "queries.jsonl")
        texts[name] = [row["text"] for row in rows]
        answers[name] = {r["text"]: tuple(r["metadata"].get("answers") or ()) for r in rows}
    with (data / "queries" / "banking77_test.csv").open(encoding="utf-8") as file:
        bank = chance.sample([row["text"].strip() for row in csv.DictReader(file)], 600)
    clinc_all = json.loads((data / "queries" / "clinc150.json").read_text(encoding="utf-8"))
    clinc = chance.sample([text for text, _ in clinc_all["test"]], 500)
    out_of_scope = chance.sample([text for text, _ in clinc_all["oos_test"]], 300)
    written = [t for t in (HERE / "unrelated_zh.txt").read_text("utf-8").splitlines() if t]
    drcd = simplified(chance.sample(texts["drcd_dev"], 700))
    sets = [
        Asked(name, name, tuple(texts[name][:1200]), True, answers[name]) for name in ANSWERABLE
    ]
    sets += [
        Asked("xquad_zh on xquad_en", "xquad_en", tuple(texts["xquad_zh"]), True),
        Asked("xquad_en on xquad_zh", "xquad_zh", tuple(texts["xquad_en"][:400]), True),
    ]
    unrelated: dict[str, dict[str, Sequence[str]]] = {
        "xquad_en": {
            "banking77": bank,
            "clinc150": clinc,
            "clinc150 out of scope": out_of_scope,
            "hotpotqa": chance.sample(texts["hotpotqa_train100"], 100),
            "scifact": chance.sample(texts["scifact_train"], 200),
            "written zh": written,
            "drcd simplified": drcd[:300],
        },
        "xquad_zh": {"written zh": written, "drcd simplified": drcd, "banking77": bank[:300]},
        "drcd_dev": {"written zh": written, "xquad_zh": chance.sample(texts["xquad_zh"], 300)},
        "hotpotqa_train100": {"banking77": bank[:300], "clinc150": clinc[:300]},
        "tatqa_dev": {"clinc150": clinc[:300]},
    }
    unrelated["handbook"] = {
        name: chance.sample(texts[name], 150) for name in ("xquad_en", "xquad_zh")
    }
    for corpus, named in unrelated.items():
        sets += [
            Asked(f"{name} on {corpus}", corpus, tuple(questions), False)
            for name, questions in named.items()
            if questions
        ]
    return sets + handbook_questions()


def handbook_questions() -> list[Asked]:
    """Questions over ``examples/handbook`` that have an answer in their own language."""
    rows = lines(EXAMPLES / "questions" / "handbook.jsonl")
    kinds = ("fact", "table", "procedure", "contrast")
    return [
        Asked(
            f"handbook {language}",
            "handbook",
            tuple(r["question"] for r in rows if (r["language"], r["kind"]) in chosen),
            True,
        )
        for language in ("en", "zh")
        for chosen in [{(language, kind) for kind in kinds}]
    ]


async def handbook(record: MemoryIndexFeed, embedder: Embedder) -> None:
    """Put the handbook's chunks and their vectors into a record."""
    counter = EstimatedTokenCounter()
    texts: dict[int, str] = {}
    for path in sorted((EXAMPLES / "handbook").rglob("*")):
        if not path.is_file():
            continue
        found = parse(path.read_bytes(), name=path.name)
        for chunk in StructureChunker(ChunkSettings(), counter).chunk(found):
            [number] = record.add(
                chunk.text,
                document=path.name,
                title=found.title,
                language=found.language,
                heading_path=chunk.heading_path,
                context=chunk.context,
            )
            texts[number] = "\n".join(filter(None, [found.title, chunk.context, chunk.text]))
    vectors = await embedder.embed(list(texts.values()), kind="passage")
    rows = np.frombuffer(vectors.data, "<f4").reshape(len(texts), -1)
    record.embed(dict(zip(texts, rows, strict=True)))


def simplified(texts: list[str]) -> list[str]:
    """The questions in simplified characters; none without ``opencc``."""
    try:
        from opencc import OpenCC  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        print("opencc is not installed: DRCD's questions are left out", file=sys.stderr)
        return []
    convert = OpenCC("t2s").convert
    return [convert(text) for text in texts]


async def embed(questions: Iterable[str], embedder: Embedder) -> CachedEmbedder:
    """Vectors of all questions from the default embedder."""
    wanted = sorted(set(questions))
    vectors: dict[str, npt.NDArray[np.float32]] = {}
    for at in range(0, len(wanted), 256):
        part = wanted[at : at + 256]
        rows = np.frombuffer((await embedder.embed(part, kind="query")).data, "<f4")
        vectors |= zip(part, rows.reshape(len(part), -1), strict=True)
    return CachedEmbedder(vectors)


async def fill_corpus(
    record: MemoryIndexFeed, corpus: str, data: Path, cache: Path, embedder: Embedder
) -> None:
    """Put a corpus and its vectors into a record."""
    if corpus == "handbook":
        await handbook(record, embedder)
        return
    texts = read(data / "retrieval", (corpus,), corpus)
    fill(record, texts, load_vectors(data / "retrieval", cache, corpus, "corpus"))


async def ask(sets: Sequence[Asked], data: Path, cache: Path, embedder: Embedder) -> list[Outcome]:
    """Put every question to its corpus, with vectors and without."""
    cached = await embed((q for one in sets for q in one.questions), embedder)
    outcomes: list[Outcome] = []
    for corpus in dict.fromkeys(one.corpus for one in sets):
        record = MemoryIndexFeed(SPEC.dimensions)
        await fill_corpus(record, corpus, data, cache, embedder)
        with tempfile.TemporaryDirectory() as folder, search_executor(1) as pool:
            index = KbIndex.open(
                Path(folder), "kb", record, writable=True, fingerprint=lambda: SPEC.fingerprint
            )
            for mode, used in (("hybrid", cached), ("bm25", None)):
                retriever = HybridRetriever(
                    lambda kb, index=index: index, used, RetrievalSettings(), pool
                )
                for one in sets:
                    if one.corpus == corpus:
                        outcomes += await ask_set(one, mode, retriever)
            index.close()
        print(f"asked {corpus}", file=sys.stderr)
    return outcomes


async def ask_set(one: Asked, mode: str, retriever: HybridRetriever) -> list[Outcome]:
    """The outcomes of one set of questions."""
    generator = ExtractiveGenerator(WordCounter())
    outcomes = []
    for question in one.questions:
        found = await retriever.retrieve(context(), SearchRequest(kb="kb", query=question))
        outcomes.append(outcome(one, mode, question, found.hits, generator))
    return outcomes


def outcome(
    one: Asked, mode: str, question: str, hits: tuple[Hit, ...], generator: ExtractiveGenerator
) -> Outcome:
    """Answer one question and look at the answer."""
    request = GenerationRequest(
        question=question,
        language=language_of(question),
        messages=(),
        passages=hits,
        sampling=Sampling(),
        max_output_tokens=1024,
        prompt_tokens=0,
    )
    begun = time.perf_counter()
    draft = generator.draft(request)
    took = time.perf_counter() - begun
    text = "".join(draft.pieces)
    return Outcome(
        asked=one.name,
        mode=mode,
        question=question,
        features=generator.read(question_terms(question), request).features,
        refused=draft.refused,
        quoted=any(answer in text for answer in one.answers.get(question, ())),
        characters=len(text),
        milliseconds=1000 * took,
    )


def half(question: str) -> int:
    """0: constants are fitted on it; 1: held out."""
    return zlib.crc32(question.encode()) % 2


def summary(sets: Sequence[Asked], outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    """Rates by set and mode."""
    rows = []
    for mode in ("hybrid", "bm25"):
        for one in sets:
            mine = [o for o in outcomes if o.mode == mode and o.asked == one.name]
            held_out = [o for o in mine if half(o.question)]
            given = [o for o in mine if not o.refused]
            row: dict[str, Any] = {
                "mode": mode,
                "questions": one.name,
                "answerable": one.answerable,
                "count": len(mine),
                "refused": round(float(np.mean([o.refused for o in mine])), 4),
                "refused_held_out": round(float(np.mean([o.refused for o in held_out])), 4),
                "ms_median": round(float(np.median([o.milliseconds for o in mine])), 3),
            }
            # The answers of these sets are spans of the text; the others' are computed or yes/no.
            if one.name in ("xquad_en", "xquad_zh", "drcd_dev") and given:
                row["answer_in_quotation"] = round(float(np.mean([o.quoted for o in given])), 4)
                row["characters_mean"] = round(float(np.mean([o.characters for o in given])))
            rows.append(row)
    return rows


def matrix(outcomes: Sequence[Outcome], fields: Sequence[str]) -> Array:
    return np.array(
        [[getattr(o.features, field) or 0.0 for field in fields] for o in outcomes]
    ).reshape(len(outcomes), len(fields))


def logistic(rows: Array, labels: Array, weights: Array) -> tuple[Array, float]:
    """Coefficients and constant by Newton's method with a small ridge."""
    mean, deviation = rows.mean(0), rows.std(0) + 1e-9
    design = np.c_[(rows - mean) / deviation, np.ones(len(rows))]
    found = np.zeros(design.shape[1])
    for _ in range(60):
        chance = 1 / (1 + np.exp(-design @ found))
        slope = design.T @ (weights * (chance - labels)) + 1e-2 * found
        bend = (design * (weights * chance * (1 - chance))[:, None]).T @ design
        found -= np.linalg.solve(bend + 1e-2 * np.eye(len(found)), slope)
    scaled: Array = found[:-1] / deviation
    return scaled, float(found[-1] - scaled @ mean)


def fit(sets: Sequence[Asked], outcomes: Sequence[Outcome]) -> dict[str, dict[str, float]]:
    """Fit every model; each set weighs the same, the threshold is at the anchor's percentile."""
    crossing = {one.name for one in sets if _crosses(one.name, outcomes)}
    models = {}
    for plan in FITS:
        chosen = [
            one
            for one in sets
            if one.name not in crossing and (plan.handbook or one.corpus != "handbook")
        ]
        models[plan.name] = _fit(plan, chosen, outcomes)
    for plan in (
        Fit("crossing", "hybrid", ("found", "share"), (), 83.0),
        Fit("crossing_lead", "hybrid", ("found", "cosine_lead"), (), 83.0),
    ):
        models[plan.name] = _fit(plan, [one for one in sets if one.name in crossing], outcomes)
    return models


def _crosses(name: str, outcomes: Sequence[Outcome]) -> bool:
    mine = [o.features.crossing for o in outcomes if o.asked == name]
    return float(np.mean(mine)) > 0.5


def _fit(plan: Fit, sets: Sequence[Asked], outcomes: Sequence[Outcome]) -> dict[str, float]:
    parts: list[Array] = []
    labels: list[float] = []
    weights: list[float] = []
    by_name: dict[str, Array] = {}
    for one in sets:
        mine = [
            o
            for o in outcomes
            if (o.mode, o.asked) == (plan.mode, one.name)
            and o.features.crossing == plan.name.startswith("crossing")
            and ("handbook" in o.asked or not half(o.question))
        ]
        by_name[one.name] = matrix(mine, plan.fields)
        parts.append(by_name[one.name])
        same = sum(other.answerable == one.answerable for other in sets)
        labels += [float(one.answerable)] * len(mine)
        weights += [1000 / len(mine) / same] * len(mine)
    coefficients, constant = logistic(np.vstack(parts), np.array(labels), np.array(weights))
    anchors = plan.anchor or tuple(one.name for one in sets if not one.answerable)
    cuts = [
        float(np.percentile(by_name[name] @ coefficients + constant, plan.percentile))
        for name in anchors
    ]
    threshold = min(cuts) if plan.anchor else max(cuts)
    return {
        "constant": round(constant - threshold, 2),
        **{f: round(float(c), 2) for f, c in zip(plan.fields, coefficients, strict=True)},
    }


async def main() -> None:
    """Ask, and print the result as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "forebay-bench")
    parser.add_argument("--fit", action="store_true")
    chosen = parser.parse_args()
    await embed_sets(chosen.data / "retrieval", chosen.cache)
    sets = question_sets(chosen.data)
    embedder = await open_embedder(
        EmbeddingSettings(), cache=chosen.cache / "models", clock=SystemClock()
    )
    if embedder is None:
        raise SystemExit("no embedder is configured")
    outcomes = await ask(sets, chosen.data, chosen.cache, embedder)
    await embedder.close()
    result: dict[str, Any] = {"seed": SEED, "sets": summary(sets, outcomes)}
    if chosen.fit:
        result["constants"] = fit(sets, outcomes)
    print(json.dumps(result, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    asyncio.run(main())
