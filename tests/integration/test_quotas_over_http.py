"""A bucket of a hundred tokens, two caps, priorities and dimensions, over HTTP and a whole gateway.

What is planned is the question alone, so that the numbers are small: the frame and the passages
are paid when the prompt is built.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from forebay.gateway.identity import hash_key
from forebay.policy.admission import Entry
from forebay.policy.quota import Refusal, Reservation
from forebay.testing.engine_server import EngineServer
from tests.integration.in_process import Gateway, engine_config, gateway

BURST = 100
KEY = "fb-test-key"
CONFIG = """
[generation.engine]
warm_timeout_s = 0
[admission]
passage_tokens = 1
prompt_tokens = 1
[admission.limits.tenant]
rate_per_s = 0.001
burst = {burst}
"""
TENANT = """
[[tenants]]
name = "default"
knowledge = "*"
plan = {{ priority_ceiling = "{ceiling}" }}
keys = [{{ hash = "{hash}", priority = "{priority}" }}]
"""


class Entered(NamedTuple):
    """What was reserved for a request before retrieval."""

    reserved: float
    cap: int
    planned: int
    priority: str


class Place:
    """A gateway, its engine, and every request that was let in."""

    def __init__(self, made: Gateway, engine: EngineServer) -> None:
        self.gateway = made
        self.engine = engine
        self.entered: list[Entered] = []
        take = made.desk.take

        def taken(entry: Entry, got: Reservation | Refusal | None) -> Entry:
            if not isinstance(got, Refusal):
                ticket = entry.ticket
                one = Entered(entry.cost, entry.cap, ticket.input_tokens, ticket.priority)
                self.entered.append(one)
            return take(entry, got)

        made.desk.take = taken  # type: ignore[method-assign]

    async def ask(self, question: str = "spillway?", **more: Any) -> Any:
        messages = [{"role": "user", "content": question}]
        return await self.gateway.ask(messages=messages, forebay={"top_k": 1}, **more)


@asynccontextmanager
async def place(
    folder: Path, burst: float = BURST, more: str = "", **pool: object
) -> AsyncIterator[Place]:
    async with EngineServer() as engine:
        config = engine_config(engine.base_url, **pool) + CONFIG.format(burst=burst) + more
        async with gateway(folder, config) as made:
            yield Place(made, engine)


@pytest.mark.parametrize("cap", [None, 5000])
async def test_a_bucket_that_cannot_pay_for_the_cap_lowers_it(
    tmp_path: Path, cap: int | None
) -> None:
    async with place(tmp_path) as found:
        assert (await found.ask(max_tokens=cap)).status == 200
        [entered] = found.entered
        assert 0 < entered.planned <= 10
        assert entered.cap == BURST - entered.planned
        assert entered.reserved == BURST
        assert found.engine.requests[0]["max_tokens"] == entered.cap


async def test_a_question_over_the_bucket_is_told_so_for_good(tmp_path: Path) -> None:
    async with place(tmp_path) as found:
        answer = await found.ask("word " * 150)
        assert answer.status == 400
        assert answer.json["error"]["code"] == "quota_too_small"
        assert f"more than the {BURST} its quota ever holds" in answer.json["error"]["message"]
        assert "retry-after" not in answer.headers
        assert (found.engine.requests, found.entered) == ([], [])
        assert found.gateway.level() == pytest.approx(BURST, abs=0.1)


@pytest.mark.parametrize(("new", "old"), [(20, 60), (60, 20)])
async def test_of_two_caps_the_larger_is_reserved_and_the_newer_is_kept(
    tmp_path: Path, new: int, old: int
) -> None:
    async with place(tmp_path) as found:
        answer = await found.ask(max_completion_tokens=new, max_tokens=old)
        assert answer.status == 200
        [entered] = found.entered
        assert entered.reserved == entered.planned + 60
        assert found.engine.requests[0]["max_tokens"] == new


async def test_a_refusal_by_one_dimension_leaves_the_others_untouched(tmp_path: Path) -> None:
    more = "[admission.limits.ip]\nrate_per_s = 0.001\nburst = 25\n"
    more += "[admission.limits.all]\nrate_per_s = 0.001\nburst = 5000\n"
    async with place(tmp_path, 4000, more) as found:
        assert (await found.ask(max_tokens=10)).status == 200  # 14 tokens, as the engine counts
        before = [found.gateway.level(name) for name in ("tenant", "all")]
        answer = await found.ask(max_tokens=20)
        assert answer.status == 429
        assert "this address" in answer.json["error"]["message"]
        assert int(answer.headers["retry-after"]) >= 1
        after = [found.gateway.level(name) for name in ("tenant", "all")]
        assert after == pytest.approx(before, abs=0.1)


@pytest.mark.parametrize(
    ("granted", "ceiling", "sent", "used"),
    [
        ("normal", "high", "high", "normal"),
        ("high", "normal", "high", "normal"),
        ("high", "high", "high", "high"),
        ("high", "high", "low", "low"),
    ],
)
async def test_a_client_may_lower_its_priority_and_never_raise_it(
    tmp_path: Path, granted: str, ceiling: str, sent: str, used: str
) -> None:
    more = TENANT.format(ceiling=ceiling, priority=granted, hash=hash_key(KEY))
    headers = {"authorization": f"Bearer {KEY}", "x-forebay-priority": sent}
    async with place(tmp_path, 5000, more) as found:
        assert (await found.ask(headers=headers)).status == 200
        assert [entered.priority for entered in found.entered] == [used]


async def test_priorities_of_users_and_routes_are_granted_and_changed_at_run_time(
    tmp_path: Path,
) -> None:
    more = f"""
[[admission.priorities]]
dimension = "route"
name = "chat"
priority = "low"
[[tenants]]
name = "default"
knowledge = "*"
keys = [{{ hash = "{hash_key(KEY)}", act_for_users = true, operator = true }}]
users = [{{ name = "boss", priority = "high" }}]
"""
    bearer = {"authorization": f"Bearer {KEY}"}
    async with place(tmp_path, 5000, more) as found, httpx.AsyncClient(headers=bearer) as client:
        url = f"http://127.0.0.1:{found.gateway.port}/v1/admission"
        grant = {"dimension": "route", "name": "chat", "priority": "normal"}
        for change in (None, [grant], [{**grant, "cap": True}], []):
            if change is not None:
                answer = await client.put(url, json={"priorities": change})
                assert answer.status_code == 200, answer.text
            for headers in (bearer, {**bearer, "x-forebay-user": "boss"}):
                assert (await found.ask(headers=headers)).status == 200
        told = [entered.priority for entered in found.entered]
        assert told == ["low", "high", "normal", "high", "normal", "normal", "low", "high"]
        answer = await client.put(url, json={"priorities": [{**grant, "priority": "urgent"}]})
        assert answer.status_code == 400
        assert "one of low, normal, high" in answer.json()["error"]["message"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("pool", "own", "bound"), [(2, None, 2), (2, 20, 2), (2, 2, None), (1024, 2, None)]
)
async def test_an_answer_cut_at_another_bound_than_the_clients_says_so(
    tmp_path: Path, pool: int, own: int | None, bound: int | None, stream: bool
) -> None:
    async with place(tmp_path, 5000, max_output_tokens=pool) as found:
        answer = await found.ask(max_tokens=own, stream=stream)
        assert answer.status == 200
        assert found.engine.requests[0]["max_tokens"] == 2
        text = answer.body.decode()
        assert '"finish_reason":"length"' in text
        notice = f"the answer was cut at its bound of {bound} tokens"
        assert (notice in text) is (bound is not None)
        assert "the answer was cut" not in text or bound is not None
