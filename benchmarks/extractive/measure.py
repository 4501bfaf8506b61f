"""Refusals and quotations of the extractive generator, and the fit of its constants.

    python benchmarks/extractive/measure.py --data ../shared/data --cache ~/.cache/forebay-bench
    … --fit     prints constants for SUPPORT in forebay.generation.extractive as well

Questions are put through the production retriever (five hits), with vectors and without, and its
hits to the generator. A question counts as refused when the generator says so. Constants are
fitted on the questions whose checksum is even; the figures are given for all of them and for the
other half. Unrelated questions come from other sets and from ``unrelated_zh.txt``; where the
package ``opencc`` is installed, DRCD's questions are asked in simplified characters too.
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
from forebay.generation import ExtractiveGenerator  # noqa: E402
from forebay.generation.support import Features  # noqa: E402
from forebay.generation.terms import question_terms  # noqa: E402
from forebay.kernel.clock import SystemClock  # noqa: E402
from forebay.kernel.documents import Hit  # noqa: E402
from forebay.kernel.stages import GenerationRequest, Sampling, SearchRequest  # noqa: E402
from forebay.retrieval import (  # noqa: E402
    HybridRetriever,
    KbIndex,
    RetrievalSettings,
    search_executor,
)
from forebay.testing.embedding import WordCounter  # noqa: E402
from forebay.testing.generation import context  # noqa: E402
from forebay.testing.index_feed import MemoryIndexFeed  # noqa: E402

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


ANSWERABLE = ("xquad_en", "xquad_zh", "drcd_dev", "hotpotqa_train100", "tatqa_dev")
FITS = (
    Fit("words", "bm25", FIELDS[:3], ANSWERABLE[:2], 4.6),
    Fit("words_share", "bm25", FIELDS[:4], ANSWERABLE[:2], 4.6),
    Fit("vectors", "hybrid", (*FIELDS[:3], FIELDS[4]), ANSWERABLE[:2], 4.4),
    Fit("vectors_share", "hybrid", FIELDS, ANSWERABLE[:2], 2.5),
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
    for corpus, named in unrelated.items():
        sets += [
            Asked(f"{name} on {corpus}", corpus, tuple(questions), False)
            for name, questions in named.items()
            if questions
        ]
    return sets


def simplified(texts: list[str]) -> list[str]:
    """The questions in simplified characters; none without ``opencc``."""
    try:
        from opencc import OpenCC  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        print("opencc is not installed: DRCD's questions are left out", file=sys.stderr)
        return []
    convert = OpenCC("t2s").convert
    return [convert(text) for text in texts]


async def embed(questions: Iterable[str], cache: Path) -> CachedEmbedder:
    """Vectors of all questions from the default embedder."""
    from forebay.embedding.opening import open_embedder
    from forebay.embedding.settings import EmbeddingSettings

    embedder = await open_embedder(EmbeddingSettings(), cache=cache / "models", clock=SystemClock())
    if embedder is None:
        raise SystemExit("no embedder is configured")
    wanted = sorted(set(questions))
    vectors: dict[str, npt.NDArray[np.float32]] = {}
    for at in range(0, len(wanted), 256):
        part = wanted[at : at + 256]
        rows = np.frombuffer((await embedder.embed(part, kind="query")).data, "<f4")
        vectors |= zip(part, rows.reshape(len(part), -1), strict=True)
    await embedder.close()
    return CachedEmbedder(vectors)


async def ask(
    sets: Sequence[Asked], data: Path, cache: Path, embedder: CachedEmbedder
) -> list[Outcome]:
    """Put every question to its corpus, with vectors and without."""
    outcomes: list[Outcome] = []
    for corpus in dict.fromkeys(one.corpus for one in sets):
        record = MemoryIndexFeed(SPEC.dimensions)
        texts = read(data / "retrieval", (corpus,), corpus)
        fill(record, texts, load_vectors(data / "retrieval", cache, corpus, "corpus"))
        with tempfile.TemporaryDirectory() as folder, search_executor(1) as pool:
            index = KbIndex.open(
                Path(folder), "kb", record, writable=True, fingerprint=lambda: SPEC.fingerprint
            )
            for mode, used in (("hybrid", embedder), ("bm25", None)):
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
        chosen = [one for one in sets if one.name not in crossing]
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
            if o.mode == plan.mode and o.asked == one.name and not half(o.question)
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
    embedder = await embed((q for one in sets for q in one.questions), chosen.cache)
    outcomes = await ask(sets, chosen.data, chosen.cache, embedder)
    result: dict[str, Any] = {"seed": SEED, "sets": summary(sets, outcomes)}
    if chosen.fit:
        result["constants"] = fit(sets, outcomes)
    print(json.dumps(result, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    asyncio.run(main())
