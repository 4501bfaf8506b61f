"""Runs an ONNX text encoder: token ids in, unit vectors out.

One intra-op thread and one shared session: threads that call it scale better than threads inside
it, and the weights stay in memory once. ``run`` releases the interpreter lock.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from forebay.kernel.errors import ConfigError, EngineError

Pooling = Literal["cls", "mean", "last", "max"]

_KNOWN_INPUTS = {"input_ids", "attention_mask", "token_type_ids", "position_ids"}
_ERRORS_ONLY = 3
_TINY = 1e-12
_STATES_AXES = 3
"""Rows, tokens, dimensions."""


class SessionSettings(msgspec.Struct, frozen=True):
    """How ONNX Runtime runs a model."""

    intra_op_threads: Annotated[
        int, msgspec.Meta(ge=1, le=64, description="Threads inside one run of the model.")
    ] = 1
    memory_arena: Annotated[
        bool,
        msgspec.Meta(description="Keep work memory between runs: faster, more resident memory."),
    ] = False


class OnnxEncoder:
    """A loaded model; ``encode`` may be called from several threads at once.

    A two-dimensional first output is taken as the sentence vector, a three-dimensional one is
    pooled as ``pooling`` says. A model without ``attention_mask`` runs row by row. ``final_graph``
    keeps ONNX Runtime from fusing operators of a graph that was written for it.
    """

    def __init__(
        self,
        path: Path,
        settings: SessionSettings,
        *,
        pooling: Pooling = "mean",
        pad_id: int = 0,
        final_graph: bool = False,
    ) -> None:
        self._runtime: Any = importlib.import_module("onnxruntime")
        try:
            self._session = self._runtime.InferenceSession(
                str(path), self._options(settings, final_graph), providers=["CPUExecutionProvider"]
            )
        except Exception as error:
            # ONNX Runtime derives its errors from Exception, one class per status code.
            raise ConfigError(f"the model {path.name} cannot be loaded by ONNX Runtime") from error
        self._inputs = {tensor.name: tensor.type for tensor in self._session.get_inputs()}
        unknown = set(self._inputs) - _KNOWN_INPUTS
        if unknown or "input_ids" not in self._inputs:
            raise ConfigError(
                f"the model {path.name} is not a text encoder (inputs {sorted(self._inputs)})"
            )
        self._output = self._pick_output()
        self._states_output = self._pick_states()
        self._pooling: Pooling = pooling
        self._pad = pad_id
        self.dimensions = int(self.encode([[pad_id]]).shape[1])

    def _options(self, settings: SessionSettings, final_graph: bool) -> Any:
        options = self._runtime.SessionOptions()
        options.intra_op_num_threads = settings.intra_op_threads
        options.inter_op_num_threads = 1
        options.enable_cpu_mem_arena = settings.memory_arena
        options.enable_mem_pattern = False
        levels = self._runtime.GraphOptimizationLevel
        options.graph_optimization_level = (
            levels.ORT_ENABLE_BASIC if final_graph else levels.ORT_ENABLE_ALL
        )
        options.log_severity_level = _ERRORS_ONLY
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        return options

    def _pick_output(self) -> str:
        names = [tensor.name for tensor in self._session.get_outputs()]
        for wanted in ("embedding", "sentence_embedding", "last_hidden_state", "token_embeddings"):
            if wanted in names:
                return wanted
        return str(names[0])

    def _pick_states(self) -> str | None:
        """The output that has one vector per token."""
        outputs = {tensor.name: tensor.shape for tensor in self._session.get_outputs()}
        for wanted in ("states", "last_hidden_state", "token_embeddings", self._output):
            if len(outputs.get(wanted) or ()) == _STATES_AXES:
                return wanted
        return None

    @property
    def has_states(self) -> bool:
        """Whether the model gives vectors of single tokens."""
        return self._states_output is not None

    def states(self, row: Sequence[int]) -> NDArray[np.float32]:
        """What the last layer says of each token ``(len(row), dimensions)``, as the model has it.

        ``ConfigError`` where the model gives sentence vectors only.
        """
        if self._states_output is None:
            raise ConfigError("the embedding model gives no vectors of single tokens")
        states: NDArray[np.float32] = self._run(self._states_output, np.array([row], np.int64))[0]
        return states

    def encode(self, rows: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        """Unit vectors ``(len(rows), dimensions)``; rows are padded to the longest."""
        if "attention_mask" not in self._inputs and len(rows) > 1:
            return np.concatenate([self._encode([row]) for row in rows])
        return self._encode(rows)

    def _encode(self, rows: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        ids, mask = (np.array(rows, np.int64), None) if len(rows) == 1 else self._padded(rows)
        vectors = self._run(self._output, ids, mask)
        if vectors.ndim == _STATES_AXES:
            vectors = pool(vectors, np.ones_like(ids) if mask is None else mask, self._pooling)
        return normalise(vectors)

    def _padded(self, rows: Sequence[Sequence[int]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        longest = max(map(len, rows))
        ids = np.full((len(rows), longest), self._pad, np.int64)
        mask = np.zeros((len(rows), longest), np.int64)
        for index, row in enumerate(rows):
            ids[index, : len(row)] = row
            mask[index, : len(row)] = 1
        return ids, mask

    def _run(
        self, output: str, ids: NDArray[np.int64], mask: NDArray[np.int64] | None = None
    ) -> NDArray[np.float32]:
        try:
            found = self._session.run([output], self._feed(ids, mask))[0]
        except Exception as error:
            # As above: no common base class to name.
            raise EngineError("the embedding model failed on this input") from error
        return np.asarray(found, np.float32)

    def _feed(self, ids: NDArray[np.int64], mask: NDArray[np.int64] | None) -> dict[str, Any]:
        values = {"input_ids": ids}
        if "attention_mask" in self._inputs:
            values["attention_mask"] = np.ones_like(ids) if mask is None else mask
        if "token_type_ids" in self._inputs:
            values["token_type_ids"] = np.zeros_like(ids)
        if "position_ids" in self._inputs:
            values["position_ids"] = np.broadcast_to(np.arange(ids.shape[1]), ids.shape).copy()
        return {
            name: values[name].astype(np.int32) if kind == "tensor(int32)" else values[name]
            for name, kind in self._inputs.items()
        }


def pool(
    states: NDArray[np.float32], mask: NDArray[np.int64], pooling: Pooling
) -> NDArray[np.float32]:
    """One vector per row of ``states`` (rows x tokens x dimensions)."""
    pooled: NDArray[np.float32]
    weights = mask[:, :, None].astype(np.float32)
    if pooling == "cls":
        pooled = states[:, 0]
    elif pooling == "last":
        pooled = states[np.arange(len(states)), mask.sum(axis=1) - 1]
    elif pooling == "max":
        pooled = np.where(weights > 0, states, -np.inf).max(axis=1)
    else:
        pooled = (states * weights).sum(axis=1) / np.maximum(weights.sum(axis=1), 1)
    return pooled


def normalise(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Rows divided by their length; ``EngineError`` where a row has none or is not finite."""
    # As ``np.linalg.norm`` does it, which costs as much again as this.
    lengths = np.sqrt(np.add.reduce(vectors * vectors, axis=1, keepdims=True))
    if not all(_TINY <= length < math.inf for length in lengths[:, 0].tolist()):
        raise EngineError("the embedding backend answered a vector without direction")
    unit: NDArray[np.float32] = (vectors / lengths).astype(np.float32, copy=False)
    return unit
