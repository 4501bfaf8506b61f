"""Which knowledge bases exist: fresh enough, and the same to whoever may not know."""

from __future__ import annotations

import asyncio

import pytest

from forebay.gateway.directory import KbDirectory
from forebay.kernel.clock import VirtualClock
from forebay.kernel.context import Principal
from forebay.kernel.documents import KbInfo
from forebay.kernel.errors import ModelNotFound
from tests.unit.gateway.fakes import FakeKnowledge

ALL = Principal()
SOME = Principal("acme", knowledge=frozenset({"handbook"}), default_kb="handbook")


class Counting(FakeKnowledge):
    calls = 0

    async def kbs(self) -> tuple[KbInfo, ...]:
        self.calls += 1
        await asyncio.sleep(0)
        return await super().kbs()


def made(*kbs: str, default: str = "") -> tuple[KbDirectory, Counting, VirtualClock]:
    knowledge, clock = Counting(*kbs), VirtualClock(100)
    return KbDirectory(knowledge, clock, default), knowledge, clock


async def test_a_name_once_seen_costs_no_look_up() -> None:
    directory, knowledge, clock = made("handbook")
    for _ in range(5):
        assert await directory.kb(ALL, "handbook") == "handbook"
        clock.advance(10)
    assert knowledge.calls == 1


async def test_the_only_kb_is_looked_up_each_second() -> None:
    directory, knowledge, clock = made("handbook")
    for _ in range(3):
        assert await directory.default(ALL, "gpt-9") == "handbook"
    assert knowledge.calls == 1
    clock.advance(1.1)
    knowledge.add("second", "x", "x")
    with pytest.raises(ModelNotFound):
        await directory.default(ALL, "gpt-9")


async def test_a_new_kb_is_found_at_once() -> None:
    directory, knowledge, clock = made("handbook")
    await directory.kb(ALL, "handbook")
    knowledge.add("fresh", "x", "x")
    clock.advance(0.1)
    assert await directory.kb(ALL, "fresh") == "fresh"


async def test_hidden_and_absent_cost_the_same_look_ups() -> None:
    costs = []
    for name in ("secret", "absent"):
        directory, knowledge, clock = made("handbook", "secret")
        await directory.kb(SOME, "handbook")
        clock.advance(0.5)
        with pytest.raises(ModelNotFound) as caught:
            await directory.kb(SOME, name)
        costs.append((knowledge.calls, caught.value.message.replace(name, "")))
    assert costs[0] == costs[1]


async def test_many_at_once_share_one_look_up() -> None:
    directory, knowledge, _ = made("handbook")
    await asyncio.gather(*(directory.kb(ALL, "handbook") for _ in range(20)))
    assert knowledge.calls <= 2


@pytest.mark.parametrize(
    ("kbs", "default", "principal", "found"),
    [
        (("a",), "", ALL, "a"),
        (("a", "b"), "b", ALL, "b"),
        (("a", "b"), "", ALL, None),
        (("a", "b"), "gone", ALL, None),
        (("handbook", "secret"), "secret", SOME, "handbook"),
        (("secret",), "secret", SOME, None),
        ((), "", ALL, None),
    ],
)
async def test_defaults(
    kbs: tuple[str, ...], default: str, principal: Principal, found: str | None
) -> None:
    directory, _, _ = made(*kbs, default=default)
    if found is None:
        with pytest.raises(ModelNotFound):
            await directory.kb_of_model(principal, "gpt-9")
    else:
        assert await directory.kb_of_model(principal, "gpt-9") == found


async def test_what_is_missing_is_called_what_it_was_asked_for_as() -> None:
    directory, _, _ = made("handbook", "secret")
    said = []
    for asked in (
        directory.kb(SOME, "nope"),
        directory.kb_of_model(SOME, "forebay/nope"),
        directory.default(ALL),
    ):
        with pytest.raises(ModelNotFound) as caught:
            await asked
        said.append((caught.value.param, caught.value.message.split(" does not", 1)[0]))
    assert said[:2] == [("kb", "the knowledge base 'nope'"), ("model", "the model 'forebay/nope'")]
    assert said[2][1].startswith("there is no default knowledge base")


async def test_named_models() -> None:
    directory, _, _ = made("handbook", "secret")
    assert await directory.kb_of_model(ALL, "forebay/secret") == "secret"
    for model in ("forebay/", "forebay/none", "forebay/secret"):
        with pytest.raises(ModelNotFound):
            await directory.kb_of_model(SOME, model)
    assert [info.name for info in await directory.readable(SOME)] == ["handbook"]
