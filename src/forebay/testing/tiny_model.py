"""Writes a tiny ONNX text-embedding folder, in the shape sentence-transformers gives a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, processors

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
CHARACTERS = "".join(map(chr, range(32, 127))) + "退货会议室预订中文检索"


def write_tiny_model(
    folder: Path,
    *,
    dimensions: int = 16,
    pooling: str = "mean",
    prompts: dict[str, str] | None = None,
    seed: int = 7,
) -> Path:
    """A model whose token states are rows of a random table plus their position's.

    One token is one character; ``[CLS]`` carries no meaning of its own, so ``pooling`` decides
    between very different vectors.
    """
    folder.mkdir(parents=True, exist_ok=True)
    _tokenizer().save(str(folder / "tokenizer.json"))
    onnx.save_model(_graph(dimensions, seed), str(folder / "model.onnx"))
    config: dict[str, Any] = {
        "model_type": "bert",
        "max_position_embeddings": 64,
        "pad_token_id": 0,
    }
    _write(folder / "config.json", config)
    _write(
        folder / "modules.json",
        [
            {"idx": 0, "path": "", "type": "sentence_transformers.models.Transformer"},
            {"idx": 1, "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
            {"idx": 2, "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"},
        ],
    )
    modes = {"cls": "cls_token", "mean": "mean_tokens", "last": "lasttoken", "max": "max_tokens"}
    _write(
        folder / "1_Pooling" / "config.json",
        {f"pooling_mode_{mode}": name == pooling for name, mode in modes.items()},
    )
    if prompts is not None:
        _write(folder / "config_sentence_transformers.json", {"prompts": prompts})
    return folder


def _write(path: Path, value: object) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(value), encoding="utf-8")


def _tokenizer() -> Tokenizer:
    vocabulary = {token: index for index, token in enumerate((*SPECIAL, *CHARACTERS))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=SPECIAL[1]))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B [SEP]",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    return tokenizer


def _graph(dimensions: int, seed: int) -> onnx.ModelProto:
    random = np.random.default_rng(seed)
    tokens = random.standard_normal((len(SPECIAL) + len(CHARACTERS), dimensions))
    positions = 0.2 * random.standard_normal((64, dimensions))
    initialisers = [
        numpy_helper.from_array(tokens.astype(np.float32), "tokens"),
        numpy_helper.from_array(positions.astype(np.float32), "positions"),
        numpy_helper.from_array(np.array([0], np.int64), "zero"),
    ]
    nodes = [
        helper.make_node("Add", ["input_ids", "token_type_ids"], ["ids"]),
        helper.make_node("Gather", ["tokens", "ids"], ["states"]),
        helper.make_node("Shape", ["attention_mask"], ["length"], start=1, end=2),
        helper.make_node("Slice", ["positions", "zero", "length", "zero"], ["position"]),
        helper.make_node("Add", ["states", "position"], ["last_hidden_state"]),
    ]
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "tokens_in"])
        for name in ("input_ids", "attention_mask", "token_type_ids")
    ]
    output = helper.make_tensor_value_info(
        "last_hidden_state", TensorProto.FLOAT, ["batch", "tokens_in", dimensions]
    )
    graph = helper.make_graph(nodes, "tiny", inputs, [output], initialisers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
