"""What every generator must do: a suite for pytest (asyncio mode ``auto``).

Subclass ``GeneratorConformance`` in a test module and provide a ``generator`` fixture whose
generator answers ``QUESTION`` from ``PASSAGES`` with several tokens.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

from forebay.kernel.errors import DeadlineExceeded
from forebay.kernel.stages import Finished, GenerationRequest, Generator, Sampling, TextDelta
from forebay.testing.generation import context, generation_request

PASSAGES = (
    "Claims for travel expenses must be handed in within 20 days of returning.",
    "The canteen opens at noon and closes at two.",
)
QUESTION = "Within how many days must travel expenses claims be handed in?"
PASSAGES_ZH = ("差旅报销须在返回后二十天内提交申请，逾期须经理说明。", "食堂中午十二点开门。")
QUESTION_ZH = "差旅报销须在返回后多少天内提交申请？"
PROMPT_END_S = 30.0


async def collect(
    generator: Generator, request: GenerationRequest, *, timeout_s: float = 60.0
) -> tuple[str, Finished]:
    """All text and the end; asserts that the end comes once and last."""
    text: list[str] = []
    finished: Finished | None = None
    async for event in generator.generate(context(timeout_s=timeout_s), request):
        assert finished is None
        if isinstance(event, TextDelta):
            assert event.text
            text.append(event.text)
        else:
            finished = event
    assert finished is not None
    return "".join(text), finished


def deterministic(**fields: Any) -> Sampling:
    """Sampling that leaves nothing to chance."""
    return Sampling(temperature=0.0, seed=1, **fields)


class GeneratorConformance:
    """One test per promise of the ``Generator`` protocol.

    ``repeatable`` False: the same request may give another text (a model whose arithmetic
    depends on what else is in the batch).
    """

    repeatable = True

    async def test_text_then_one_end(self, generator: Generator) -> None:
        text, finished = await collect(generator, generation_request(QUESTION, PASSAGES))
        assert text.strip()
        assert finished.reason in ("stop", "length")
        assert finished.model
        assert finished.prompt_tokens > 0
        assert finished.completion_tokens > 0

    async def test_chinese(self, generator: Generator) -> None:
        request = generation_request(QUESTION_ZH, PASSAGES_ZH, language="zh")
        text, _ = await collect(generator, request)
        assert text.strip()
        assert "\ufffd" not in text

    async def test_no_passages(self, generator: Generator) -> None:
        text, _ = await collect(generator, generation_request("Why is that?"))
        assert text

    async def test_most_tokens(self, generator: Generator) -> None:
        request = generation_request(QUESTION, PASSAGES, sampling=deterministic(max_tokens=3))
        text, finished = await collect(generator, request)
        assert finished.reason == "length"
        assert 0 < finished.completion_tokens <= 3
        whole, _ = await collect(
            generator, generation_request(QUESTION, PASSAGES, sampling=deterministic())
        )
        if self.repeatable:
            assert len(text) < len(whole)

    async def test_stop_sequences_end_the_text(self, generator: Generator) -> None:
        request = generation_request(QUESTION, PASSAGES, sampling=deterministic())
        whole, _ = await collect(generator, request)
        middle = len(whole) // 2
        stop = whole[middle : middle + 3]
        stopped = generation_request(
            QUESTION, PASSAGES, sampling=deterministic(stop=("\x00never", stop))
        )
        text, finished = await collect(generator, stopped)
        assert stop not in text
        if self.repeatable:
            assert whole.startswith(text)
            assert finished.reason == "stop"

    async def test_a_past_deadline_ends_it(self, generator: Generator) -> None:
        try:
            await collect(generator, generation_request(QUESTION, PASSAGES), timeout_s=0.0)
        except DeadlineExceeded:
            return
        raise AssertionError("no DeadlineExceeded")

    async def test_closing_frees_it(self, generator: Generator) -> None:
        request = generation_request(QUESTION, PASSAGES, max_output_tokens=200)
        async with asyncio.timeout(PROMPT_END_S):
            for _ in range(3):
                events: Any = generator.generate(context(), request)
                async with aclosing(events):
                    assert isinstance(await anext(events), TextDelta)
            await collect(generator, generation_request(QUESTION, PASSAGES))

    async def test_cancelling_frees_it(self, generator: Generator) -> None:
        request = generation_request(QUESTION, PASSAGES, max_output_tokens=200)
        begun = asyncio.Event()

        async def work() -> None:
            events: Any = generator.generate(context(), request)
            async with aclosing(events):
                async for _ in events:
                    begun.set()
                    await asyncio.Event().wait()

        async with asyncio.timeout(PROMPT_END_S), asyncio.TaskGroup() as group:
            task = group.create_task(work())
            await begun.wait()
            task.cancel()
        assert task.cancelled()
        await collect(generator, generation_request(QUESTION, PASSAGES))

    async def test_side_by_side(self, generator: Generator) -> None:
        request = generation_request(QUESTION, PASSAGES, sampling=deterministic())
        alone, _ = await collect(generator, request)
        together = await asyncio.gather(*(collect(generator, request) for _ in range(3)))
        assert len(together) == 3
        if self.repeatable:
            assert [text for text, _ in together] == [alone] * 3
