"""Dify's interface: records, thresholds, every comparison."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from forebay.kernel.documents import DocumentInfo
from tests.unit.gateway.client import client
from tests.unit.gateway.fakes import World

DOCUMENTS = {
    "a": {"category": "Policy", "year": "2024", "updated": "2024-05-01", "note": ""},
    "b": {"category": "Manual", "year": "2026", "updated": "2026-01-15T10:00:00+08:00"},
    "c": {"category": "policy draft", "year": "9", "部门": "人事"},
}


def world() -> World:
    made = World()
    made.knowledge.stored["handbook"].clear()
    for name, metadata in DOCUMENTS.items():
        made.knowledge.add("handbook", name, f"text of {name}")
        info, text = made.knowledge.stored["handbook"][name]
        changed: DocumentInfo = msgspec.structs.replace(
            info, metadata={**metadata, "_internal": "x"}, tags=(f"tag-{name}",)
        )
        made.knowledge.stored["handbook"][name] = (changed, text)
    return made


async def ask(body: dict[str, Any]) -> Any:
    async with client(world()) as http:
        response = await http.post(
            "/retrieval", json={"knowledge_id": "handbook", "query": "text"} | body
        )
    assert response.status_code == 200, response.text
    return response.json()["records"]


async def test_records_have_difys_shape() -> None:
    records = await ask({"retrieval_setting": {"top_k": 2, "score_threshold": 0.0}})
    assert [set(record) for record in records] == [{"content", "score", "title", "metadata"}] * 2
    assert records[0]["content"] == "text of a"
    assert 0 <= records[0]["score"] <= 1
    assert records[0]["metadata"]["document_id"] == "a"
    assert records[0]["metadata"]["category"] == "Policy"
    assert "_internal" not in records[0]["metadata"]


async def test_the_threshold_holds() -> None:
    records = await ask({"retrieval_setting": {"top_k": 5, "score_threshold": 0.4}})
    assert [record["score"] for record in records] == [1.0, 0.5]


@pytest.mark.parametrize(
    ("name", "operator", "value", "found"),
    [
        ("category", "contains", "POLICY", "ac"),
        ("category", "not contains", "policy", "b"),
        ("category", "start with", "man", "b"),
        ("category", "end with", "draft", "c"),
        ("category", "is not", "policy", "bc"),
        ("category", "not in", ["policy", "manual"], "c"),
        ("note", "empty", None, "abc"),
        ("year", "not empty", None, "abc"),
        ("部门", "not null", None, "c"),
        ("部门", "is", "人事", "c"),
        ("year", "=", 2024, "a"),
        ("year", "≠", 2024, "bc"),
        ("year", ">", "100", "ab"),
        ("year", "<", 2026, "ac"),
        ("year", "≥", 2026, "b"),
        ("year", "<=", 9, "c"),
        ("updated", "before", "2025-01-01", "a"),
        ("updated", "after", "2025-01-01T00:00:00Z", "b"),
        ("tags", "is not", "tag-b", "ac"),
        (["category", "year"], "contains", "2026", "b"),
    ],
)
async def test_comparisons(name: Any, operator: str, value: Any, found: str) -> None:
    condition = {"name": name, "comparison_operator": operator, "value": value}
    if operator == "is":
        # Equality goes into the search itself, which the fake does for tags only.
        condition["name"] = [name, name]
    records = await ask({"metadata_condition": {"conditions": [condition]}})
    assert "".join(record["title"] for record in records) == found


async def test_equality_goes_into_the_search() -> None:
    conditions = [{"name": "tags", "comparison_operator": "in", "value": ["tag-c", "tag-a"]}]
    records = await ask({"metadata_condition": {"conditions": conditions}})
    assert [record["title"] for record in records] == ["a", "c"]


async def test_and_or() -> None:
    conditions = [
        {"name": "year", "comparison_operator": ">", "value": 2000},
        {"name": "category", "comparison_operator": "contains", "value": "policy"},
    ]
    both = await ask({"metadata_condition": {"conditions": conditions}})
    either = await ask({"metadata_condition": {"conditions": conditions, "logical_operator": "or"}})
    assert [record["title"] for record in both] == ["a"]
    assert [record["title"] for record in either] == ["a", "b", "c"]


@pytest.mark.parametrize("condition", [None, {}, {"conditions": None}, {"conditions": []}])
async def test_no_condition(condition: Any) -> None:
    assert len(await ask({"metadata_condition": condition})) == 3
