"""Writes a trained late-interaction head as the ONNX graph ``forebay.rerank.late_head`` loads."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from forebay.lab.distill.late import LateHead

KIND = "late-interaction"
OPSET = 18
IR_VERSION = 9

_CODES = 127.0
_TINY = 1e-6


class HeadDescription(msgspec.Struct, frozen=True):
    """What the graph says of itself.

    ``embedder``: the fingerprint of the embedder whose states it was trained on. ``middle`` and
    ``width`` turn a mean MaxSim into a relevance (``calibrate_scores``). ``trained_on``: the data.
    """

    embedder: str
    middle: float
    width: float
    trained_on: str


def calibrate_scores(
    scores: NDArray[np.floating], relevant: NDArray[np.bool_] | NDArray[np.floating]
) -> tuple[float, float]:
    """``middle`` and ``width`` of the logistic curve that best foretells ``relevant``.

    Newton's method on the log-likelihood with Platt's smoothed targets; ``relevant`` may be
    chances in 0..1 instead of labels.
    """
    x = np.asarray(scores, np.float64)
    centre, spread = float(x.mean()), float(x.std()) or 1.0
    z = (x - centre) / spread
    chances = np.asarray(relevant, np.float64)
    positive, negative = float(chances.sum()), float((1 - chances).sum())
    target = chances * (positive + 1) / (positive + 2) + (1 - chances) / (negative + 2)
    slope, offset = 1.0, 0.0
    design = np.stack([z, np.ones_like(z)], axis=1)
    for _ in range(50):
        p = 1 / (1 + np.exp(-np.clip(slope * z + offset, -30, 30)))
        gradient = design.T @ (p - target)
        curvature = design.T @ (design * np.maximum(p * (1 - p), 1e-6)[:, None])
        step = np.linalg.solve(curvature + 1e-9 * np.eye(2), gradient)
        slope, offset = slope - step[0], offset - step[1]
        if np.abs(step).max() < 1e-9:
            break
    slope = max(slope, 1e-3)
    return float(centre - offset * spread / slope), float(spread / slope)


def write_late_head(head: LateHead, path: Path, description: HeadDescription) -> None:
    """Write ``head`` to ``path``: one file, parameters inside."""
    inputs, dimensions = head.query.shape
    constants = {
        **{name: value for name, value in head.arrays().items() if name != "log_scale"},
        "weight": head.weight[:, None],
        "tiny": np.array(_TINY, np.float32),
        "codes_range": np.array(_CODES, np.float32),
        "axis_1": np.array([1], np.int64),
    }
    graph = helper.make_graph(
        [
            *_unit("query", "query_unit"),
            helper.make_node("MatMul", ["states", "weight"], ["pull"]),
            helper.make_node("Softmax", ["pull"], ["shares"], axis=0),
            helper.make_node("Mul", ["query_unit", "shares"], ["query_vectors"]),
            *_unit("passage", "passage_unit"),
            helper.make_node("Abs", ["passage_unit"], ["sizes"]),
            helper.make_node("ReduceMax", ["sizes", "axis_1"], ["largest"], keepdims=1),
            helper.make_node("Div", ["largest", "codes_range"], ["step"]),
            helper.make_node("Max", ["step", "tiny"], ["safe_step"]),
            helper.make_node("Div", ["passage_unit", "safe_step"], ["steps"]),
            helper.make_node("Round", ["steps"], ["whole"]),
            helper.make_node("Cast", ["whole"], ["codes"], to=TensorProto.INT8),
            helper.make_node("Squeeze", ["safe_step", "axis_1"], ["scales"]),
        ],
        KIND,
        [_tensor("states", TensorProto.FLOAT, "tokens", inputs)],
        [
            _tensor("query_vectors", TensorProto.FLOAT, "tokens", dimensions),
            _tensor("codes", TensorProto.INT8, "tokens", dimensions),
            _tensor("scales", TensorProto.FLOAT, "tokens"),
        ],
        [
            numpy_helper.from_array(np.ascontiguousarray(value), name)
            for name, value in constants.items()
        ],
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION
    )
    told = {
        "kind": KIND,
        "inputs": str(inputs),
        "dimensions": str(dimensions),
        **{name: str(value) for name, value in msgspec.structs.asdict(description).items()},
    }
    helper.set_model_props(model, told)
    path.write_bytes(model.SerializeToString(deterministic=True))


def _tensor(name: str, kind: int, *shape: str | int) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def _unit(side: str, output: str) -> list[onnx.NodeProto]:
    """``states @ side + side_offset`` at unit length."""
    return [
        helper.make_node("MatMul", ["states", side], [f"{side}_turned"]),
        helper.make_node("Add", [f"{side}_turned", f"{side}_offset"], [f"{side}_moved"]),
        helper.make_node("ReduceL2", [f"{side}_moved", "axis_1"], [f"{side}_length"], keepdims=1),
        helper.make_node("Add", [f"{side}_length", "tiny"], [f"{side}_divisor"]),
        helper.make_node("Div", [f"{side}_moved", f"{side}_divisor"], [output]),
    ]
