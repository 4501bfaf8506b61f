"""What engines count for each token that is estimated, and parts of long texts by that."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from forebay.kernel.context import RequestContext
from forebay.kernel.errors import ContextTooLong
from forebay.kernel.stages import Message
from forebay.pipeline.density import Density
from tests.unit.pipeline.long_texts import COUNTER, NOTHING, WINDOW, Service, chinese, english


def test_what_is_denser_counts_at_once_and_is_forgotten_slowly() -> None:
    density = Density()
    assert density.of("en") == density.most() == 1.0
    density.learn("zh", 100, 180)
    assert density.of("zh") == density.most() == 1.8
    assert density.of("en") == 1.0
    density.learn("zh", 100, 120)
    assert 1.7 < density.of("zh") < 1.8
    for _ in range(200):
        density.learn("zh", 100, 50)
    assert density.of("zh") == 1.0, "what is counted lower than estimated fits anyway"
    density.learn("en", 0, 7)
    assert density.most() == 7.0


class Denser:
    """An engine that counts so many tokens where one is estimated."""

    def __init__(self, times: float) -> None:
        self.times = times

    async def prompt(self, ctx: RequestContext, messages: Sequence[Message]) -> int | None:
        return int(self.times * sum(COUNTER.count(one.content) for one in messages))

    def written(self, pool: str, text: str) -> int | None:
        return None


@pytest.mark.parametrize("times", [1.2, 1.8])
@pytest.mark.parametrize(
    ("text", "asked", "fact"),
    [
        (english(5), "How much does each gate weigh?", "Gate {} weighs {}5 tonnes"),
        (chinese(5), "每个闸门有多重？", "闸门 {} 重 {}5 吨"),
        (chinese(5), "How much does each gate weigh?", "闸门 {} 重 {}5 吨"),
    ],
)
async def test_parts_are_as_long_as_the_engine_takes_by_its_own_count(
    text: str, asked: str, fact: str, times: float
) -> None:
    service = Service(tokens=Denser(times), max_parts=16)
    asked_for = []
    for _ in range(3):
        before = len(service.generator.requests)
        said, _ = await service.ask(f"{text}\n\n{asked}")
        asked_for.append(len(service.generator.requests) - before)
        assert all(fact.format(gate, gate) in said for gate in range(1, 6))
        assert service.held() == NOTHING
    assert all(one.prompt_tokens <= WINDOW for one in service.generator.requests)
    # What the first text taught holds for all after it: nothing is cut and asked again.
    assert asked_for[2] <= asked_for[1]


async def test_what_fits_by_the_estimate_alone_is_answered_in_parts() -> None:
    service = Service(tokens=Denser(1.7))
    message = f"{english(4)}\n\nHow much does each gate weigh?"
    assert WINDOW / 1.7 < COUNTER.count(message) < WINDOW - 300
    said, end = await service.ask(message)
    assert "Gate 4 weighs 45 tonnes" in said
    assert [(one.stage, one.rung) for one in end.degradations] == [("generation", "split")]
    for gates in (1, 2):
        with pytest.raises(ContextTooLong):
            await Service(tokens=Denser(40.0)).ask(f"{english(gates)}\n\nHow heavy is it?")
