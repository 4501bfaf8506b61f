"""How much of its teacher a student keeps: the light reranker distilled from ``sentences``.

    python benchmarks/rerank/student.py --data ../shared/data > benchmarks/rerank/student.json

What ``forebay distill --teacher sentences`` does, over the candidates of ``gather.py``: the teacher
scores every candidate of every question, the student learns on one half, once by the teacher's
shares alone and once with labels beside them, and all order the other half; beside them the model
in the package, which was trained by labels. Halves are by the CRC-32 of the question, as
everywhere, so that both have the same documents; and by that of the relevant document, so that
none of the other half was an answer in training. A sentence is embedded once.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from gather import Gathered, gather, machine

from forebay.app.distilling import TEMPERATURE
from forebay.app.settings import load_settings, model_cache
from forebay.embedding.opening import open_embedder
from forebay.kernel.clock import Deadline, SystemClock
from forebay.kernel.context import Principal, RequestContext
from forebay.kernel.documents import Vectors
from forebay.kernel.stages import Embedder, EmbedderSpec
from forebay.lab.distill.light import LightTraining, train
from forebay.lab.distill.light_data import (
    LABEL_SHARE,
    LightRow,
    examples_of,
    is_held_out,
    ndcg_of,
    scores_of,
)
from forebay.pipeline.reranking import text_of
from forebay.rerank.features import Candidates
from forebay.rerank.light import LightModel
from forebay.rerank.sentences import SentenceReranker, SentenceSettings

SEED, DRAWS, AT_ONCE = 1, 2000, 8
WAYS = {"by the teacher alone": 0.0, "with labels beside": LABEL_SHARE}
_NEVER = 1e-6


def by_document(row: LightRow) -> bool:
    """Whether the first relevant document is of the half that is kept apart."""
    return is_held_out(min(name for name, grade in row.relevance.items() if grade > 0))


SPLITS: dict[str, Callable[[LightRow], bool]] = {
    "by question": lambda row: row.held_out,
    "by document": by_document,
}


class Remembering:
    """An embedder that reads no text twice."""

    def __init__(self, inner: Embedder) -> None:
        self._inner = inner
        self._known: dict[tuple[str, str], bytes] = {}

    @property
    def spec(self) -> EmbedderSpec:
        """See ``Embedder``."""
        return self._inner.spec

    async def embed(
        self, texts: Sequence[str], *, kind: Literal["query", "passage", "raw"]
    ) -> Vectors:
        """See ``Embedder``."""
        new = list(dict.fromkeys(one for one in texts if (kind, one) not in self._known))
        size = 4 * self.spec.dimensions
        for start in range(0, len(new), AT_ONCE):
            some = new[start : start + AT_ONCE]
            data = (await self._inner.embed(some, kind=kind)).data
            for at, text in enumerate(some):
                self._known[kind, text] = data[at * size : (at + 1) * size]
        joined = b"".join(self._known[kind, one] for one in texts)
        return Vectors(tuple(range(len(texts))), self.spec.dimensions, joined)


async def taught(teacher: SentenceReranker, found: Sequence[Gathered]) -> list[LightRow]:
    """The rows with the teacher's log-odds of every candidate."""
    rows = []
    for one in found:
        clock = SystemClock()
        context = RequestContext(
            request_id="b", principal=Principal(), deadline=Deadline.after(600, clock), clock=clock
        )
        texts = [text_of(hit) for hit in one.hits]
        told = await teacher.rerank(context, one.row.question, texts)
        kept = np.clip(np.array(told, np.float64), _NEVER, 1 - _NEVER)
        logits = tuple(np.log(kept / (1 - kept)).tolist())
        rows.append(msgspec.structs.replace(one.row, teacher=logits))
    return rows


def shares(rows: list[LightRow], scores: Sequence[Any]) -> dict[str, Any]:
    """nDCG@5 of search, teacher and student; the student's share of the teacher's."""
    own = [np.array(row.teacher, np.float32) for row in rows]
    teacher, student = ndcg_of(rows, own, 5), ndcg_of(rows, scores, 5)
    chance = np.random.default_rng(SEED)
    picks = chance.integers(0, len(rows), (DRAWS, len(rows)))
    low, high = np.quantile(
        student[picks].mean(axis=1) / teacher[picks].mean(axis=1), (0.025, 0.975)
    )
    figures = {
        "search": ndcg_of(rows, None, 5).mean(),
        "teacher": teacher.mean(),
        "student": student.mean(),
        "share": student.mean() / teacher.mean(),
        "low": low,
        "high": high,
    }
    return {
        "questions": len(rows),
        **{name: round(float(value), 4) for name, value in figures.items()},
    }


def told(rows: list[LightRow], apart: Callable[[LightRow], bool]) -> dict[str, Any]:
    """Students of one half, on the other; the model in the package knows both halves' documents."""
    learning = [row for row in rows if not apart(row)]
    held = [row for row in rows if apart(row)]
    found: dict[str, Any] = {"trained_on": len(learning)}
    for way, label_share in WAYS.items():
        model = train(examples_of(learning, TEMPERATURE, label_share), LightTraining())
        found[way] = shares(held, scores_of(model, held))
    package = LightModel.shipped()
    made = [Candidates(row.features, row.query, row.vectors) for row in held]
    scores = [np.array(package.run(one)[0], np.float32) for one in made]
    found["model in the package"] = shares(held, scores)
    return found


async def main() -> None:
    """Teach, train, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache/forebay-bench")
    parser.add_argument("--sets", nargs="+", default=["xquad zh on en", "hotpot"])
    arguments = parser.parse_args()
    settings, _ = load_settings(None, {}, {})
    embedder = await open_embedder(
        settings.embedding, cache=model_cache(settings), clock=SystemClock()
    )
    assert embedder is not None
    teacher = SentenceReranker(Remembering(embedder), SentenceSettings())
    report: dict[str, Any] = {**machine(), "teacher": "sentences", "sets": {}}
    data = arguments.data / "retrieval"
    for name in arguments.sets:
        gathered = await asyncio.to_thread(gather, data, arguments.cache, name, 30)
        rows = await taught(teacher, gathered)
        report["sets"][name] = {split: told(rows, apart) for split, apart in SPLITS.items()}
        print(name, report["sets"][name], file=sys.stderr, flush=True)
    await embedder.close()
    json.dump(report, sys.stdout, indent=1)


if __name__ == "__main__":
    asyncio.run(main())
