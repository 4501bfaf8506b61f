"""The whole calibration against a step-by-step engine on virtual time; errors over real HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web

from forebay.kernel.clock import SystemClock, VirtualClock
from forebay.kernel.errors import (
    ConfigError,
    DeadlineExceeded,
    EngineError,
    EngineRefused,
    ForebayError,
    Unavailable,
)
from forebay.lab.sim import calibrate as calibration
from forebay.lab.sim.calibrate import CalibrationSettings, calibrate
from forebay.lab.sim.probe import Endpoint, Observation
from forebay.lab.sim.profiles import EngineLimits, find_profile
from forebay.lab.sim.slots import SlotLevel, SlotRates, SlotSteps
from forebay.lab.sim.steps import StepModel
from forebay.lab.workload.tokens import count_tokens
from forebay.testing.loopback import LoopbackServer

LLAMA = SlotRates(
    levels=(
        SlotLevel(in_flight=1, decode_s=0.0067, context_token_s=1.1e-5),
        SlotLevel(in_flight=2, decode_s=0.0171, context_token_s=1.25e-5),
        SlotLevel(in_flight=4, decode_s=0.0284, context_token_s=1.1e-5),
    ),
    prefill_s=0.02,
    prefill_token_s=0.0036,
    prefill_pair_s=3.7e-6,
    overlap=0.3,
)


class _Running:
    def __init__(self, prompt: int, output: int, on_first: Callable[[], None]) -> None:
        self.prompt = prompt
        self.output = output
        self.on_first = on_first
        self.times: list[float] = []
        self.done = asyncio.get_running_loop().create_future()


class StepEngine:
    """Takes every step by itself: the decoding ones, and the prompts that have places."""

    def __init__(self, steps: StepModel, places: int) -> None:
        self.clock = VirtualClock()
        self._steps = steps
        self._places = places
        self._waiting: list[_Running] = []
        self._running: list[_Running] = []
        self.prompts: list[str] = []

    async def ask(
        self,
        session: object,
        endpoint: Endpoint,
        clock: object,
        text: str,
        output_tokens: int,
        on_first: Callable[[], None] = lambda: None,
    ) -> Observation:
        self.prompts.append(text)
        started_at = self.clock.now()
        mine = _Running(count_tokens(text) + 30, output_tokens, on_first)
        self._waiting.append(mine)
        await mine.done
        return Observation(
            started_at=started_at,
            arrivals=tuple((at, n + 1.0) for n, at in enumerate(mine.times)),
            ended_at=self.clock.now(),
            prompt_tokens=mine.prompt,
            output_tokens=len(mine.times),
        )

    async def run(self) -> None:
        while True:
            for _ in range(20):  # whoever wants to ask now
                await asyncio.sleep(0)
            free = self._places - len(self._running)
            new, self._waiting = self._waiting[:free], self._waiting[free:]
            if self._running or new:
                self._step(new)

    def _step(self, new: list[_Running]) -> None:
        prefill = sum(one.prompt for one in new)
        pairs = sum(one.prompt * (one.prompt + 1) // 2 for one in new)
        context = sum(one.prompt + len(one.times) for one in self._running)
        seconds = self._steps.step_seconds(
            len(self._running), context, prefill, pairs // prefill if prefill else 0
        )
        self.clock.advance(seconds)
        self._running += new
        for one in list(self._running):
            one.times.append(self.clock.now())
            if len(one.times) == 1:
                one.on_first()
            if len(one.times) == one.output:
                self._running.remove(one)
                one.done.set_result(None)


async def calibrated(
    steps: StepModel, places: int, settings: CalibrationSettings, monkeypatch: pytest.MonkeyPatch
) -> tuple[StepModel, StepEngine, list[str]]:
    engine = StepEngine(steps, places)

    async def limits(*_: object) -> EngineLimits:
        return EngineLimits(max_num_seqs=places)

    monkeypatch.setattr(calibration, "ask", engine.ask)
    monkeypatch.setattr(calibration, "_limits", limits)
    said: list[str] = []
    async with asyncio.TaskGroup() as group:
        running = group.create_task(engine.run())
        profile = await calibrate(
            Endpoint(url="http://nowhere", model="m"),
            settings,
            engine.clock,
            progress=said.append,
        )
        running.cancel()
    assert max(abs(residual.error) for residual in profile.residuals) < 0.05
    return profile.step_model(), engine, said


async def test_a_slot_profile_is_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    true = SlotSteps(LLAMA)
    settings = CalibrationSettings(repeats=2)
    found, engine, _ = await calibrated(true, 4, settings, monkeypatch)
    for shape in [
        (1, 100, 0, 0),
        (2, 500, 0, 0),
        (3, 900, 0, 0),
        (4, 1200, 0, 0),
        (0, 0, 50, 25),
        (0, 0, 600, 300),
        (2, 300, 50, 25),
        (3, 600, 200, 100),
    ]:
        assert found.step_seconds(*shape) == pytest.approx(true.step_seconds(*shape), rel=0.03)
    starts = [prompt[:20] for prompt in engine.prompts]
    assert len(set(starts)) == len(starts)  # no prompt begins like another


@pytest.mark.parametrize("name", ["h100/8b", "l4/7b/int4", "a100/70b/int4"])
async def test_a_gpu_is_found_again_by_a_table_of_more_levels(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    true = find_profile(name).step_model()
    settings = CalibrationSettings(
        in_flight=(1, 8, 32, 64), prompt_tokens=(50, 300, 800, 1800), repeats=1
    )
    found, _, _ = await calibrated(true, 256, settings, monkeypatch)
    for sequences, context in ((1, 500), (4, 2000), (16, 8000), (48, 20000), (64, 32000)):
        assert found.step_seconds(sequences, context, 0, 0) == pytest.approx(
            true.step_seconds(sequences, context, 0, 0), rel=0.05
        )
    for tokens in (20, 80, 400, 1200, 1800):
        assert found.step_seconds(0, 0, tokens, tokens // 2) == pytest.approx(
            true.step_seconds(0, 0, tokens, tokens // 2), rel=0.05
        )


async def test_a_level_that_never_comes_about_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = CalibrationSettings(in_flight=(1, 2, 4), repeats=1)
    found, _, said = await calibrated(SlotSteps(LLAMA), 2, settings, monkeypatch)
    assert any("never saw 4 decoding" in line for line in said)
    assert found.step_seconds(2, 500, 0, 0) == pytest.approx(0.0171 + 500 * 1.25e-5, rel=0.03)


@pytest.mark.parametrize(
    "wrong",
    [
        {"in_flight": ()},
        {"in_flight": (0, 1)},
        {"in_flight": (1, 1)},
        {"prompt_tokens": (100,)},
        {"output_tokens": 2},
        {"repeats": 0},
        {"deadline_s": 0},
    ],
)
def test_impossible_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        CalibrationSettings(**wrong)


# --- over HTTP ------------------------------------------------------------------------------------


async def calibrate_against(
    answer: Callable[[web.Request], Awaitable[web.StreamResponse]], **endpoint: Any
) -> None:
    async with LoopbackServer("/v1/chat/completions", answer) as server:
        await calibrate(
            Endpoint(url=server.base_url, model="m", **endpoint),
            CalibrationSettings(),
            SystemClock(),
        )


def events(*chunks: str) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def answer(request: web.Request) -> web.StreamResponse:
        body = "".join(f"data: {chunk}\n\n" for chunk in chunks)
        return web.Response(text=body, content_type="text/event-stream")

    return answer


def status(code: int) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.json_response({"error": {"message": "no"}}, status=code)

    return answer


async def broken(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"content-type": "text/event-stream"})
    response.enable_chunked_encoding()
    await response.prepare(request)
    await response.write(b"data: {}\n\n")
    assert request.transport is not None
    request.transport.abort()
    return response


async def never(request: web.Request) -> web.StreamResponse:
    await asyncio.Event().wait()
    raise AssertionError


TEXT = '{"choices":[{"delta":{"content":"hi"}}]}'
USAGE = '{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":1}}'


@pytest.mark.parametrize(
    ("answer", "error", "says"),
    [
        (status(401), ConfigError, "wants another key"),
        (status(403), ConfigError, "wants another key"),
        (status(404), ConfigError, "knows no such address or model"),
        (status(200), EngineError, "does not stream"),
        (status(500), EngineError, "status 500"),
        (events(TEXT), EngineError, "does not tell the tokens"),
        (events(USAGE), EngineError, "had no text"),
        (events(TEXT, USAGE), EngineError, "wrote 1 of 32 tokens"),
        (events("{"), EngineError, "something else than answers"),
        (events('{"error":{"message":"x"}}'), EngineError, "reported an error"),
        (broken, EngineError, "broke off"),
    ],
)
async def test_what_is_wrong_with_an_endpoint_is_said(
    answer: Callable[[web.Request], Awaitable[web.StreamResponse]],
    error: type[ForebayError],
    says: str,
) -> None:
    with pytest.raises(error, match=says) as caught:
        await calibrate_against(answer)
    assert "\n" not in str(caught.value)


async def test_an_endpoint_that_never_ends_is_left() -> None:
    with pytest.raises(DeadlineExceeded, match=r"took more than 0\.2 s"):
        await calibrate_against(never, timeout_s=0.2)


async def test_nobody_there() -> None:
    async with LoopbackServer("/", never) as server:
        url = server.base_url
    for model in ("m", ""):
        with pytest.raises(Unavailable, match="Nothing answers"):
            await calibrate(Endpoint(url=url, model=model), CalibrationSettings(), SystemClock())


async def test_the_key_and_what_else_was_given_reach_the_endpoint() -> None:
    seen: list[tuple[str, dict[str, Any]]] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        seen.append((request.headers["authorization"], await request.json()))
        return web.Response(status=401)

    with pytest.raises(ConfigError):
        await calibrate_against(answer, api_key="secret", extra={"cache_prompt": False})
    key, body = seen[0]
    assert key == "Bearer secret"
    assert body["cache_prompt"] is False
    assert body["stream_options"] == {"include_usage": True}


async def test_a_strict_endpoint_is_asked_without_the_field_it_refuses() -> None:
    seen: list[bool] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        strange = "ignore_eos" in await request.json()
        seen.append(strange)
        return web.json_response({"error": "ignore_eos?"}, status=400 if strange else 503)

    with pytest.raises(EngineRefused, match="status 503"):
        await calibrate_against(answer)
    assert seen == [True, False]
