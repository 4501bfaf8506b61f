"""``forebay distill late``: trains the head of late interaction on the tokens of candidates."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec
import numpy as np

from forebay.app.distilling import (
    TEACHERS,
    Distilled,
    DistillWords,
    RowOf,
    Teacher,
    by_teacher,
    check,
    check_enough,
    gathered,
    logits_of,
    tell,
)
from forebay.app.operations import run
from forebay.app.output import Output
from forebay.app.runtime import Reading
from forebay.embedding.opening import token_encoder
from forebay.kernel.errors import ConfigError
from forebay.kernel.stages import SearchResult
from forebay.kernel.tokens import TokenEncoder
from forebay.lab.distill.late import LateHead, train_late
from forebay.lab.distill.late_data import (
    TRAINING,
    LateRow,
    States,
    calibrated,
    example_of,
    ordering_scores,
    scores_of,
    taught_by_states,
    thinned,
)
from forebay.lab.distill.late_export import HeadDescription, write_late_head
from forebay.lab.distill.light_data import is_held_out, measured, ndcg_of
from forebay.lab.evaluate.datasets import Question, load_set
from forebay.pipeline.reranking import text_of

LATE_TEACHERS = (*TEACHERS, "states")


def distill_late(words: DistillWords, flags: dict[str, Any], output: Output) -> int:
    """Train, write the head, say how well it orders questions it was not trained on."""
    check(words, LATE_TEACHERS)
    sets = [load_set(path) for path in words.sets]
    encoders: list[TokenEncoder] = []
    rows, _ = run(gathered(words, flags, sets, output, partial(_late_rows, encoders)))
    if words.teacher == "states" and rows:
        rows = taught_by_states(rows)
    learning = [row for row in rows if not row.held_out]
    learning = [row for row in learning if row.teacher or row.relevant.any()]
    check_enough(len(learning))
    training = msgspec.structs.replace(
        TRAINING, seed=words.seed, epochs=words.epochs or TRAINING.epochs
    )
    examples = [example_of(row) for row in thinned(_softened(learning, words), words.seed)]
    with output.progress() as progress:
        bar = progress.add_task("training", total=training.epochs)
        head = train_late(examples, training, lambda *_: progress.advance(bar))
    tell(_written(words, head, rows, encoders[0].spec.fingerprint), output)
    return 0


def _softened(rows: Sequence[LateRow], words: DistillWords) -> list[LateRow]:
    by = words.temperature or 1.0
    return [
        msgspec.structs.replace(row, teacher=tuple(one / by for one in row.teacher)) for row in rows
    ]


def _late_rows(
    encoders: list[TokenEncoder], reading: Reading, teacher: Teacher | None
) -> RowOf[LateRow]:
    encoder = token_encoder(reading.embedder)
    if encoder is None:
        raise ConfigError(
            "late interaction compares single tokens, which the configured embedder does not "
            "give; use the built-in one or a model folder.",
            param="embedding.backend",
        )
    encoders.append(encoder)
    return partial(_late_row, _Encoded(encoder), teacher)


class _Encoded:
    """Token states of passages, each encoded once."""

    def __init__(self, encoder: TokenEncoder) -> None:
        self._encoder = encoder
        self._known: dict[str, States] = {}

    async def query(self, text: str) -> States:
        [states] = await self._encoder.states([text], kind="query")
        return _half(states.data, states.tokens)

    async def passages(self, texts: Sequence[str]) -> tuple[States, ...]:
        new = list(dict.fromkeys(text for text in texts if text not in self._known))
        for text, states in zip(new, await self._encoder.states(new, kind="passage"), strict=True):
            self._known[text] = _half(states.data, states.tokens)
        return tuple(self._known[text] for text in texts)


def _half(data: bytes, tokens: int) -> States:
    return np.frombuffer(data, "<f4").reshape(tokens, -1).astype(np.float16)


async def _late_row(
    encoded: _Encoded,
    teacher: Teacher | None,
    group: str,
    question: Question,
    found: SearchResult,
) -> LateRow | None:
    """One question's candidates; None where there is nothing to order."""
    if len(found.hits) < 2:
        return None
    return LateRow(
        group=group,
        query=await encoded.query(question.text),
        passages=await encoded.passages([text_of(hit) for hit in found.hits]),
        documents=tuple(hit.chunk.document_id for hit in found.hits),
        relevance=question.relevance,
        fused=tuple(hit.score for hit in found.hits),
        held_out=is_held_out(question.text),
        teacher=await logits_of(teacher, question, found.hits),
    )


def _written(
    words: DistillWords, head: LateHead, rows: Sequence[LateRow], embedder: str
) -> Distilled:
    learning = [row for row in rows if not row.held_out]
    middle, width = calibrated(learning, scores_of(head, learning))
    names = ", ".join(path.name for path in words.sets)
    description = HeadDescription(
        embedder=embedder,
        middle=round(middle, 5),
        width=round(width, 5),
        trained_on=f"{words.teacher} of {names}: questions whose text has an even CRC-32",
    )
    write_late_head(head, words.write, description)
    held = [row for row in rows if row.held_out and any(row.relevance.values())]
    scores = scores_of(head, held)
    beside = ordering_scores(held, scores, "beside")
    return Distilled(
        file=words.write.name,
        bytes=words.write.stat().st_size,
        trained_on=len(learning),
        held_out=measured(held, beside, 5) if held else {},
        teacher=by_teacher(held),
        alone=_alone(held, scores),
    )


def _alone(held: Sequence[LateRow], scores: Sequence[Any]) -> dict[str, float]:
    if not held:
        return {}
    values = ndcg_of(held, ordering_scores(held, scores, "alone"), 5)
    groups = np.array([row.group for row in held])
    return {
        group: round(float(values[groups == group].mean()), 4)
        for group in dict.fromkeys(groups.tolist())
    }
