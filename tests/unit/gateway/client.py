"""The application without a socket, for tests of what routes answer."""

from __future__ import annotations

from typing import Any

import httpx

from tests.unit.gateway.fakes import World


def client(world: World, key: str | None = None, **headers: str) -> httpx.AsyncClient:
    """An asynchronous client; ``key`` is sent as the bearer."""
    sent: dict[str, Any] = {name.replace("_", "-"): value for name, value in headers.items()}
    if key is not None:
        sent["authorization"] = f"Bearer {key}"
    return httpx.AsyncClient(
        transport=httpx.ASGITransport(world.app), base_url="http://localhost", headers=sent
    )
