"""The kind of a question from its vector: one matrix product and a softmax.

Weights belong to one embedder and are made by ``tools/train_kinds.py`` from ``data/kinds.tsv``.
Nothing is embedded for it: it reads the vector that a search made anyway.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import IO, get_args
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from forebay.kernel.documents import Vectors
from forebay.kernel.errors import ConfigError
from forebay.kernel.stages import QueryKind

KINDS: tuple[QueryKind, ...] = get_args(QueryKind)
SHIPPED = "kinds_e5_small.npz"

REMEMBERED = 2048
"""Questions whose kinds are remembered, some 2 kB each: their vectors are kept as well."""


class KindClassifier:
    """Multinomial logistic regression over vectors of the embedder with ``fingerprint``.

    ``weights`` is (dimensions + 1, kinds), the last row is added to every vector's scores.
    """

    def __init__(self, fingerprint: str, weights: NDArray[np.float32]) -> None:
        if weights.ndim != 2 or weights.shape[1] != len(KINDS):
            raise ConfigError(
                f"the query classifier needs {len(KINDS)} columns of weights, one for each kind; "
                "make them again with tools/train_kinds.py.",
                param="query.classifier_path",
            )
        self.fingerprint = fingerprint
        self._weights = weights[:-1]
        self._bias = weights[-1]
        self._of = lru_cache(maxsize=REMEMBERED)(self._compute)

    @property
    def dimensions(self) -> int:
        """Numbers of a vector that it reads."""
        return len(self._weights)

    @classmethod
    def shipped(cls) -> KindClassifier:
        """The classifier for the built-in embedder."""
        file = resources.files("forebay.query") / "data" / SHIPPED
        with file.open("rb") as opened:
            return cls._read(opened)

    @classmethod
    def load(cls, path: Path) -> KindClassifier:
        """Weights that were made for another embedder (blocking); ``ConfigError`` when unusable."""
        try:
            with path.open("rb") as opened:
                return cls._read(opened)
        except (OSError, EOFError, ValueError, KeyError, BadZipFile) as error:
            raise ConfigError(
                f"{path} holds no weights of a query classifier; make them with "
                "tools/train_kinds.py.",
                param="query.classifier_path",
            ) from error

    @classmethod
    def _read(cls, file: IO[bytes]) -> KindClassifier:
        with np.load(file, allow_pickle=False) as found:
            return cls(str(found["fingerprint"]), found["weights"].astype(np.float32))

    def probabilities(self, vector: Vectors) -> Mapping[QueryKind, float] | None:
        """The probability of each kind; None for a vector of another size."""
        if vector.dimensions != len(self._weights):
            return None
        return self._of(vector.data)

    def _compute(self, data: bytes) -> Mapping[QueryKind, float]:
        scores = np.frombuffer(data, "<f4", self.dimensions) @ self._weights + self._bias
        shares = np.exp(scores - scores.max())
        return dict(zip(KINDS, (shares / shares.sum()).tolist(), strict=True))


def fit(
    vectors: NDArray[np.float32],
    kinds: NDArray[np.int64],
    *,
    decay: float = 1e-4,
    steps: int = 1500,
) -> NDArray[np.float32]:
    """Weights by Nesterov's accelerated gradient on the cross-entropy with ridge ``decay``.

    ``vectors`` (n, dimensions), ``kinds`` indexes into ``KINDS``. The loss is convex and the step
    is one over its Lipschitz bound, so the result depends on the data alone.
    """
    rows = np.hstack([vectors, np.ones((len(vectors), 1), np.float32)]).astype(np.float64)
    wanted = np.eye(len(KINDS))[kinds]
    step = 1.0 / (0.5 * np.linalg.eigvalsh(rows.T @ rows / len(rows))[-1] + decay)
    weights = np.zeros((rows.shape[1], len(KINDS)))
    ahead, momentum = weights.copy(), 1.0
    for _ in range(steps):
        scores = rows @ ahead
        shares = np.exp(scores - scores.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
        slope = rows.T @ (shares - wanted) / len(rows)
        slope[:-1] += decay * ahead[:-1]
        moved = ahead - step * slope
        following = (1.0 + np.sqrt(1.0 + 4.0 * momentum**2)) / 2.0
        ahead = moved + (momentum - 1.0) / following * (moved - weights)
        weights, momentum = moved, following
    return weights.astype(np.float32)
