"""A server that orders hits anew: by the light model, by a dear one behind it, by neither."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from forebay.testing.rerank_server import RerankServer
from tests.integration.support import Served, served

DOCUMENTS = {
    "bus.md": "# Bus\n\nThe shuttle to the dam leaves at seven from the north gate.\n",
    "boiler.md": "# Boiler\n\nThe boiler is serviced once a year by a technician.\n",
    "parcel.md": "# Parcels\n\nParcels may be returned within thirty days of delivery.\n",
    "returns-zh.md": "# 退货\n\n商品签收后七天内可以申请退货。\n",
    "rooms-zh.md": "# 会议室\n\n会议室需要提前一天预订，超过两小时请联系行政部。\n",
}
CONFIG = """
[retrieval]
vector_timeout_ms = 20000
early_exit_confidence = 2.0

[rerank]
backend = "{backend}"
timeout_ms = 20000
dear_timeout_ms = 5000

[rerank.cascade]
floor = 0.0
sure_from = 1.0

[rerank.dear]
backend = "endpoint"

[rerank.dear.endpoint]
base_url = "{url}"
"""


@contextmanager
def endpoint() -> Iterator[RerankServer]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    server = RerankServer()
    try:
        asyncio.run_coroutine_threadsafe(server.__aenter__(), loop).result(20)
        yield server
    finally:
        asyncio.run_coroutine_threadsafe(server.__aexit__(), loop).result(20)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def filled(server: Served) -> Served:
    for name, text in DOCUMENTS.items():
        assert server.ask.put("notes", name, text, "?wait=embedded").status < 300
    return server


@pytest.fixture(scope="module")
def dear() -> Iterator[RerankServer]:
    with endpoint() as server:
        yield server


@pytest.fixture(scope="module")
def cascade(tmp_path_factory: pytest.TempPathFactory, dear: RerankServer) -> Iterator[Served]:
    config = CONFIG.format(backend="cascade", url=dear.base_url)
    with served(tmp_path_factory.mktemp("cascade"), config) as server:
        yield filled(server)


@pytest.fixture(scope="module")
def light(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    config = CONFIG.format(backend="light", url="http://127.0.0.1:9/v1")
    with served(tmp_path_factory.mktemp("light"), config) as server:
        yield filled(server)


@pytest.mark.parametrize(
    ("query", "right"),
    [("how long may parcels be returned", "parcel.md"), ("签收后几天内能退货", "returns-zh.md")],
)
def test_light_order_is_cached_and_timed_apart(light: Served, query: str, right: str) -> None:
    first = light.ask("POST", "/v1/search", {"kb": "notes", "query": query, "top_k": 2})
    again = light.ask("POST", "/v1/search", {"kb": "notes", "query": query, "top_k": 2})
    assert first.json["hits"][0]["document_id"] == right
    assert len(first.json["hits"]) == 2
    assert "rerank;dur=" in first.headers["server-timing"]
    assert not first.json["degradations"]
    assert again.json["hits"] == first.json["hits"]
    assert "retrieval=hit" in again.headers["x-forebay-cache"]


def test_the_dear_reranker_has_the_last_word(cascade: Served, dear: RerankServer) -> None:
    before = len(dear.requests)
    query = "which technician services the boiler"
    found = cascade.ask("POST", "/v1/search", {"kb": "notes", "query": query, "top_k": 3})
    assert found.json["hits"][0]["document_id"] == "boiler.md"
    [asked] = dear.requests[before:]
    assert asked["query"] == query
    assert len(asked["documents"]) == len(DOCUMENTS)
    assert any(text.startswith("Boiler") for text in asked["documents"])


def test_a_dear_reranker_that_fails_leaves_the_light_order(
    cascade: Served, dear: RerankServer
) -> None:
    dear.status = 500
    try:
        query = {"kb": "notes", "query": "when does the shuttle leave", "top_k": 2}
        found = cascade.ask("POST", "/v1/search", query)
    finally:
        dear.status = 200
    assert found.json["hits"][0]["document_id"] == "bus.md"
    told = [(d["stage"], d["rung"]) for d in found.json["degradations"]]
    assert told == [("rerank", "light")]
    again = cascade.ask("POST", "/v1/search", query)
    assert not again.json["degradations"], "what was degraded is not kept"
