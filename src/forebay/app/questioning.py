"""How questions are read in a process: the rules, the classifier, vectors that are there anyway."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from forebay.app.caching import Tiers
from forebay.app.runtime import Reading
from forebay.embedding.calibration import CosineCalibration, calibrate
from forebay.kernel.context import RequestContext
from forebay.kernel.documents import Vectors
from forebay.kernel.errors import ConfigError
from forebay.kernel.stages import Likeness
from forebay.pipeline.answer import AnswerParts, AnswerPipeline
from forebay.pipeline.hypothesis import EngineQuestions, QuestionEngineSettings
from forebay.pipeline.questions import QuestionParts, Questions
from forebay.query import KindClassifier, QuerySettings, RuleReader
from forebay.retrieval.index import Snapshot

Floats32 = npt.NDArray[np.float32]
GROWN = 1.25
"""A knowledge base that grew or shrank by so much is calibrated again."""


class Likenings:
    """``Likening`` by the vectors of the indexes, calibrated by the chunks of each kb.

    A sample of a knowledge base's own chunks says what is usual between unrelated ones, so one
    percentile means the same under every embedder. Hits of one word are alike by that word alone:
    where the question's vector is known, its direction is taken off hits and sample, and what is
    left is compared.
    """

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._known: dict[str, tuple[int, CosineCalibration | None]] = {}

    async def of(
        self, ctx: RequestContext, kb: str, chunk_ids: Sequence[int], question: Vectors | None
    ) -> Likeness | None:
        """See ``Likening``; reads a few rows beside the loop, and calibrates, for milliseconds."""
        snapshot = self._reading.indexes.get(kb).snapshot()
        try:
            async with asyncio.timeout(ctx.deadline.remaining()):
                return await self._reading.threads.run(
                    partial(self._of, kb, snapshot, tuple(chunk_ids), question)
                )
        except TimeoutError:
            return None

    def _of(
        self, kb: str, snapshot: Snapshot, chunk_ids: Sequence[int], question: Vectors | None
    ) -> Likeness | None:
        vectors, known = snapshot.vectors.stored(np.asarray(chunk_ids, np.int64))
        if not known.all():
            return None
        if question is None or question.dimensions != vectors.shape[1]:
            calibration = self._calibration(kb, snapshot)
        else:
            asked = np.frombuffer(question.data, "<f4", question.dimensions)
            vectors = beyond(vectors, asked)
            calibration = _calibrated(beyond(snapshot.vectors.background_rows[1], asked), "")
        if calibration is None:
            return None
        cosines = vectors @ vectors.T
        return Likeness(
            tuple(
                tuple(calibration.percentile_of(float(cosine)) for cosine in row) for row in cosines
            )
        )

    def _calibration(self, kb: str, snapshot: Snapshot) -> CosineCalibration | None:
        rows = snapshot.vectors.rows
        known = self._known.get(kb)
        fingerprint = snapshot.vectors.fingerprint or ""
        if known is not None and known[0] / GROWN <= rows <= known[0] * GROWN:
            calibration = known[1]
            if calibration is None or calibration.fingerprint == fingerprint:
                return calibration
        calibration = _calibrated(snapshot.vectors.background_rows[1], fingerprint)
        self._known[kb] = rows, calibration
        return calibration


def beyond(rows: Floats32, question: Floats32) -> Floats32:
    """What unit ``rows`` say beside the ``question``, a unit vector: unit vectors again."""
    rest = rows - np.outer(rows @ question, question)
    lengths = np.linalg.norm(rest, axis=1, keepdims=True)
    found: Floats32 = rest / np.maximum(lengths, np.float32(1e-6))
    return found


def _calibrated(sample: Floats32, fingerprint: str) -> CosineCalibration | None:
    rows = np.ascontiguousarray(sample, "<f4")
    vectors = Vectors(tuple(range(len(rows))), int(rows.shape[1]), rows.tobytes())
    return calibrate(vectors, fingerprint=fingerprint)


def with_questions(reading: Reading, tiers: Tiers, parts: AnswerParts) -> AnswerParts:
    """The stages of an answer with what reads questions, unless that is off; blocking."""
    settings = reading.settings.query
    if not settings.enabled:
        return parts
    embedder = tiers.embedder
    fingerprint = None if reading.embedder is None else reading.embedder.spec.fingerprint
    questions = Questions(
        QuestionParts(
            reader=RuleReader(settings, classifier_for(settings, fingerprint)),
            vector_of=_no_vector if embedder is None else embedder.seen,
            likening=None if settings.ambiguity == "off" else Likenings(reading),
            engine=_engine(settings, parts),
        )
    )
    return msgspec.structs.replace(parts, questions=questions)


def _no_vector(query: str) -> Vectors | None:
    del query
    return None


def classifier_for(settings: QuerySettings, fingerprint: str | None) -> KindClassifier | None:
    """The classifier for the embedder in use (None: there is none); None: rules alone."""
    path = settings.classifier_path
    if fingerprint is None:
        return None
    found = KindClassifier.load(Path(path)) if path else KindClassifier.shipped()
    if found.fingerprint == fingerprint:
        return found
    if path:
        raise ConfigError(
            f"{path} was made for another embedder; make it again with tools/train_kinds.py.",
            param="query.classifier_path",
        )
    return None


def _engine(settings: QuerySettings, parts: AnswerParts) -> EngineQuestions | None:
    """What asks the generator; the life that it asks through reads no questions itself."""
    if not (settings.engine_rewriting or settings.hyde):
        return None
    asked = QuestionEngineSettings(
        rewriting=settings.engine_rewriting,
        hyde=settings.hyde,
        timeout_s=settings.engine_timeout_ms / 1000,
        max_tokens=settings.engine_max_tokens,
    )
    return EngineQuestions(AnswerPipeline(parts), parts.count, asked)
