"""A whole server: what is asked often is found again before somebody asks, if that is wanted."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.support import LEXICAL, Client, Served, served, until

QUESTION = "when does the sluice open"
REWARMED = 'forebay_cache_events_total{event="rewarmed",tier="retrieval"} '


def rewarmed(server: Served) -> float:
    lines = server.ask("GET", "/metrics").body.decode().splitlines()
    return next((float(line.split()[-1]) for line in lines if line.startswith(REWARMED)), 0.0)


def cache_of(ask: Client) -> str:
    reply = ask("POST", "/v1/search", {"kb": "kb", "query": QUESTION})
    return reply.headers["x-forebay-cache"]


@pytest.mark.parametrize("enabled", [True, False])
def test_a_change_is_searched_again_before_somebody_asks(tmp_path: Path, *, enabled: bool) -> None:
    config = f"{LEXICAL}\n[cache.warming]\nenabled = {str(enabled).lower()}\n"
    with served(tmp_path / "warm", config) as server:
        server.ask.put("kb", "a.md", "# Sluice\n\nThe sluice does open at noon.\n")
        for _ in range(4):
            cache_of(server.ask)
        server.ask.put("kb", "b.md", "# Sluice\n\nWhen the river is high, the sluice opens.\n")
        if enabled:
            until(lambda: rewarmed(server) >= 1)
        assert ("retrieval=hit" in cache_of(server.ask)) == enabled
        assert server.ask.found("kb", QUESTION) == {"a.md", "b.md"}
        assert (rewarmed(server) >= 1) == enabled
