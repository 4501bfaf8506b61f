"""What is charged to requests that need no engine, and that nothing is open to who is denied."""

from __future__ import annotations

from typing import Any

import pytest

from forebay.gateway.identity import hash_key
from forebay.gateway.settings import KeySettings, TenantSettings
from forebay.kernel.clock import SystemClock, WallClock
from forebay.pipeline.asking import Charges
from forebay.policy.admission import (
    AccessRule,
    Admission,
    AdmissionOverrides,
    AdmissionSettings,
    Desk,
    DimensionLimits,
)
from forebay.policy.admission.load_factor import Factors
from forebay.policy.quota import Limit
from forebay.testing.embedding import HashEmbedder
from tests.unit.gateway.client import client
from tests.unit.gateway.fakes import World
from tests.unit.gateway.test_routes import ASK, CHAT, DOCUMENTS, ByLength

KEY = "fb-shop"
SHOP = TenantSettings(
    name="shop",
    knowledge="*",
    keys=(KeySettings(hash=hash_key(KEY), admin=True, operator=True),),
)
LIMITS = DimensionLimits(tenant=Limit(0.001, 100.0))


class Keeping:
    """Quotas that nobody changes."""

    def __init__(self, settings: AdmissionSettings) -> None:
        self.overrides = AdmissionOverrides()
        self.effective = settings
        self.factors = Factors()

    async def put(self, overrides: AdmissionOverrides) -> None:
        self.overrides = overrides


def world(settings: AdmissionSettings) -> World:
    admission = Admission(Desk(settings, (), {}, SystemClock(), WallClock()))
    return World(
        tenants=(SHOP,),
        embedder=HashEmbedder(),
        reranker=ByLength(),
        charging=Charges(admission),
        quotas=Keeping(settings),
    )


@pytest.mark.parametrize(
    ("path", "body", "tokens"),
    [
        ("/v1/embeddings", {"model": "m", "input": ["x" * 80, "一年假" * 4]}, 20 + 9),
        ("/v1/rerank", {"query": "q" * 8, "documents": ["d" * 40] * 3}, 3 * 12),
        ("/rerank", {"query": "年假", "documents": ["d" * 40] * 2}, 2 * 12),
    ],
)
async def test_embeddings_and_rerankings_are_charged_by_their_tokens(
    path: str, body: dict[str, Any], tokens: int
) -> None:
    async with client(world(AdmissionSettings(limits=LIMITS)), KEY) as http:
        left = 100
        while left >= tokens:
            left -= tokens
            response = await http.post(path, json=body)
            assert response.status_code == 200
            assert int(response.headers["x-ratelimit-limit-tokens"]) == 100
            assert int(response.headers["x-ratelimit-remaining-tokens"]) == left
        response = await http.post(path, json=body)
        assert response.status_code == 429
        assert int(response.headers["retry-after"]) > 0
    async with client(world(AdmissionSettings()), KEY) as http:
        response = await http.post(path, json=body)
        assert response.status_code == 200
        assert not [name for name in response.headers if name.startswith("x-ratelimit")]


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", CHAT, ASK),
        ("POST", "/v1/search", {"query": "leave"}),
        ("POST", "/v1/embeddings", {"model": "m", "input": "x"}),
        ("POST", "/v1/rerank", {"query": "q", "documents": ["d"]}),
        ("GET", "/v1/models", None),
        ("GET", "/v1/kb", None),
        ("GET", f"{DOCUMENTS}/leave.md", None),
        ("PUT", f"{DOCUMENTS}/new.md", {"text": "new"}),
        ("DELETE", f"{DOCUMENTS}/leave.md", None),
    ],
)
async def test_nothing_is_open_to_who_is_denied(
    method: str, path: str, body: dict[str, Any] | None
) -> None:
    denied = AdmissionSettings(rules=(AccessRule("tenant", "shop", deny=True),), enabled=False)
    made = world(denied)
    async with client(made, KEY) as http:
        response = await http.request(method, path, json=body)
        assert response.status_code == 403
        assert "deny list" in response.json()["error"]["message"]
        assert not made.answering.requests
        # Whoever denied himself by mistake can undo it.
        assert (await http.get("/v1/admission")).status_code == 200
        assert (await http.delete("/v1/admission")).status_code == 200
        assert (await http.get("/healthz")).status_code == 200
