"""Writes a tiny ONNX cross-encoder folder: its logit grows with the words both texts have."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
WORDS = (
    "how do i reset a password open the portal and it lunch is served at noon where when what "
    "may parcels be returned within thirty days boiler serviced once year word"
).split()
_DIMENSIONS = 64


def write_tiny_cross_encoder(
    folder: Path, *, outputs: int = 1, scale: float = 40.0, typed: bool = True
) -> Path:
    """A model that knows ``WORDS``; with ``outputs`` 2 it is a classifier (no, yes).

    ``typed``: False for a graph without ``token_type_ids``, which cannot tell the two apart.
    """
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = {word: index for index, word in enumerate((*_SPECIAL, *dict.fromkeys(WORDS)))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=_SPECIAL[1]))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    onnx.save_model(_graph(len(vocabulary), outputs, scale, typed), str(folder / "model.onnx"))
    return folder


def _graph(words: int, outputs: int, scale: float, typed: bool) -> onnx.ModelProto:
    table = np.random.default_rng(3).standard_normal((words, _DIMENSIONS)) / _DIMENSIONS**0.5
    table[: len(_SPECIAL)] = 0.0
    weights = np.array([[scale]] if outputs == 1 else [[-scale / 2, scale / 2]])
    offset = np.full(outputs, -1.0) if outputs == 1 else np.array([0.5, -0.5])
    constants = {
        "table": table.astype(np.float32),
        "weights": weights.astype(np.float32),
        "offset": offset.astype(np.float32),
        "axis": np.array([1], np.int64),
        "last": np.array([2], np.int64),
        "one": np.array(1.0, np.float32),
    }
    node = helper.make_node
    inputs = ["input_ids", "attention_mask", *(["token_type_ids"] if typed else [])]
    second = "token_type_ids" if typed else "attention_mask"
    nodes = [
        node("Gather", ["table", "input_ids"], ["states"]),
        node("Cast", [second], ["second"], to=TensorProto.FLOAT),
        node("Cast", ["attention_mask"], ["real"], to=TensorProto.FLOAT),
        node("Mul", ["second", "real"], ["text_mask"]),
        node("Sub", ["real", "text_mask"], ["query_mask"]),
        *_mean("query_mask", "query"),
        *_mean("text_mask", "text"),
        node("Mul", ["query", "text"], ["products"]),
        node("ReduceSum", ["products", "axis"], ["alike"], keepdims=1),
        node("MatMul", ["alike", "weights"], ["scaled"]),
        node("Add", ["scaled", "offset"], ["logits"]),
    ]
    graph = helper.make_graph(
        nodes,
        "tiny-cross-encoder",
        [
            helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "tokens"])
            for name in inputs
        ],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", outputs])],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def _mean(mask: str, output: str) -> list[onnx.NodeProto]:
    """The mean state of the tokens in ``mask`` (batch x dimensions)."""
    node = helper.make_node
    return [
        node("Unsqueeze", [mask, "last"], [f"{mask}_column"]),
        node("Mul", ["states", f"{mask}_column"], [f"{output}_states"]),
        node("ReduceSum", [f"{output}_states", "axis"], [f"{output}_sum"], keepdims=0),
        node("ReduceSum", [mask, "axis"], [f"{output}_count"], keepdims=1),
        node("Max", [f"{output}_count", "one"], [f"{output}_least"]),
        node("Div", [f"{output}_sum", f"{output}_least"], [output]),
    ]
