"""The light reranker (F2.14): a small model over words and stored vectors of candidates.

The graph, written by ``forebay.lab.distill.light_export``, takes ``features`` (n x features),
``query`` (d) and ``vectors`` (n x d) and gives ``scores`` and ``relevance`` (n): the first order
the candidates of one query, the second are probabilities, comparable between queries.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, Self

import msgspec
import numpy as np

from forebay.kernel.documents import Hit
from forebay.kernel.errors import ConfigError, EngineError
from forebay.kernel.stages import HitVectors
from forebay.rerank.features import FEATURES, FEATURES_VERSION, Candidates, candidates_of
from forebay.rerank.places import prepare

KIND = "light-reranker"
_ERRORS_ONLY = 3


class LightInfo(msgspec.Struct, frozen=True):
    """What a model says of itself: whose vectors it reads, whether it knows what to make of
    sentences', and a mark of its parameters.
    """

    embedder: str
    dimensions: int
    features_version: int
    reads_sentences: bool
    trained_on: str
    mark: str


class LightModel:
    """A loaded model; ``relevances`` blocks for a millisecond; any thread may call it."""

    def __init__(self, data: bytes, name: str = "the light reranker") -> None:
        prepare()
        runtime: Any = importlib.import_module("onnxruntime")
        options = runtime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = _ERRORS_ONLY
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        try:
            self._session = runtime.InferenceSession(
                data, options, providers=["CPUExecutionProvider"]
            )
            told = self._session.get_modelmeta().custom_metadata_map
        except Exception as error:
            # ONNX Runtime derives its errors from Exception, one class per status code.
            raise ConfigError(
                f"{name} cannot be loaded by ONNX Runtime; name a model of `forebay distill`"
            ) from error
        if told.get("kind") != KIND:
            raise ConfigError(f"{name} is no light reranker; train one with `forebay distill`")
        self.info = LightInfo(
            embedder=told["embedder"],
            dimensions=int(told["dimensions"]),
            features_version=int(told["features_version"]),
            reads_sentences=told.get("reads_sentences") == "1",
            trained_on=told["trained_on"],
            mark=told["mark"],
        )
        if self.info.features_version != FEATURES_VERSION:
            raise ConfigError(
                f"{name} is of another release; train it again with `forebay distill`"
            )

    @classmethod
    def shipped(cls) -> Self:
        """The model for the built-in embedder. Blocking: reads half a megabyte."""
        data = files("forebay.rerank").joinpath("data", "light.onnx").read_bytes()
        return cls(data)

    @classmethod
    def read(cls, path: Path) -> Self:
        """A model of one's own; ``ConfigError`` where there is none. Blocking."""
        try:
            data = path.read_bytes()
        except OSError as error:
            raise ConfigError(
                f"{path.name} cannot be read; train a model with `forebay distill --write`",
                param="rerank.light.path",
            ) from error
        return cls(data, path.name)

    def relevances(
        self, query: str, hits: Sequence[Hit], vectors: HitVectors
    ) -> tuple[list[float], list[float]]:
        """Return per hit a score, which orders them, and a relevance in 0..1.

        ``EngineError`` for vectors of another size than the model's.
        """
        if vectors.dimensions != self.info.dimensions:
            raise EngineError("the vectors are not those the light reranker was trained on")
        if not self.info.reads_sentences:
            vectors = msgspec.structs.replace(vectors, nearest=())
        return self.run(candidates_of(query, hits, vectors))

    def run(self, candidates: Candidates) -> tuple[list[float], list[float]]:
        """The same for candidates whose features are made already; under 1 ms for 50."""
        if candidates.features.shape[1] != len(FEATURES):
            raise EngineError("the light reranker got other features than it knows")
        feed = {
            "features": candidates.features,
            "query": candidates.query,
            "vectors": candidates.vectors,
        }
        try:
            scores, relevance = self._session.run(["scores", "relevance"], feed)
        except Exception as error:
            # As above: no common base class to name.
            raise EngineError("the light reranker failed on this input") from error
        if not np.isfinite(scores).all():
            raise EngineError("the light reranker gave scores that are no numbers")
        return scores.tolist(), relevance.tolist()
