"""How questions are read in a process: the rules, the classifier, vectors that are there anyway."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from threading import Lock

import msgspec
import numpy as np
import numpy.typing as npt

from forebay.app.caching import Tiers
from forebay.app.comparing import open_comparing
from forebay.app.runtime import Reading
from forebay.app.view_memory import ViewMemory
from forebay.embedding.calibration import (
    SAME,
    CosineCalibration,
    calibrate,
    calibrate_pairs,
    pairs_of,
)
from forebay.kernel.context import RequestContext
from forebay.kernel.documents import Vectors
from forebay.kernel.errors import ConfigError
from forebay.kernel.stages import Likeness
from forebay.pipeline.answer import AnswerParts, AnswerPipeline
from forebay.pipeline.hypothesis import EngineQuestions, QuestionEngineSettings
from forebay.pipeline.questions import QuestionParts, Questions
from forebay.query import KindClassifier, QuerySettings, RuleReader, written
from forebay.retrieval.index import Snapshot

Floats32 = npt.NDArray[np.float32]
GROWN = 1.25
"""A knowledge base that grew or shrank by so much is calibrated again."""
REMEMBERED = 2048
"""Likenesses kept, a kilobyte or two each."""
SAMPLED = 64
"""Knowledge bases whose sample is kept, 160 kB each."""


class _Sample(msgspec.Struct, frozen=True):
    """Unrelated chunks of a knowledge base: unit vectors, and the cosines of pairs of them."""

    rows: Floats32
    cosines: npt.NDArray[np.float64]

    def beyond(self, question: Floats32) -> CosineCalibration | None:
        """What is usual between them beside the ``question``, a unit vector.

        The cosine of a and b without what they share with the unit vector q is
        (ab - aq bq) / (sqrt(1 - aq^2) sqrt(1 - bq^2)).
        """
        shared = (self.rows @ question).astype(np.float64)
        lengths = np.maximum(np.sqrt(np.maximum(1.0 - shared * shared, 0.0)), 1e-6)
        left, right = pairs_of(len(self.rows))
        cosines = self.cosines - shared[left] * shared[right]
        cosines /= lengths[left] * lengths[right]
        return calibrate_pairs(cosines[cosines < SAME])


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
        self._found: ViewMemory[Likeness] = ViewMemory(REMEMBERED)
        self._samples: ViewMemory[_Sample] = ViewMemory(SAMPLED)
        self._sampling = Lock()

    async def of(
        self, ctx: RequestContext, kb: str, chunk_ids: Sequence[int], question: Vectors | None
    ) -> Likeness | None:
        """See ``Likening``; reads a few rows beside the loop, and calibrates, for milliseconds."""
        snapshot = self._reading.indexes.get(kb).snapshot()
        view = snapshot.vectors
        if not view.rows:
            return None
        key = kb, tuple(chunk_ids), None if question is None else question.data
        found = self._found.get(view, key)
        if found is not None:
            return found
        try:
            async with asyncio.timeout(ctx.deadline.remaining()):
                found = await self._reading.threads.run(
                    partial(self._of, kb, snapshot, key[1], question)
                )
        except TimeoutError:
            return None
        if found is not None:
            self._found.keep(view, key, found)
        return found

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
            sample = self._sample(kb, snapshot.vectors.background_rows[1])
            calibration = None if sample is None else sample.beyond(asked)
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

    def _sample(self, kb: str, background: Floats32) -> _Sample | None:
        with self._sampling:
            # Views share these rows until others are chosen.
            known = self._samples.get(background, kb)
            if known is None:
                left, right = pairs_of(len(background))
                if not len(left):
                    return None
                cosines = np.einsum(
                    "ij,ij->i", background[left], background[right], dtype=np.float64
                )
                known = _Sample(background, cosines)
                self._samples.keep(background, kb, known)
            return known


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
    """The stages of an answer with what compares questions with sentences of another language, and
    with what reads questions, unless that is off; blocking.
    """
    parts = msgspec.structs.replace(parts, comparing=open_comparing(reading, tiers.embedder))
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
    return EngineQuestions(AnswerPipeline(parts), parts.count, asked, written)
