"""The trained head of late interaction: token states to small vectors, as an ONNX graph.

Written by ``forebay.lab.distill.late_export``; formulas are there and in
``forebay.lab.distill.late``. The graph takes ``states`` (float32, tokens x inputs) and gives
``query_vectors`` (float32, tokens x dimensions: unit vectors times the tokens' weights) and, for a
passage, ``codes`` (int8, tokens x dimensions) and ``scales`` (float32, tokens): a token's vector is
its codes times its scale. Only what is asked for is computed.
"""

from __future__ import annotations

import importlib
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from forebay.kernel.errors import ConfigError, EngineError
from forebay.kernel.tokens import TokenStates

KIND = "late-interaction"
SHIPPED = "late_e5.onnx"
_ERRORS_ONLY = 3


class TokenCodes(msgspec.Struct, frozen=True):
    """A passage's tokens: ``dimensions`` int8 codes and one float16 scale each."""

    codes: NDArray[np.int8]
    scales: NDArray[np.float16]

    @property
    def size_bytes(self) -> int:
        """``dimensions + 2`` bytes a token."""
        return self.codes.nbytes + self.scales.nbytes


class LateHeadInfo(msgspec.Struct, frozen=True):
    """What a head says of itself.

    ``embedder`` is the fingerprint of the embedder whose states it reads; a mean MaxSim of
    ``middle`` is relevance one half, and every ``width`` above moves it by e.
    """

    embedder: str
    inputs: int
    dimensions: int
    middle: float
    width: float


class LateHead:
    """A loaded head; its methods block and may be called from several threads at once."""

    def __init__(self, path: Path) -> None:
        runtime: Any = importlib.import_module("onnxruntime")
        options = runtime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = _ERRORS_ONLY
        try:
            self._session = runtime.InferenceSession(
                str(path), options, providers=["CPUExecutionProvider"]
            )
            told = self._session.get_modelmeta().custom_metadata_map
        except Exception as error:
            # ONNX Runtime derives its errors from Exception, one class per status code.
            raise ConfigError(f"{path.name} cannot be loaded by ONNX Runtime") from error
        if told.get("kind") != KIND:
            raise ConfigError(f"{path.name} is no head for late interaction")
        self._run_options = runtime.RunOptions()
        self._run_options.only_execute_path_to_fetches = True
        self.info = LateHeadInfo(
            embedder=told["embedder"],
            inputs=int(told["inputs"]),
            dimensions=int(told["dimensions"]),
            middle=float(told["middle"]),
            width=float(told["width"]),
        )

    @classmethod
    def shipped(cls) -> LateHead:
        """The one trained on the built-in embedder (``benchmarks/rerank_late``)."""
        with resources.as_file(resources.files("forebay.rerank") / "data" / SHIPPED) as path:
            return cls(path)

    def query(self, states: TokenStates, max_tokens: int) -> NDArray[np.float32]:
        """Weighted query vectors ``(tokens, dimensions)`` of the first ``max_tokens`` tokens."""
        (found,) = self._run(("query_vectors",), self._rows(states)[:max_tokens])
        return np.asarray(found, np.float32)

    def passage(self, states: TokenStates) -> TokenCodes:
        """A passage's tokens as int8."""
        codes, scales = self._run(("codes", "scales"), self._rows(states))
        return TokenCodes(np.asarray(codes, np.int8), np.asarray(scales, np.float16))

    def _rows(self, states: TokenStates) -> NDArray[np.float32]:
        if states.dimensions != self.info.inputs:
            raise EngineError(
                f"the head reads token states of {self.info.inputs} dimensions, "
                f"the embedder gives {states.dimensions}"
            )
        return np.frombuffer(states.data, "<f4").reshape(states.tokens, states.dimensions)

    def _run(self, outputs: tuple[str, ...], rows: NDArray[np.float32]) -> list[Any]:
        try:
            found: list[Any] = self._session.run(list(outputs), {"states": rows}, self._run_options)
        except Exception as error:
            # As above: no common base class to name.
            raise EngineError("the late-interaction head failed on this input") from error
        return found


def max_sims(query: NDArray[np.float32], passages: list[TokenCodes]) -> NDArray[np.float32]:
    """Mean MaxSim per passage, -1..1: ``sum_i max_j <q_i, d_j>`` with the weights inside ``q``.

    Blocking: 50 passages of 200 tokens against 20 query tokens take a few milliseconds. Work
    memory is ``4 * (dimensions + query tokens)`` bytes per token of the longest passage.
    """
    best = np.empty(len(passages), np.float32)
    across = np.ascontiguousarray(query.T)
    for place, passage in enumerate(passages):
        cosines = passage.codes.astype(np.float32) @ across
        cosines *= passage.scales.astype(np.float32)[:, None]
        best[place] = cosines.max(axis=0).sum()
    return best
