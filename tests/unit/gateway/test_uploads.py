"""What may be said of a document in a PUT, and what is refused."""

from __future__ import annotations

import json

import pytest

from forebay.kernel.errors import NotFound
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


@pytest.mark.parametrize("raw", ["%ff", "%fe", "a%c3", "%ed%a0%80"])
async def test_an_id_that_is_not_utf_8_is_refused(raw: str) -> None:
    async with client(World()) as http:
        for method in ("PUT", "GET", "DELETE"):
            refused = await http.request(method, f"{DOCUMENTS}/{raw}", content=b"x")
            assert (refused.status_code, refused.json()["error"]["type"]) == (
                400,
                "invalid_request_error",
            )
        assert (await http.put(f"{DOCUMENTS}/%ef%bf%bd.md", content=b"x")).status_code == 200


@pytest.mark.parametrize("document_id", ["a\nb", "a\n", "\n"])
def test_an_id_with_a_newline_reaches_its_check(document_id: str) -> None:
    table = World().app.routes
    spec, values = table.find("PUT", f"{DOCUMENTS}/{document_id}")
    assert (spec.name, values["id"]) == ("put_document", document_id)
    with pytest.raises(NotFound):
        table.find("GET", f"{DOCUMENTS}\n")


@pytest.mark.parametrize(
    "headers",
    [
        {"content-encoding": "gzip"},
        {"content-encoding": "identity, br"},
        {"transfer-encoding": "gzip, chunked"},
    ],
)
async def test_a_packed_body_is_refused(headers: dict[str, str]) -> None:
    world = World()
    async with client(world) as http:
        for method, path in (("PUT", f"{DOCUMENTS}/a.md"), ("POST", "/v1/search")):
            refused = await http.request(method, path, content=b"x", headers=headers)
            assert refused.status_code == 415
            assert refused.headers["accept-encoding"] == "identity"
            assert refused.json()["error"]["code"] == "unsupported_content_encoding"
        plain = {"content-encoding": "identity"}
        response = await http.put(f"{DOCUMENTS}/a.md", content=b"x", headers=plain)
        assert response.status_code == 200
    assert len(world.knowledge.uploads) == 1
