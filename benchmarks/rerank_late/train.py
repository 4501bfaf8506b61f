"""Trains the shipped late-interaction head and writes it as ONNX.

    python -m benchmarks.rerank_late.train --data ../shared/data --cache CACHE --vectors VECTORS \
        --out src/forebay/rerank/data/late_e5.onnx

Training halves of TAT-QA, XQuAD (four language pairs), HotpotQA and DRCD; per question its
answers, the six hardest other candidates and six of the next twenty-four. The teacher is what a
reranker of this size cannot be: all 384 dimensions in float, untrained, with the fused score
beside it (21.8 x mean MaxSim + 22.5 x score, fitted on the training halves). Seeded.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from benchmarks.rerank_late.data import Pair, Places, spec
from forebay.lab.distill.late import (
    LateExample,
    LateHead,
    LateTraining,
    initial_head,
    softmax,
    train_late,
)
from forebay.lab.distill.late_export import HeadDescription, calibrate_scores, write_late_head

PAIRS = {
    ("tatqa_dev", "tatqa_dev"): 640,
    ("xquad_zh", "xquad_en"): 440,
    ("hotpotqa_train100", "hotpotqa_train100"): 100,
    ("xquad_en", "xquad_zh"): 440,
    ("xquad_zh", "xquad_zh"): 150,
    ("drcd_dev", "drcd_dev"): 700,
}
"""Questions and documents, and how many questions of the training half."""
HARD, OTHERS, AMONG = 6, 6, 30
TEACHER_LATE, TEACHER_FUSED = 21.8, 22.5
TRAINING = LateTraining(epochs=2, learning_rate=2e-4, teacher_share=0.7, scale=25.0)
FULL = 384


class Row(msgspec.Struct, frozen=True):
    """A training question and its candidates by name."""

    pair: Pair
    query: str
    names: list[str]

    def example(self) -> LateExample:
        relevant = self.pair.relevant[self.query]
        return LateExample(
            self.pair.questions[self.query],
            tuple(self.pair.documents[name] for name in self.names),
            tuple(name in relevant for name in self.names),
        )


def chosen_rows(places: Places, random: np.random.Generator) -> list[Row]:
    rows = []
    for (questions, documents), most in PAIRS.items():
        pair = Pair(places, questions, documents)
        drawn = random.permutation(pair.training)[:most].tolist()
        rows += [Row(pair, query, candidates(pair, query, random)) for query in drawn]
    return rows


def means(head: LateHead, rows: list[Row]) -> list[npt.NDArray[np.float64]]:
    """Mean MaxSims of every row's candidates; each document is turned once."""
    turned: dict[tuple[str, str], npt.NDArray[np.float32]] = {}
    result = []
    for row in rows:
        states = np.asarray(row.pair.questions[row.query], np.float32)
        asked = unit(states @ head.query + head.query_offset)
        shares = softmax(states @ head.weight)
        found = []
        for name in row.names:
            key = (row.pair.documents.name, name)
            if key not in turned:
                document = np.asarray(row.pair.documents[name], np.float32)
                turned[key] = unit(document @ head.passage + head.passage_offset)
            found.append(float((turned[key] @ asked.T).max(axis=0) @ shares))
        result.append(np.array(found))
    return result


def unit(rows: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    length: npt.NDArray[np.float32] = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / (length + 1e-6)


def taught(rows: list[Row], plain: list[LateExample]) -> list[LateExample]:
    """The examples with the teacher's scores."""
    full = initial_head(plain, LateTraining(dimensions=FULL))
    result = []
    for row, each, late in zip(rows, plain, means(full, rows), strict=True):
        scores = dict(row.pair.found[row.query])
        fused = np.array([scores.get(name, 0.0) for name in row.names])
        teacher = TEACHER_LATE * late + TEACHER_FUSED * fused
        result.append(msgspec.structs.replace(each, teacher=tuple(teacher.tolist())))
    return result


def candidates(pair: Pair, query: str, random: np.random.Generator) -> list[str]:
    relevant = pair.relevant[query]
    others = [name for name, _ in pair.found[query] if name not in relevant]
    further = others[HARD:AMONG]
    drawn = random.permutation(further)[:OTHERS].tolist() if further else []
    return [*relevant, *others[:HARD], *drawn]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--vectors", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--dimensions", type=int, default=TRAINING.dimensions)
    arguments = parser.parse_args()
    places = Places(arguments.data / "retrieval", arguments.cache, arguments.vectors)
    rows = chosen_rows(places, np.random.default_rng(TRAINING.seed))
    plain = [row.example() for row in rows]
    learning = taught(rows, plain)
    settings = msgspec.structs.replace(TRAINING, dimensions=arguments.dimensions)
    head = train_late(learning, settings, lambda epoch, loss: print(epoch, loss, file=sys.stderr))
    middle, width = calibrate_scores(
        np.concatenate(means(head, rows)),
        np.concatenate([np.array(each.relevant) for each in plain]),
    )
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    description = HeadDescription(
        embedder=spec(places).fingerprint,
        middle=round(middle, 5),
        width=round(width, 5),
        trained_on="training halves of TAT-QA, XQuAD, HotpotQA, DRCD",
    )
    write_late_head(head, arguments.out, description)
    np.savez(places.cache / f"head{arguments.dimensions}.npz", **head.arrays())
    print(f"{len(rows)} questions; scale {float(np.exp(head.log_scale[0])):.2f}", file=sys.stderr)


if __name__ == "__main__":
    main()
