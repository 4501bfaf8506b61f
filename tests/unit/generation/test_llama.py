"""What does not need a model: settings, the bridge between thread and loop, errors."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from forebay.generation.llama import LlamaGenerator
from forebay.generation.settings import LlamaSettings
from forebay.kernel.errors import (
    ConfigError,
    ContextTooLong,
    DeadlineExceeded,
    EngineError,
    Overloaded,
    Unavailable,
)
from forebay.testing.generation import context, generation_request
from forebay.testing.generator_suite import collect

REQUEST = generation_request("How long?", ["Ten days."])


def delta(text: str, reason: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": reason}]}


class Engine:
    """Stands for the native server: says its chunks until told to stop."""

    def __init__(self, *chunks: dict[str, Any], endless: bool = False) -> None:
        self.chunks = chunks
        self.endless = endless
        self.stopped = 0
        self.said = 0

    def handle_chat_completions(self, body: str, callback: Callable[[Any], bool]) -> object:
        assert '"stream":true' in body
        while True:
            for chunk in self.chunks:
                self.said += 1
                if callback(chunk):
                    self.stopped += 1
                    return None
            if not self.endless:
                return None


def over(engine: Any, **settings: Any) -> LlamaGenerator:
    chosen = LlamaSettings(model_path="models/small.gguf", **settings)
    return LlamaGenerator(chosen, engine, ThreadPoolExecutor(chosen.slots))


async def test_text_and_end() -> None:
    usage = {"choices": [], "usage": {"prompt_tokens": 4, "completion_tokens": 2}}
    generator = over(Engine(delta("十"), delta("天"), delta("", "stop"), usage))
    text, finished = await collect(generator, REQUEST)
    assert text == "十天"
    assert (finished.prompt_tokens, finished.completion_tokens) == (4, 2)
    assert finished.model == "small"
    await generator.close()


async def test_closing_stops_the_engine_and_frees_the_slot() -> None:
    engine = Engine(delta("more "), endless=True)
    generator = over(engine)
    for round_ in range(1, 4):
        async with asyncio.timeout(5):
            async with aclosing(generator.generate(context(), REQUEST)) as events:
                await anext(events)
            while engine.stopped < round_ or generator.statistics()["in_work"]:
                await asyncio.sleep(0.001)
    await generator.close()


async def test_a_reader_that_does_not_read_holds_the_engine_back() -> None:
    engine = Engine(delta("more "), endless=True)
    generator = over(engine)
    async with aclosing(generator.generate(context(), REQUEST)) as events:
        await anext(events)
        said = -1
        async with asyncio.timeout(5):
            while engine.said != said:
                said = engine.said
                await asyncio.sleep(0.02)
        assert said < 300
    await generator.close()


async def test_waiting_is_bounded_and_ends_with_the_deadline() -> None:
    generator = over(Engine(delta("more "), endless=True), max_waiting=1)
    async with aclosing(generator.generate(context(), REQUEST)) as events:
        await anext(events)
        waiting = asyncio.get_running_loop().create_task(collect(generator, REQUEST, timeout_s=0.1))
        await asyncio.sleep(0)
        with pytest.raises(Overloaded):
            await collect(generator, REQUEST)
        with pytest.raises(DeadlineExceeded):
            await waiting
    await generator.close()


async def test_errors_of_the_engine() -> None:
    long = {"error": {"code": 400, "message": "secret", "type": "exceed_context_size_error"}}
    other = {"error": {"code": 500, "message": "secret", "type": "server_error"}}
    for chunk, error in ((long, ContextTooLong), (other, EngineError), (delta("cut"), EngineError)):
        generator = over(Engine(chunk))
        with pytest.raises(error) as caught:
            await collect(generator, REQUEST)
        assert "secret" not in str(caught.value)
        await generator.close()

    class Broken:
        def handle_chat_completions(self, body: str, callback: object) -> object:
            raise RuntimeError("secret")

    generator = over(Broken())
    with pytest.raises(EngineError, match="failed"):
        await collect(generator, REQUEST)
    await generator.close()


async def test_closing_the_generator_ends_what_is_under_way() -> None:
    engine = Engine(delta("more "), endless=True)
    generator = over(engine)
    events = generator.generate(context(timeout_s=1.0), REQUEST)
    await anext(events)
    async with asyncio.timeout(5):
        await generator.close()
    assert engine.stopped == 1
    await events.aclose()
    with pytest.raises(Unavailable):
        await collect(generator, REQUEST)


async def test_a_model_that_is_not_there(tmp_path: Path) -> None:
    for path in ("", str(tmp_path / "absent.gguf")):
        with pytest.raises(ConfigError, match="model_path"):
            await LlamaGenerator.load(LlamaSettings(model_path=path))
    pytest.importorskip("xllamacpp", reason="the extra llama is not installed")
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"not a model")
    with pytest.raises(ConfigError, match="model_path"):
        await LlamaGenerator.load(LlamaSettings(model_path=str(broken)))
