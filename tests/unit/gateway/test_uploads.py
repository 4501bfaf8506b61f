"""What may be said of a document in a PUT, and what is refused."""

from __future__ import annotations

import json

import pytest

from tests.unit.gateway.client import client
from tests.unit.gateway.fakes import World

DOCUMENTS = "/v1/kb/handbook/documents"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("title", "x" * 1001),
        ("title", "a\x00b"),
        ("title", "a\x1b[31mb"),
        ("source", "a\nb"),
        ("source", "x" * 2001),
        ("language", "xx\nyy"),
        ("language", "no language at all"),
        ("language", "x" * 36),
        ("tags", "a\u2028b"),
        ("tags", "x" * 201),
        ("tags", ",".join(f"t{n}" for n in range(101))),
        ("groups", "a\x7fb"),
        ("filename", "a\rb.md"),
        ("metadata", json.dumps({"k": "a\nb"})),
        ("metadata", json.dumps({"k\n": "b"})),
        ("metadata", json.dumps({"k": "x" * 4001})),
        ("metadata", json.dumps({f"k{n}": "" for n in range(101)})),
    ],
)
async def test_what_is_said_of_a_document_is_bounded(name: str, value: str) -> None:
    world = World()
    async with client(world) as http:
        refused = await http.put(f"{DOCUMENTS}/new.md", content=b"x", params={name: value})
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, name)
        form = {"files": {"file": ("a.md", b"x")}, "data": {name: value}}
        assert (await http.put(f"{DOCUMENTS}/new.md", **form)).status_code == 400  # type: ignore[arg-type]
    assert world.knowledge.uploads == []


async def test_a_document_is_put_whole() -> None:
    async with client(World(), content_range="bytes 0-1/9") as http:
        assert (await http.put(f"{DOCUMENTS}/new.md", content=b"x")).status_code == 400
