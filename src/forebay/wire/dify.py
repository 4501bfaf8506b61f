"""Dify's external knowledge interface."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

Operator = Literal[
    "contains", "not contains", "start with", "end with", "is", "is not", "in", "not in",
    "empty", "not empty", "null", "not null",
    "=", "≠", "!=", ">", "<", "≥", ">=", "≤", "<=", "before", "after",
]  # fmt: skip


class RetrievalSetting(msgspec.Struct, frozen=True):
    """How many records, and how good at least (0..1)."""

    top_k: Annotated[int, msgspec.Meta(ge=1, le=100)] = 5
    score_threshold: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None


class Condition(msgspec.Struct, frozen=True):
    """A comparison; several names mean that any of them may satisfy it."""

    name: str | tuple[str, ...]
    comparison_operator: Operator
    value: str | float | tuple[str | float, ...] | None = None


class MetadataCondition(msgspec.Struct, frozen=True):
    """Conditions that records must satisfy."""

    conditions: tuple[Condition, ...] | None = None
    logical_operator: Literal["and", "or"] | None = None


class RetrievalRequest(msgspec.Struct, frozen=True):
    """POST /retrieval; ``knowledge_id`` is the knowledge base's name."""

    knowledge_id: str
    query: str
    retrieval_setting: RetrievalSetting = RetrievalSetting()
    metadata_condition: MetadataCondition | None = None


class Record(msgspec.Struct, frozen=True):
    """One passage."""

    content: str
    score: float
    title: str
    metadata: dict[str, str]


class RetrievalAnswer(msgspec.Struct, frozen=True):
    """Passages, best first."""

    records: tuple[Record, ...]
