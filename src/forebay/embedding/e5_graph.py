"""Writes multilingual-e5-small as an int8 ONNX graph for ONNX Runtime.

The graph takes ``input_ids`` (int64, rows x tokens, all rows of one length) and gives
``embedding`` (float32, rows x 384): mean of the last layer, L2-normalised; and ``states`` (float32,
rows x tokens x 384): the last layer itself, for what compares token by token. There is no mask:
padding gains nothing on a CPU, and attention without a mask takes the faster kernel (a third
less time at 350 tokens). Addition and normalisation are separate operators because the fused one
is ten times slower; the session must not fuse them again (optimisation level ``basic``).
Projections
are int8 with one scale per output channel in a reduced range (7 bits: AVX2 without VNNI
saturates on the full one); activations are quantised as they come. The word embeddings stay
4-bit, exactly as packed, in a file ONNX Runtime maps: only rows that occur become resident, and
processes share them.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from forebay.embedding.e5_source import BLOCK, E5Source

OPSET = 18
IR_VERSION = 9
REDUCED_RANGE = 64
"""Largest absolute int8 code: 7 bits."""
STATES = "states"
"""The output that holds one vector per token."""

_CONTRIB = "com.microsoft"
_EXTERNAL_BYTES = 16_384


class _Writer:
    """Collects nodes and initialisers of one graph."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.initialisers: list[onnx.TensorProto] = []

    def constant(self, name: str, value: NDArray[np.generic]) -> str:
        self.initialisers.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def integers(self, name: str, *values: int) -> str:
        return self.constant(name, np.array(values, np.int64))

    def op(self, kind: str, inputs: list[str], *outputs: str, **attributes: float) -> str:
        self.nodes.append(_node(kind, inputs, list(outputs), "", attributes))
        return outputs[0]

    def contrib(self, kind: str, inputs: list[str], output: str, **attributes: float) -> str:
        self.nodes.append(_node(kind, inputs, [output], _CONTRIB, attributes))
        return output


def _node(
    kind: str, inputs: list[str], outputs: list[str], domain: str, attributes: dict[str, float]
) -> onnx.NodeProto:
    node = helper.make_node(kind, inputs, outputs, name=outputs[0], domain=domain)
    node.attribute.extend(helper.make_attribute(key, value) for key, value in attributes.items())
    return node


def write_e5_graph(source: E5Source, path: Path) -> None:
    """Write the graph to ``path`` and its tensors to ``path`` + ``.data``."""
    writer = _Writer()
    _embeddings(writer, source)
    writer.integers("thirds", *[source.shape.hidden] * 3)
    hidden = "hidden_0"
    for layer in range(source.shape.layers):
        last = layer + 1 == source.shape.layers
        hidden = _layer(writer, source, layer, (hidden, STATES if last else f"hidden_{layer + 1}"))
    _pooling(writer, hidden)
    onnx.save_model(
        _model(writer, source.shape.hidden),
        str(path),
        save_as_external_data=True,
        location=path.name + ".data",
        size_threshold=_EXTERNAL_BYTES,
    )


def _model(writer: _Writer, hidden: int) -> onnx.ModelProto:
    def tensor(name: str, kind: int, *shape: str | int) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, kind, shape)

    graph = helper.make_graph(
        writer.nodes,
        "multilingual-e5-small",
        [tensor("input_ids", TensorProto.INT64, "rows", "tokens")],
        [
            tensor("embedding", TensorProto.FLOAT, "rows", hidden),
            tensor(STATES, TensorProto.FLOAT, "rows", "tokens", hidden),
        ],
        writer.initialisers,
    )
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(_CONTRIB, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)


def _embeddings(writer: _Writer, source: E5Source) -> None:
    shape = source.shape
    codes, scales = source.blocks("emb.word", shape.vocabulary)
    pairs = codes.reshape(shape.vocabulary, -1, 2)
    writer.constant("word.codes", pairs[..., 0] | (pairs[..., 1] << 4))
    writer.constant("word.scales", scales)
    writer.contrib(
        "GatherBlockQuantized",
        ["word.codes", "input_ids", "word.scales"],
        "word",
        bits=4,
        block_size=BLOCK,
        gather_axis=0,
        quantize_axis=1,
    )
    positions = source.floats("emb.pos").reshape(shape.positions, shape.hidden)
    # Every token is of type 0, so that row belongs to the positions.
    writer.constant("positions", positions + source.floats("emb.type")[: shape.hidden])
    writer.op("Shape", ["input_ids"], "length", start=1, end=2)
    writer.integers("zero", 0)
    writer.op("Slice", ["positions", "zero", "length", "zero"], "position")
    writer.op("Add", ["word", "position"], "embedded")
    writer.constant("norm.weight", source.floats("emb.ln.w"))
    writer.constant("norm.bias", source.floats("emb.ln.b"))
    writer.op(
        "LayerNormalization",
        ["embedded", "norm.weight", "norm.bias"],
        "hidden_0",
        axis=-1,
        epsilon=shape.epsilon,
    )


def _layer(writer: _Writer, source: E5Source, layer: int, ends: tuple[str, str]) -> str:
    """One layer, from the tensor ``ends[0]`` to ``ends[1]``, which is returned."""
    shape, prefix = source.shape, f"l{layer}."
    hidden, output = ends

    def bias(name: str) -> str:
        return writer.constant(prefix + name, source.floats(prefix + name))

    def matrix(name: str, rows: int) -> NDArray[np.float32]:
        return source.matrix(prefix + name, rows)

    def add_norm(x: str, skip: str, norm: str, output: str) -> str:
        total = writer.op("Add", [x, skip], output + ".sum")
        inputs = [total, bias(norm + ".w"), bias(norm + ".b")]
        return writer.op("LayerNormalization", inputs, output, axis=-1, epsilon=shape.epsilon)

    weights = np.concatenate([matrix(f"{part}.w", shape.hidden) for part in "qkv"])
    biases = np.concatenate([source.floats(f"{prefix}{part}.b") for part in "qkv"])
    qkv_bias = writer.constant(prefix + "qkv.b", biases)
    qkv = _project(writer, hidden, prefix + "qkv", weights, qkv_bias)
    parts = [prefix + part for part in ("query", "key", "value")]
    writer.op("Split", [qkv, "thirds"], *parts, axis=-1)
    attended = writer.contrib(
        "MultiHeadAttention", parts, prefix + "attended", num_heads=shape.heads
    )
    out = _project(writer, attended, prefix + "ao", matrix("ao.w", shape.hidden), bias("ao.b"))
    middle = add_norm(out, hidden, "aln", prefix + "middle")
    wide = _project(writer, middle, prefix + "fi", matrix("fi.w", shape.intermediate))
    active = writer.contrib("BiasGelu", [wide, bias("fi.b")], prefix + "active")
    narrow = _project(writer, active, prefix + "fo", matrix("fo.w", shape.hidden), bias("fo.b"))
    return add_norm(narrow, middle, "oln", output)


def _project(
    writer: _Writer, x: str, name: str, weights: NDArray[np.float32], bias: str | None = None
) -> str:
    """``x @ weights.T + bias`` in int8; ``weights`` is outputs x inputs."""
    scales = np.abs(weights).max(axis=1) / REDUCED_RANGE
    scales[scales == 0] = 1
    codes = np.rint(weights / scales[:, None]).astype(np.int8)
    inputs = [
        x,
        writer.constant(name + ".codes", codes.T),
        writer.constant(name + ".scales", scales.astype(np.float32)),
        writer.constant(name + ".zeros", np.zeros(len(scales), np.int8)),
    ]
    if bias is not None:
        inputs.append(bias)
    return writer.contrib("DynamicQuantizeMatMul", inputs, name)


def _pooling(writer: _Writer, hidden: str) -> None:
    writer.integers("axis_1", 1)
    writer.op("ReduceMean", [hidden, "axis_1"], "mean", keepdims=0)
    writer.op("LpNormalization", ["mean"], "embedding", axis=-1, p=2)
