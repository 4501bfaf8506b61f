"""Two tenants and two groups against every route: nobody reads what is not theirs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest

from forebay.gateway.identity import new_key
from forebay.gateway.settings import KeySettings, TenantSettings
from forebay.testing.embedding import HashEmbedder
from tests.unit.gateway.client import client
from tests.unit.gateway.fakes import World

ACME, ACME_ADMIN, SALES, RIVAL = (new_key() for _ in range(4))
TENANTS = (
    TenantSettings(
        "acme",
        keys=(
            KeySettings(ACME.hash, groups=("hr",)),
            KeySettings(SALES.hash, groups=("sales",)),
            KeySettings(ACME_ADMIN.hash, admin=True, groups=("hr",)),
        ),
        knowledge=("handbook",),
        groups=("hr", "sales"),
    ),
    TenantSettings("rival", keys=(KeySettings(RIVAL.hash, admin=True),), knowledge=("secret",)),
)
WORDS = "salary-table-7"


def world() -> World:
    made = World(tenants=TENANTS, embedder=HashEmbedder(8))
    made.knowledge.stored["handbook"].clear()
    made.knowledge.add("handbook", "pay.md", f"The {WORDS} is confidential.", groups=["hr"])
    return made


async def everything(http: httpx.AsyncClient, kb: str, document: str) -> list[httpx.Response]:
    """Each way to get at a document."""
    ask = {"model": f"forebay/{kb}", "messages": [{"role": "user", "content": "pay?"}]}
    return [
        await http.post("/v1/chat/completions", json=ask),
        await http.post("/v1/chat/completions", json=ask | {"stream": True}),
        await http.post("/v1/search", json={"query": "pay", "kb": kb}),
        await http.post("/v1/search", json={"query": "pay", "model": f"forebay/{kb}"}),
        await http.post("/retrieval", json={"knowledge_id": kb, "query": "pay"}),
        await http.get(f"/v1/models/forebay/{kb}"),
        await http.get(f"/v1/kb/{kb}"),
        await http.get(f"/v1/kb/{kb}/documents"),
        await http.get(f"/v1/kb/{kb}/documents/{document}"),
        await http.get("/v1/kb"),
        await http.get("/v1/models"),
    ]


async def test_the_owner_reads_it_everywhere() -> None:
    async with client(world(), ACME.key) as http:
        responses = await everything(http, "handbook", "pay.md")
    assert [response.status_code for response in responses] == [200] * len(responses)
    for index in (0, 1, 2, 3, 4, 8):
        assert WORDS in responses[index].text.replace('"}}]}\n\ndata', ""), index


async def test_another_group_finds_nothing_of_it() -> None:
    async with client(world(), SALES.key) as http:
        for response in await everything(http, "handbook", "pay.md"):
            assert WORDS not in response.text
            assert "pay.md" not in response.text.replace("no document 'pay.md'", "")
        found = await http.post("/v1/search", json={"query": "pay"})
        assert found.json()["hits"] == []
        assert (await http.get("/v1/kb/handbook/documents")).json()["data"] == []


async def test_narrowing_hides_from_the_owner_too() -> None:
    async with client(world(), ACME.key, x_forebay_groups="sales") as http:
        for response in await everything(http, "handbook", "pay.md"):
            assert WORDS not in response.text


async def test_another_tenants_kb_looks_like_none() -> None:
    async with client(world(), RIVAL.key, x_request_id="same") as http:
        hidden = await everything(http, "handbook", "pay.md")
        absent = await everything(http, "nonesuch", "pay.md")
        for a, b in zip(hidden, absent, strict=True):
            assert a.status_code == b.status_code
            assert a.content.replace(b"handbook", b"nonesuch") == b.content
            assert drop_length(a.headers) == drop_length(b.headers)
        assert [response.status_code for response in hidden[:9]] == [404] * 9
        for method in ("put", "delete"):
            extra: dict[str, Any] = {"content": b"x"} if method == "put" else {}
            response = await getattr(http, method)("/v1/kb/handbook/documents/pay.md", **extra)
            assert (response.status_code, response.json()["error"]["code"]) == (
                404,
                "model_not_found",
            )
        assert [kb["name"] for kb in (await http.get("/v1/kb")).json()["data"]] == ["secret"]


def drop_length(headers: httpx.Headers) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name != "content-length"}


Ask = Callable[[httpx.AsyncClient], Awaitable[httpx.Response]]
CHANGES: dict[str, Ask] = {
    "put": lambda http: http.put("/v1/kb/handbook/documents/new.md", content=b"x"),
    "delete": lambda http: http.delete("/v1/kb/handbook/documents/pay.md"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
async def test_changes_need_an_admin_key(change: Ask) -> None:
    made = world()
    async with client(made) as http:
        assert (await change(http)).status_code == 401
    async with client(made, ACME.key) as http:
        refused = await change(http)
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "admin_key_needed")
    async with client(made, ACME_ADMIN.key) as http:
        assert (await change(http)).status_code == 200


async def test_an_admin_gives_documents_to_own_groups_only() -> None:
    async with client(world(), ACME_ADMIN.key) as http:
        path = "/v1/kb/handbook/documents/new.md"
        own = await http.put(path, content=b"x", params={"groups": "hr"})
        foreign = await http.put(path, content=b"x", params={"groups": "hr,board"})
    assert own.status_code == 200
    assert (foreign.status_code, foreign.json()["error"]["param"]) == (403, "groups")


async def test_groups_never_fail_open() -> None:
    made = world()
    async with client(made, ACME_ADMIN.key) as http:
        path = "/v1/kb/handbook/documents/new.md"
        for query in ("groups=", "groups=,,", "groups=%20", "group=hr", "groups=hr&group=hr"):
            refused = await http.put(f"{path}?{query}", content=b"x")
            assert (refused.status_code, refused.json()["error"]["type"]) == (
                400,
                "invalid_request_error",
            ), query
        for fields in ({"groups": ""}, {"group": "hr"}):
            refused = await http.put(path, files={"file": ("a.md", b"x")}, data=fields)
            assert refused.status_code == 400, fields
        assert made.knowledge.uploads == []
        assert (await http.put(path, content=b"x")).status_code == 200
    [upload] = made.knowledge.uploads
    assert upload.groups is None


async def test_counts_tell_nothing_of_hidden_documents() -> None:
    made = world()
    made.knowledge.add("handbook", "open.md", "Open to all.")
    for key, expected in ((SALES.key, (1, 12)), (ACME.key, (2, 47)), (ACME_ADMIN.key, (2, 47))):
        async with client(made, key) as http:
            one = (await http.get("/v1/kb/handbook")).json()
            [listed] = (await http.get("/v1/kb")).json()["data"]
        assert (one["documents"], one["characters"]) == expected
        assert listed == one


async def test_every_guarded_route_needs_a_key() -> None:
    made = world()
    bodies: dict[str, Any] = {"POST": {"json": {}}, "PUT": {"content": b"x"}}
    async with client(made) as http:
        for spec in made.app.routes.specs:
            path = spec.path.replace("{kb}", "handbook").replace("{id:path}", "pay.md")
            response = await http.request(spec.method, path, **bodies.get(spec.method, {}))
            if spec.access == "open":
                assert response.status_code == 200, path
            elif spec.access != "figures":
                assert response.status_code == 401, path
                assert response.headers["www-authenticate"] == "Bearer"
                assert WORDS not in response.text


async def test_figures_from_afar_need_an_admin_key() -> None:
    made = world()
    async with client(made) as http:
        assert (await http.get("/metrics")).status_code == 200
        afar = {"x-forwarded-for": "9.9.9.9"}
        assert (await http.get("/metrics", headers=afar)).status_code == 401
    async with client(made, ACME.key) as http:
        assert (await http.get("/metrics")).status_code == 403
    async with client(made, ACME_ADMIN.key) as http:
        assert (await http.get("/metrics", headers=afar)).status_code == 200


async def test_foreign_model_names_go_to_the_tenants_own_default() -> None:
    made = world()
    ask = {"model": "gpt-9", "messages": [{"role": "user", "content": "pay?"}]}
    async with client(made, RIVAL.key) as http:
        answer = (await http.post("/v1/chat/completions", json=ask)).json()
    assert answer["model"] == "forebay/secret"
    async with client(made, ACME.key) as http:
        answer = (await http.post("/v1/chat/completions", json=ask)).json()
    assert answer["model"] == "forebay/handbook"


async def test_dify_errors_have_their_codes() -> None:
    body = {"knowledge_id": "handbook", "query": "pay"}
    made = world()
    async with client(made) as http:
        missing = await http.post("/retrieval", json=body)
        malformed = await http.post("/retrieval", json=body, headers={"authorization": "x"})
        unknown = await http.post("/retrieval", json=body, headers={"authorization": "Bearer x"})
    async with client(made, RIVAL.key) as http:
        hidden = await http.post("/retrieval", json=body)
        invalid = await http.post("/retrieval", json={})
    codes = [r.json()["error_code"] for r in (missing, malformed, unknown, hidden, invalid)]
    assert codes == [1001, 1001, 1002, 2001, 400]
    assert set(missing.json()) == {"error_code", "error_msg"}


async def test_figures_without_a_key_need_a_name_of_this_machine() -> None:
    made = world()
    for headers, expected in (
        ({"host": "example.com"}, 401),
        ({"host": "localhost:8400"}, 200),
        ({"host": "[::1]:8400"}, 200),
        ({"x-real-ip": "8.8.8.8"}, 401),
        ({"via": "1.1 nginx"}, 401),
    ):
        async with client(made) as http:
            assert (await http.get("/metrics", headers=headers)).status_code == expected, headers
    async with client(made, ACME_ADMIN.key, host="example.com") as http:
        assert (await http.get("/metrics")).status_code == 200
