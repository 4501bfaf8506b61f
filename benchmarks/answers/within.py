"""What vectors of single sentences bring where question and documents share a language.

    python benchmarks/answers/within.py --data ../shared/data > benchmarks/answers/within.json
    … --fit       prints constants for WITHIN in forebay.generation.nearness to stderr as well
    … --keep F    keeps what was found and embedded in a file, and reads it from there

Asked are XQuAD in either language and 900 questions of DRCD (seed 3), each with what was found and
again without the passage that answers; unrelated questions of other sets; the handbook's own
questions and ``casual.jsonl``, which somebody wrote who knew the handbook and nothing else; the
scenes and pages of this folder. Every question is answered twice: without vectors of sentences, and
with those that are kept at ingest. Constants are fitted on the even half (by checksum) of XQuAD,
DRCD, the handbook's and the casual questions and on the development scenes and pages.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from sentences import (  # noqa: E402
    Item,
    Known,
    answered,
    auc,
    blob_of,
    half,
    lines,
    logistic,
    natural,
    rates,
    scenes,
    unrelated,
)
from twice import ask_twice  # noqa: E402

from forebay.embedding.sentence_vectors import scale_by, unrelated_sentences  # noqa: E402
from forebay.embedding.settings import EmbeddingSettings  # noqa: E402
from forebay.generation import ExtractiveGenerator  # noqa: E402
from forebay.generation.statements import named_share, of_another, open_share, says_all  # noqa: E402
from forebay.kernel.clock import SystemClock  # noqa: E402
from forebay.kernel.documents import Hit  # noqa: E402
from forebay.kernel.stages import Embedder, SearchRequest  # noqa: E402
from forebay.retrieval import (  # noqa: E402
    HybridRetriever,
    KbIndex,
    RetrievalSettings,
    search_executor,
)
from forebay.testing.embedding import WordCounter  # noqa: E402
from forebay.testing.index_feed import MemoryIndexFeed  # noqa: E402

FIELDS = (
    "share", "cosine_lead", "found", "names_missing", "open", "named", "measured", "typed",
    "whole", "before_rest", "before_middle",
)  # fmt: skip
EXTRA = 0.7
"""Log-odds beside the balanced fit: as many right answers as words alone give on the fitted half of
the public sets."""
DRCD, SEED = 900, 3
_GENERATOR = ExtractiveGenerator(WordCounter())


async def put(
    data: Path, cache: Path, embedder: Embedder, corpus: str, questions: Sequence[str]
) -> list[tuple[Hit, ...]]:
    """What the production retriever finds in a corpus for each question."""
    record = MemoryIndexFeed(natural.SPEC.dimensions)
    await natural.fill_corpus(record, corpus, data, cache, embedder)
    vectors = await natural.embed(questions, embedder)
    with tempfile.TemporaryDirectory() as folder, search_executor(1) as pool:
        index = KbIndex.open(
            Path(folder), "kb", record, writable=True, fingerprint=lambda: natural.SPEC.fingerprint
        )
        retriever = HybridRetriever(lambda kb: index, vectors, RetrievalSettings(), pool)
        found = []
        for question in questions:
            request = SearchRequest(kb="kb", query=question)
            found.append((await retriever.retrieve(natural.context(), request)).hits)
        index.close()
    return found


def taken_apart(group: str, rows: Sequence[Any], found: Sequence[tuple[Hit, ...]]) -> list[Item]:
    """Each question with what was found, and without the passage that answers."""
    items = []
    for (question, gold, answers), hits in zip(rows, found, strict=True):
        items.append(Item(group, "answerable", question, hits, tuple(answers)))
        left = tuple(h for h in hits if h.chunk.document_id.split("/")[-1] not in gold)
        if not any(one in hit.chunk.text for one in answers for hit in left):
            items.append(Item(group, "near miss", question, left))
    return items


def drcd(data: Path) -> list[tuple[str, frozenset[str], tuple[str, ...]]]:
    """Some of DRCD's questions with the documents that answer and the answers."""
    folder = data / "retrieval" / "drcd_dev"
    rows = lines(folder / "queries.jsonl")
    random.Random(SEED).shuffle(rows)
    gold: dict[str, set[str]] = {}
    for line in (folder / "qrels.tsv").read_text("utf-8").splitlines()[1:]:
        question, document, _ = line.split("\t")
        gold.setdefault(question, set()).add(document)
    return [
        (row["text"], frozenset(gold[row["_id"]]), tuple(row["metadata"]["answers"]))
        for row in rows[:DRCD]
    ]


def written() -> list[tuple[str, str, str, tuple[str, ...]]]:
    """(group, kind, question, answers) over the handbook, in the documents' language."""
    found = []
    own = {"unanswerable": "near miss"}
    casual = {"near_miss": "near miss", "unrelated": "unrelated"}
    files = (
        ("handbook", HERE.parent.parent / "examples" / "questions" / "handbook.jsonl", own),
        ("casual", HERE / "casual.jsonl", casual),
    )
    for name, file, kinds in files:
        for row in lines(file):
            if row["kind"] not in ("cross", "cross-lingual"):
                kind = kinds.get(row["kind"], "answerable")
                group = f"{name}, {row['language']}"
                found.append((group, kind, row["question"], tuple(row["answer"])))
    return found


async def gather(data: Path, cache: Path) -> tuple[list[Item], Known]:
    """Everything that is asked within a language, and the vectors of what was found."""
    embedder = await natural.open_embedder(
        EmbeddingSettings(), cache=cache / "models", clock=SystemClock()
    )
    if embedder is None:
        raise SystemExit("no embedder is configured")
    items = []
    for name in ("xquad_en", "xquad_zh"):
        rows, strange = natural.questions(data, name, name), unrelated(data, name)
        found = await put(data, cache, embedder, name, [*(row[0] for row in rows), *strange])
        group = f"xquad, {name[-2:]}"
        items += taken_apart(group, rows, found[: len(rows)])
        items += [
            Item(group, "unrelated", question, hits)
            for question, hits in zip(strange, found[len(rows) :], strict=True)
        ]
    some = drcd(data)
    found = await put(data, cache, embedder, "drcd_dev", [row[0] for row in some])
    items += taken_apart("xquad, drcd", some, found)
    asked = written()
    found = await put(data, cache, embedder, "handbook", [row[2] for row in asked])
    items += [
        Item(group, kind, question, hits, answers)
        for (group, kind, question, answers), hits in zip(asked, found, strict=True)
    ]
    for part, pair, question, hits, *_ in await scenes.everything(alike=False):
        if "+" not in pair and pair[:2] == pair[-2:]:
            kind = {"twice alike": "answerable"}.get(question.kind, question.kind)
            items.append(Item(f"{part}, {pair[:2]}", kind, question.text, hits, question.values))
    known = await vectors_of(items, embedder)
    await embedder.close()
    return items, known


async def vectors_of(items: Sequence[Item], embedder: Embedder) -> Known:
    """Vectors of the questions and of the sentences of all that was found."""
    asked = sorted({item.question for item in items})
    questions = await embedder.embed(asked, kind="query")
    size = 4 * questions.dimensions
    rows = (questions.data[at * size : (at + 1) * size] for at in range(len(asked)))
    sentences: dict[str, bytes] = {}
    for item in items:
        for hit in item.hits:
            if hit.chunk.text not in sentences:
                sentences[hit.chunk.text] = await blob_of(hit, embedder)
    scale = scale_by(await embedder.embed(unrelated_sentences(), kind="passage"))
    return Known(dict(zip(asked, rows, strict=True)), sentences, scale)


def looked_at(item: Item, known: Known) -> tuple[tuple[float, ...] | None, bool]:
    """Features of what would be quoted (None: it is refused whatever they are), and whether it
    holds the answer.
    """
    seen: list[tuple[float, ...]] = []

    def score(asked: Any, reading: Any, near: Any, chosen: Any, hits: Any) -> float:
        kind, subject = asked
        terms, features = reading.terms, reading.features
        if not any(one.unit.kind in ("row", "code") or kind.shown(one.unit) for one in chosen):
            return -np.inf
        if of_another(asked, terms, reading, chosen, hits):
            return -np.inf
        lead = 2.0 if features.cosine_lead is None else features.cosine_lead
        named = named_share(subject, kind.unnamed(terms), reading, chosen)
        seen.append(
            (
                max(hits[one.passage].score for one in chosen),
                lead,
                features.found,
                features.names_missing,
                open_share(terms, reading, chosen, hits),
                named,
                float(kind.is_measure),
                float(bool(kind.asked)),
                float(says_all(terms, reading)),
                before_rest(reading, chosen),
                near.before_middle,
            )
        )
        return 100.0

    module = sys.modules[ExtractiveGenerator.__module__]
    own = module.within_score  # type: ignore[attr-defined]
    module.within_score = score  # type: ignore[attr-defined]
    try:
        outcome = answered(_GENERATOR, item, known, by_sentences=True)
    finally:
        module.within_score = own  # type: ignore[attr-defined]
    return (None if outcome.refused or not seen else seen[0]), outcome.right


def before_rest(reading: Any, chosen: Any) -> float:
    """How far what is quoted is before the nearest that is not."""
    quoted = {(one.passage, one.position) for one in chosen}
    rest = [one.near for one in reading.units if (one.passage, one.position) not in quoted]
    return float(max(one.near for one in chosen) - max(rest)) if rest else 0.0


def is_fitted_on(item: Item) -> bool:
    """Whether constants are fitted on it."""
    if item.group.startswith(("xquad", "handbook", "casual")):
        return half(item.question) == 0
    return item.group.startswith("development")


def fit(items: Sequence[Item], looks: Sequence[tuple[Any, bool]], fields: Sequence[str]) -> Any:
    """Coefficients and constant; groups weigh the same, the few questions over the handbook half as
    much, and a kind of negatives half as much as the positives.
    """
    columns = [FIELDS.index(field) for field in fields]
    rows, labels, groups = [], [], []
    for item, (features, right) in zip(items, looks, strict=True):
        if features is None or not is_fitted_on(item) or item.kind == "contradictory":
            continue
        if item.kind == "answerable" and not right:
            continue
        rows.append([features[at] for at in columns])
        labels.append(float(item.kind == "answerable"))
        name = "xquad" if item.group in ("xquad, en", "xquad, zh") else item.group[:-4]
        groups.append((name, item.kind))
    counts = Counter(groups)
    weights = [
        (800.0 if kind == "answerable" else 400.0)
        * (0.5 if name in ("handbook", "casual") else 1.0)
        / counts[name, kind]
        for name, kind in groups
    ]
    return logistic(np.array(rows), np.array(labels), np.array(weights))


def compared(items: Sequence[Item], looks: Sequence[tuple[Any, bool]]) -> dict[str, Any]:
    """How well right answers are told from near misses, with the same choice of sentences."""
    found: dict[str, Any] = {}
    for name, fields in (("words and passages", FIELDS[:-2]), ("with sentences", FIELDS)):
        columns = [FIELDS.index(field) for field in fields]
        coefficients, constant = fit(items, looks, fields)
        values = np.array(
            [
                -99.0
                if one is None
                else constant + np.dot(coefficients, [one[at] for at in columns])
                for one, _ in looks
            ]
        )
        for group in dict.fromkeys(map(part_of, items)):
            mine = [at for at, item in enumerate(items) if part_of(item) == group]
            right = [at for at in mine if items[at].kind == "answerable" and looks[at][1]]
            near = [at for at in mine if items[at].kind == "near miss"]
            if right and near:
                found.setdefault(group, {})[name] = auc(values[right], values[near])
    return found


def part_of(item: Item) -> str:
    """A group, by halves where one was fitted on."""
    if not item.group.startswith(("xquad", "handbook", "casual")):
        return item.group
    return f"{item.group}, {'fitted' if is_fitted_on(item) else 'held out'}"


def main() -> None:
    """Ask, and print the result as JSON."""
    asked = ask_twice(__doc__, gather, partial(answered, _GENERATOR))
    items, known, before, after = asked.items, asked.known, asked.before, asked.after
    looks = [looked_at(item, known) for item in items]
    if asked.fit:
        coefficients, constant = fit(items, looks, FIELDS)
        told = {"constant": round(constant + EXTRA, 2)}
        told |= {f: round(float(c), 2) for f, c in zip(FIELDS, coefficients, strict=True)}
        print(told, file=sys.stderr)
    groups = {}
    for group in dict.fromkeys(map(part_of, items)):
        mine = [at for at, item in enumerate(items) if part_of(item) == group]
        quotable = [looks[at][1] for at in mine if items[at].kind == "answerable"]
        groups[group] = {
            "without": rates([before[at] for at in mine]),
            "with": rates([after[at] for at in mine]),
            "chosen rightly, were nothing refused": natural.share(quotable),
        }
    result = {"questions": len(items), "auc": compared(items, looks), "groups": groups}
    print(json.dumps(result, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
