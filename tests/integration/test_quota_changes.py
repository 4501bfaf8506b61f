"""Quotas changed while a server runs: by SIGHUP or an operator's call, and what a restart keeps."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from forebay.gateway.identity import hash_key
from tests.integration.support import LEXICAL, Client, Reply, Served, served, until
from tests.integration.test_workers import workers

OPERATOR, GUEST = "fb-operator", "fb-guest"
ADDRESS = {"dimension": "ip", "name": "127.0.0.1"}


def config(burst: float, plan: int = 100_000, factor: float = 1.0) -> str:
    return f"""{LEXICAL}
[admission]
load_factor = {factor}
[admission.limits.all]
rate_per_s = 1.0
burst = {burst}
[[tenants]]
name = "shop"
knowledge = "*"
plan = {{ tokens_per_minute = 60, burst_tokens = {plan} }}
[[tenants.keys]]
hash = "{hash_key(OPERATOR)}"
operator = true
admin = true
[[tenants.keys]]
hash = "{hash_key(GUEST)}"
"""


class Asking:
    """Requests with the two keys."""

    def __init__(self, server: Served) -> None:
        self.server = server
        self.operator = Client(server.port, {"authorization": f"Bearer {OPERATOR}"})
        self.guest = Client(server.port, {"authorization": f"Bearer {GUEST}"})

    def show(self) -> Any:
        reply = self.operator("GET", "/v1/admission")
        assert reply.status == 200, reply.body
        return reply.json

    def burst(self) -> float:
        return float(self.show()["limits"]["all"]["burst"])

    def put(self, change: object) -> Reply:
        return self.operator("PUT", "/v1/admission", change)

    def status(self) -> int:
        return self.guest("POST", "/v1/search", {"kb": "kb", "query": "spillway"}).status

    def hang_up(self, text: str) -> None:
        self.server.configure(text)
        self.server.process.send_signal(signal.SIGHUP)

    def limit(self) -> int:
        """The burst of the tightest bucket of an answer, as it is told."""
        body = {"model": "forebay/kb", "messages": [{"role": "user", "content": "spillway?"}]}
        reply = self.guest("POST", "/v1/chat/completions", body)
        assert reply.status == 200, reply.body
        return int(reply.headers["x-ratelimit-limit-tokens"])


def opened(server: Served) -> Asking:
    asking = Asking(server)
    asking.operator.put("kb", "dam.md", "# Dam\n\nThe spillway is 120 metres long.\n")
    return asking


def test_sighup_changes_limits_plans_and_factors_of_a_running_server(tmp_path: Path) -> None:
    with served(tmp_path, config(80_000)) as server:
        asking = opened(server)
        assert asking.limit() == 80_000
        asking.hang_up(config(70_000))
        until(lambda: asking.limit() == 70_000)
        asking.hang_up(config(70_000, plan=60_000))
        until(lambda: asking.limit() == 60_000)
        asking.hang_up(config(70_000, plan=60_000, factor=0.5))
        until(lambda: asking.limit() == 30_000)
        asking.hang_up(config(-1))  # no limit at all
        until(lambda: "nothing was reloaded" in server.log())
        assert asking.limit() == 30_000
        other = 'tenant_profiles = { shp = "code" }\n[admission.limits.all]'
        asking.hang_up(config(40_000).replace("[admission.limits.all]", other))
        until(lambda: "names shp" in server.log())
        assert asking.limit() == 30_000


def test_an_operators_change_outlives_sighup_and_restart_until_it_is_taken_back(
    tmp_path: Path,
) -> None:
    with served(tmp_path, config(80_000)) as server:
        asking = opened(server)
        limit = {"all": {"rate_per_s": 1.0, "burst": 50_000.0}}
        nobody = asking.put({"plans": {"nobody": {"weight": 2.0}}})
        assert (nobody.status, nobody.json["error"]["param"]) == (400, "plans")
        assert asking.put({"plans": {"shop": {"burst_tokens": 30_000}}}).status == 200
        assert asking.limit() == 30_000
        plans = {"shop": {"max_in_flight": 3}}
        assert asking.put({"limits": limit, "plans": plans}).status == 200
        assert asking.limit() == 50_000
        asking.hang_up(config(70_000, plan=40_000))
        until(lambda: asking.limit() == 40_000)
        assert asking.burst() == 50_000
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(30) == 0
        server.configure(config(70_000))
        server.restart()
        assert asking.limit() == 50_000
        assert asking.show()["overrides"]["limits"]["all"]["burst"] == 50_000
        assert asking.show()["overrides"]["plans"]["shop"]["max_in_flight"] == 3
        assert asking.operator("DELETE", "/v1/admission").status == 200
        assert asking.limit() == 70_000


def test_a_change_reaches_every_process_within_a_second_and_only_operators_make_one(
    tmp_path: Path,
) -> None:
    with served(tmp_path, config(80_000), "--workers", "2") as server:
        asking = opened(server)
        until(lambda: workers(server))
        deny = {"rules": [{**ADDRESS, "deny": True}]}
        assert asking.guest("PUT", "/v1/admission", deny).status == 403
        assert asking.guest("GET", "/v1/admission").status == 403
        assert asking.status() == 200
        assert asking.put(deny).status == 200
        until(lambda: {asking.status() for _ in range(20)} == {403}, within_s=3.0)
        assert asking.operator("DELETE", "/v1/admission").status == 200
        until(lambda: {asking.status() for _ in range(20)} == {200}, within_s=3.0)


@pytest.mark.parametrize("word", ["allow", "deny"])
def test_lists_go_before_limits(tmp_path: Path, word: str) -> None:
    rule = {**ADDRESS, "deny": True} if word == "deny" else {"dimension": "all", "name": "all"}
    with served(tmp_path, config(3.0)) as server:
        asking = opened(server)
        query = {"kb": "kb", "query": "spillway " * 10}
        assert asking.guest("POST", "/v1/search", query).status == 400
        assert asking.put({"rules": [rule]}).status == 200
        status = asking.guest("POST", "/v1/search", query).status
        assert status == (403 if word == "deny" else 200)
