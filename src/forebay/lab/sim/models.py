"""Open models by the shapes in their published configuration, and what they weigh.

A model is as heavy as its matrices: parameters follow from the shape and are checked against the
published counts in the tests.
"""

from __future__ import annotations

from typing import Literal

import msgspec

Precision = Literal["fp16", "fp8", "int4"]
KvPrecision = Literal["fp16", "fp8"]

PRECISIONS: tuple[Precision, ...] = ("fp16", "fp8", "int4")
KV_PRECISIONS: tuple[KvPrecision, ...] = ("fp16", "fp8")

# int4: groups of 128 weights share an fp16 scale and a 4-bit zero (AWQ, GPTQ), 4.16 bits each.
# Embedding and output head stay in fp16 with fp8 and int4 (the usual recipes' default).
_BYTES_PER_WEIGHT: dict[Precision, float] = {
    "fp16": 2.0,
    "fp8": 1.0,
    "int4": (4 + (16 + 4) / 128) / 8,
}
_BYTES_PER_KV_ELEMENT: dict[KvPrecision, int] = {"fp16": 2, "fp8": 1}


def kv_bytes_per_layer(
    batch: int, sequence_tokens: int, heads: int, head_size: int, bytes_per_element: int = 2
) -> int:
    """Keys and values of one layer, in bytes (F4.1).

    With grouped-query attention ``heads`` are the key-value heads.
    """
    return 2 * batch * sequence_tokens * heads * head_size * bytes_per_element


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """A decoder with grouped-query attention and a gated feed-forward layer."""

    name: str
    size: str
    """Its class, which also is its short name."""
    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_size: int
    vocabulary: int
    tied: bool
    """Whether the output head is the embedding."""
    qkv_bias: bool
    max_tokens: int
    source: str

    @property
    def embedding_parameters(self) -> int:
        """Those of the embedding, and as many again of the output head unless tied."""
        return self.vocabulary * self.hidden

    @property
    def layer_parameters(self) -> int:
        """Those of all layers and the last norm: what every token is multiplied by."""
        queries, keys = self.heads * self.head_size, self.kv_heads * self.head_size
        attention = 2 * self.hidden * queries + 2 * self.hidden * keys
        bias = queries + 2 * keys if self.qkv_bias else 0
        one = attention + bias + 3 * self.hidden * self.intermediate + 2 * self.hidden
        return self.layers * one + self.hidden

    @property
    def parameters(self) -> int:
        """All of them."""
        return self.layer_parameters + self.embedding_parameters * (1 if self.tied else 2)

    def weight_bytes(self, precision: Precision) -> float:
        """Memory of the weights."""
        embeddings = (self.parameters - self.layer_parameters) * _BYTES_PER_WEIGHT["fp16"]
        return self.layer_parameters * _BYTES_PER_WEIGHT[precision] + embeddings

    def read_bytes(self, precision: Precision) -> float:
        """What a step reads of the weights: all but the embedding's table, of which it takes rows.

        A tied table is read as the output head.
        """
        head = self.embedding_parameters * _BYTES_PER_WEIGHT["fp16"]
        return self.layer_parameters * _BYTES_PER_WEIGHT[precision] + head

    def kv_bytes_per_token(self, precision: KvPrecision = "fp16") -> int:
        """Keys and values of one token over all layers."""
        element = _BYTES_PER_KV_ELEMENT[precision]
        return self.layers * kv_bytes_per_layer(1, 1, self.kv_heads, self.head_size, element)


MODELS: tuple[Model, ...] = (
    Model(
        name="qwen2.5-1.5b",
        size="1.5b",
        layers=28,
        hidden=1536,
        intermediate=8960,
        heads=12,
        kv_heads=2,
        head_size=128,
        vocabulary=151936,
        tied=True,
        qkv_bias=True,
        max_tokens=32768,
        source="config.json of Qwen/Qwen2.5-1.5B-Instruct, 2024",
    ),
    Model(
        name="qwen2.5-7b",
        size="7b",
        layers=28,
        hidden=3584,
        intermediate=18944,
        heads=28,
        kv_heads=4,
        head_size=128,
        vocabulary=152064,
        tied=False,
        qkv_bias=True,
        max_tokens=32768,
        source="config.json of Qwen/Qwen2.5-7B-Instruct, 2024",
    ),
    Model(
        name="llama-3.1-8b",
        size="8b",
        layers=32,
        hidden=4096,
        intermediate=14336,
        heads=32,
        kv_heads=8,
        head_size=128,
        vocabulary=128256,
        tied=False,
        qkv_bias=False,
        max_tokens=131072,
        source="config.json of meta-llama/Llama-3.1-8B-Instruct, 2024",
    ),
    Model(
        name="qwen2.5-14b",
        size="14b",
        layers=48,
        hidden=5120,
        intermediate=13824,
        heads=40,
        kv_heads=8,
        head_size=128,
        vocabulary=152064,
        tied=False,
        qkv_bias=True,
        max_tokens=32768,
        source="config.json of Qwen/Qwen2.5-14B-Instruct, 2024",
    ),
    Model(
        name="llama-3.1-70b",
        size="70b",
        layers=80,
        hidden=8192,
        intermediate=28672,
        heads=64,
        kv_heads=8,
        head_size=128,
        vocabulary=128256,
        tied=False,
        qkv_bias=False,
        max_tokens=131072,
        source="config.json of meta-llama/Llama-3.1-70B-Instruct, 2024",
    ),
)
