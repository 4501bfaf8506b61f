"""Writes a trained light reranker as the ONNX graph that ``forebay.rerank.light`` loads."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import msgspec
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from forebay.lab.distill.light import CLIP, FUSED_WEIGHT, SPREAD, Parameters

KIND = "light-reranker"
OPSET = 18
IR_VERSION = 9
_TINY = 1e-6


class LightDescription(msgspec.Struct, frozen=True):
    """What the graph says of itself.

    ``embedder``: the fingerprint of the embedder whose vectors it reads. ``curves``: a score of
    middle is relevance one half, and every width above moves it by e, first without sentences, then
    with them; one alone: it knows none. ``trained_on``: the data.
    """

    embedder: str
    features_version: int
    curves: Sequence[tuple[float, float]]
    trained_on: str


def light_graph(parameters: Parameters, description: LightDescription) -> bytes:
    """Return the model's file: projections in half precision, all else in single."""
    dimensions, _ = parameters["query"].shape
    features = len(parameters["deviation"]) + 2
    middles, widths = zip(*description.curves, strict=True)
    constants = {
        "deviation": parameters["deviation"],
        "query_axes_half": parameters["query"].astype(np.float16),
        "passage_axes_half": parameters["passage"].astype(np.float16),
        "linear": parameters["linear"][:, None],
        "low": np.array(-CLIP, np.float32),
        "high": np.array(CLIP, np.float32),
        "spread": np.array(SPREAD, np.float32),
        "fused_weight": np.array(FUSED_WEIGHT, np.float32),
        "tiny": np.array(_TINY, np.float32),
        "middle": np.array([middles[0], middles[-1]], np.float32)[:, None],
        "width": np.array([widths[0], widths[-1]], np.float32)[:, None],
        "unit": np.array(1, np.float32),
        "zero": np.array([0], np.int64),
        "one": np.array([1], np.int64),
        "second_last": np.array([features - 2], np.int64),
        "last": np.array([features - 1], np.int64),
        "end": np.array([features], np.int64),
    }
    graph = helper.make_graph(
        [*_likeness(), *_head()],
        KIND,
        [
            helper.make_tensor_value_info("features", TensorProto.FLOAT, ["n", features]),
            helper.make_tensor_value_info("query", TensorProto.FLOAT, [dimensions]),
            helper.make_tensor_value_info("vectors", TensorProto.FLOAT, ["n", dimensions]),
        ],
        [
            helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["n"]),
            helper.make_tensor_value_info("relevance", TensorProto.FLOAT, ["n"]),
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
        "embedder": description.embedder,
        "features_version": str(description.features_version),
        "trained_on": description.trained_on,
        "reads_sentences": str(int(len(description.curves) > 1)),
    }
    mark = hashlib.sha256(graph.SerializeToString(deterministic=True)).hexdigest()[:16]
    helper.set_model_props(
        model, {"kind": KIND, "dimensions": str(dimensions), "mark": mark, **told}
    )
    data: bytes = model.SerializeToString(deterministic=True)
    return data


def _likeness() -> list[onnx.NodeProto]:
    """``likeness`` (n x 1): cosines of the projections, less their mean, times ``across``."""
    node = helper.make_node
    return [
        node("Cast", ["query_axes_half"], ["query_axes"], to=TensorProto.FLOAT),
        node("Cast", ["passage_axes_half"], ["passage_axes"], to=TensorProto.FLOAT),
        node("Unsqueeze", ["query", "zero"], ["query_row"]),
        *_unit("query_row", "query_axes", "asked"),
        *_unit("vectors", "passage_axes", "passages"),
        node("Transpose", ["asked"], ["asked_column"], perm=[1, 0]),
        node("MatMul", ["passages", "asked_column"], ["alike"]),
        node("ReduceMean", ["alike", "zero"], ["alike_mean"], keepdims=1),
        node("Sub", ["alike", "alike_mean"], ["alike_apart"]),
        node("Mul", ["alike_apart", "spread"], ["alike_spread"]),
        node("Slice", ["features", "last", "end", "one"], ["across"]),
        node("Mul", ["alike_spread", "across"], ["likeness"]),
    ]


def _head() -> list[onnx.NodeProto]:
    """``scores`` and ``relevance`` (n) of features and ``likeness``."""
    node = helper.make_node
    return [
        node("Slice", ["features", "zero", "second_last", "one"], ["told"]),
        node("ReduceMean", ["told", "zero"], ["told_mean"], keepdims=1),
        node("Sub", ["told", "told_mean"], ["told_apart"]),
        node("Div", ["told_apart", "deviation"], ["told_scaled"]),
        node("Clip", ["told_scaled", "low", "high"], ["told_bounded"]),
        node("Concat", ["told_bounded", "likeness"], ["case"], axis=1),
        node("Slice", ["features", "second_last", "last", "one"], ["read"]),
        node("Sub", ["unit", "read"], ["unread"]),
        node("Concat", ["unread", "read"], ["cases"], axis=1),
        node("Mul", ["case", "unread"], ["case_unread"]),
        node("Mul", ["case", "read"], ["case_read"]),
        node("Concat", ["case_unread", "case_read"], ["inputs"], axis=1),
        node("MatMul", ["inputs", "linear"], ["learned"]),
        node("Gather", ["features", "zero"], ["fused"], axis=1),
        node("Mul", ["fused", "fused_weight"], ["fused_scaled"]),
        node("Add", ["learned", "fused_scaled"], ["score_column"]),
        node("Squeeze", ["score_column", "one"], ["scores"]),
        node("MatMul", ["cases", "middle"], ["middles"]),
        node("MatMul", ["cases", "width"], ["widths"]),
        node("Sub", ["score_column", "middles"], ["away"]),
        node("Div", ["away", "widths"], ["steps"]),
        node("Sigmoid", ["steps"], ["relevance_column"]),
        node("Squeeze", ["relevance_column", "one"], ["relevance"]),
    ]


def _unit(rows: str, axes: str, output: str) -> list[onnx.NodeProto]:
    """``rows @ axes`` at unit length."""
    node = helper.make_node
    return [
        node("MatMul", [rows, axes], [f"{output}_turned"]),
        node("ReduceL2", [f"{output}_turned", "one"], [f"{output}_length"], keepdims=1),
        node("Add", [f"{output}_length", "tiny"], [f"{output}_divisor"]),
        node("Div", [f"{output}_turned", f"{output}_divisor"], [output]),
    ]
