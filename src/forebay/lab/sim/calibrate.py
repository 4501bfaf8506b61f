"""Fit a profile to a real OpenAI-compatible endpoint from outside.

Three experiments, each repeated and reduced to medians, on prompts that no cache has seen:

- prompts of several lengths alone: fixed, per-token and per-pair cost of prefill;
- k answers at once for each k asked for, over short and long contexts: cost of a decode step. Only
  the time in which all k decode counts;
- one prompt more while others decode: how much a step with both saves over the two apart.

One form of profile serves CPU engines and GPUs, a table over the number in flight: for an engine
that gains from batching, measure at more levels (1, 4, 16, 64). The result describes an endpoint
that has nothing else to do, as seen from here.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import statistics
from collections.abc import Callable, Sequence
from typing import Any

import aiohttp
import msgspec

from forebay.kernel.clock import Clock
from forebay.kernel.errors import (
    ConfigError,
    DeadlineExceeded,
    EngineError,
    EngineRefused,
    first_error,
)
from forebay.lab.sim.fitting import DecodePoint, MixedPoint, PrefillPoint, fit_rates
from forebay.lab.sim.probe import Endpoint, Observation, ask, first_model
from forebay.lab.sim.profiles import EngineLimits, FittedProfile
from forebay.lab.workload.text import TextMaker

_FEWEST_STEPS = 4
_MAX_PROPS_BYTES = 1 << 20


class CalibrationSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How thoroughly to measure; the defaults take about a minute on a small CPU engine."""

    in_flight: tuple[int, ...] = (1, 2, 4)
    prompt_tokens: tuple[int, ...] = (16, 128, 400, 800)
    """Lengths of the prompts sent alone; what the endpoint counts is what is fitted."""
    output_tokens: int = 32
    repeats: int = 3
    deadline_s: float = 900.0
    """Of the whole calibration."""
    seed: int = 0
    """Other seeds give other prompts: use a new one for a server that remembers the last."""
    max_num_seqs: int = 0
    """Of the endpoint, when you know it; 0 asks llama.cpp's `/props`, else vLLM's default."""

    def __post_init__(self) -> None:
        counts, lengths = self.in_flight, self.prompt_tokens
        if not counts or min(counts) < 1 or len(set(counts)) < len(counts) or max(counts) > 512:
            raise ConfigError("in_flight: give different numbers from 1 to 512, like 1,2,4")
        if len(set(lengths)) < 2 or min(lengths) < 1:
            raise ConfigError("prompt_tokens: give at least two different lengths, like 16,400")
        if self.output_tokens < 8:
            raise ConfigError("output_tokens must be at least 8, or no rate can be read")
        if self.repeats < 1 or self.deadline_s <= 0:
            raise ConfigError("repeats must be at least 1 and deadline_s above 0")


async def calibrate(
    endpoint: Endpoint,
    settings: CalibrationSettings,
    clock: Clock,
    *,
    name: str = "fitted",
    progress: Callable[[str], None] = lambda line: None,
) -> FittedProfile:
    """Measure ``endpoint`` and fit a profile to it.

    ``progress`` gets a line before each experiment. ``Unavailable`` when nobody answers,
    ``ConfigError`` for a refused key, address or model, ``DeadlineExceeded`` past the deadline,
    ``EngineError`` when what comes is not a stream of tokens with their counts.
    """
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    try:
        async with (
            asyncio.timeout(settings.deadline_s),
            aiohttp.ClientSession(connector=connector) as session,
        ):
            if not endpoint.model:
                model = await first_model(session, endpoint)
                endpoint = msgspec.structs.replace(endpoint, model=model)
            limits = await _limits(session, endpoint, settings)
            return await _Calibration(session, endpoint, settings, clock, progress).run(
                name, limits
            )
    except TimeoutError as error:
        raise DeadlineExceeded(
            f"The calibration did not end within {settings.deadline_s:g} s; give it more time, or "
            "fewer lengths and repeats."
        ) from error


class _Calibration:
    """The three experiments over one session."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        endpoint: Endpoint,
        settings: CalibrationSettings,
        clock: Clock,
        progress: Callable[[str], None],
    ) -> None:
        self._session = session
        self._endpoint = endpoint
        self._settings = settings
        self._clock = clock
        self._progress = progress
        self._texts = TextMaker()
        self._numbers = random.Random(settings.seed)  # noqa: S311 - no secret

    async def run(self, name: str, limits: EngineLimits) -> FittedProfile:
        settings = self._settings
        lengths = sorted(settings.prompt_tokens)
        self._progress("warming up")
        await self._meet(lengths[0])
        prefills, decodes = await self._alone(lengths)
        for count in sorted(settings.in_flight):
            decodes += await self._together(count, (lengths[0], lengths[len(lengths) // 2]))
        mixed = await self._mixed(max(settings.in_flight), lengths[0])
        fit = fit_rates(prefills, decodes, mixed)
        levels = ", ".join(str(level.in_flight) for level in fit.rates.levels)
        return FittedProfile(
            name=name,
            rates=fit.rates,
            request_s=fit.request_s,
            limits=limits,
            model=self._endpoint.model,
            measured=(
                f"{len(prefills)} prompt lengths alone, decode at {levels} in flight, "
                f"medians of {settings.repeats}"
            ),
            residuals=fit.residuals,
        )

    async def _meet(self, length: int) -> None:
        """Warm it up, and find out whether it bears the field that OpenAI's API does not have."""
        try:
            await self._ask(length, self._settings.output_tokens)
        except EngineRefused as error:
            if error.status not in (400, 422):
                raise
            self._endpoint = msgspec.structs.replace(self._endpoint, ignore_eos=False)
            await self._ask(length, self._settings.output_tokens)
        await self._ask(length, self._settings.output_tokens)

    async def _alone(self, lengths: Sequence[int]) -> tuple[list[PrefillPoint], list[DecodePoint]]:
        """Prompts alone, the lengths taken in turn so that a slow moment hits them all."""
        settings = self._settings
        found: dict[int, list[Observation]] = {length: [] for length in lengths}
        for turn in range(settings.repeats):
            self._progress(f"prompts alone, {turn + 1} of {settings.repeats}")
            for length in lengths:
                found[length].append(await self._ask(length, settings.output_tokens))
        prefills = []
        decodes = []
        for answers in found.values():
            tokens = statistics.median_low([answer.prompt_tokens for answer in answers])
            seconds = statistics.median([answer.ttft_s for answer in answers])
            prefills.append(PrefillPoint(prompt_tokens=tokens, seconds=seconds))
            if 1 in settings.in_flight:
                decodes += _decode_points([_common_steps([answer]) for answer in answers], 1)
        return prefills, decodes

    async def _together(self, count: int, lengths: Sequence[int]) -> list[DecodePoint]:
        """``count`` at once; nothing when the endpoint never has that many decoding."""
        settings = self._settings
        points: list[DecodePoint] = []
        if count == 1:
            return points
        self._progress(f"{count} in flight")
        for length in lengths:
            found = []
            for _ in range(settings.repeats):
                # Long enough that the first still writes when the last one's prompt is through.
                answers = await self._at_once([(length, settings.output_tokens)] * count)
                found.append(_common_steps(answers))
            points += _decode_points(found, count)
        if not points:
            self._progress(f"never saw {count} decoding at once: left out")
        return points

    async def _mixed(self, most: int, length: int) -> list[MixedPoint]:
        """A short prompt while others decode: the step that takes it."""
        if most < 2:
            return []
        settings = self._settings
        others = min(most - 1, 3)
        self._progress(f"a prompt while {others} decode")
        points = []
        for _ in range(settings.repeats):
            shape = (length, settings.output_tokens * 2)
            *answers, late = await self._at_once([shape] * others, then=(length, 8))
            point = _mixed_point(answers, late)
            if point is not None:
                points.append(point)
        return points

    async def _at_once(
        self, shapes: Sequence[tuple[int, int]], then: tuple[int, int] | None = None
    ) -> list[Observation]:
        """All of ``shapes`` (tokens in, tokens out) at once, and one more when all of them write.

        One group, so that nobody is left asking when one fails.
        """
        writing = asyncio.Semaphore(0)
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(self._ask(*shape, on_first=writing.release))
                    for shape in shapes
                ]
                if then is not None:
                    async with asyncio.timeout(self._endpoint.timeout_s):
                        for _ in shapes:
                            await writing.acquire()
                    tasks.append(group.create_task(self._ask(*then)))
        except BaseExceptionGroup as error:
            raise first_error(error) from error
        return [task.result() for task in tasks]

    async def _ask(
        self, tokens: int, output_tokens: int, on_first: Callable[[], None] = lambda: None
    ) -> Observation:
        text = self._texts.text(self._numbers.getrandbits(63), tokens)
        answer = await ask(
            self._session, self._endpoint, self._clock, text, output_tokens, on_first
        )
        if answer.output_tokens < _FEWEST_STEPS:
            raise EngineError(
                f"The endpoint wrote {answer.output_tokens} of {output_tokens} tokens asked for; "
                "calibration needs a model that goes on writing (ignore_eos)."
            )
        return answer


class _Props(msgspec.Struct):
    """What llama.cpp tells of itself."""

    class Settings(msgspec.Struct):
        n_ctx: int = 0

    total_slots: int = 0
    default_generation_settings: Settings | None = None


async def _limits(
    session: aiohttp.ClientSession, endpoint: Endpoint, settings: CalibrationSettings
) -> EngineLimits:
    """The engine's places and window, where it tells them; vLLM's defaults where not."""
    props = _Props()
    try:
        async with (
            asyncio.timeout(endpoint.timeout_s),
            session.get(endpoint.root() + "/props", headers=endpoint.headers()) as response,
        ):
            if response.status == 200:
                data = await response.content.read(_MAX_PROPS_BYTES)
                props = msgspec.json.decode(data, type=_Props)
    except (aiohttp.ClientError, TimeoutError, msgspec.DecodeError):
        # Only llama.cpp has this page; what is wrong with the endpoint, the first question tells.
        pass
    known: dict[str, Any] = {}
    if settings.max_num_seqs or props.total_slots:
        known["max_num_seqs"] = settings.max_num_seqs or props.total_slots
    window = props.default_generation_settings and props.default_generation_settings.n_ctx
    if window and props.total_slots:
        known["max_model_len"] = window
        known["kv_tokens"] = window * props.total_slots
    return EngineLimits(**known)


def _common_steps(answers: Sequence[Observation]) -> tuple[float, float] | None:
    """Context in all and seconds a step while every answer is being written."""
    begin = max(answer.first_at for answer in answers)
    end = min(answer.last_at for answer in answers)
    parts = [answer.between(begin, end) for answer in answers]
    if min(tokens for _, tokens, _ in parts) < _FEWEST_STEPS:
        return None
    context = sum(
        answer.prompt_tokens + written
        for answer, (_, _, written) in zip(answers, parts, strict=True)
    )
    return context, statistics.median([seconds / tokens for seconds, tokens, _ in parts])


def _decode_points(
    found: Sequence[tuple[float, float] | None], in_flight: int
) -> list[DecodePoint]:
    """One point from the repeats of one shape, or none."""
    seen = [steps for steps in found if steps is not None]
    if not seen:
        return []
    return [
        DecodePoint(
            in_flight=in_flight,
            context_tokens=statistics.median([context for context, _ in seen]),
            seconds=statistics.median([seconds for _, seconds in seen]),
        )
    ]


def _mixed_point(answers: Sequence[Observation], late: Observation) -> MixedPoint | None:
    """The gap in the others' answers that ends when the late one's first token comes.

    None unless every answer wrote before and after it, a token a piece.
    """
    gaps = []
    context = 0.0
    for answer in answers:
        before, after = min(
            itertools.pairwise(answer.arrivals),
            key=lambda pair: abs(pair[1][0] - late.first_at),
            default=((0.0, 0.0), (0.0, 0.0)),
        )
        if round(after[1] - before[1]) != 1 or not before[0] < late.first_at < answer.last_at:
            return None
        gaps.append(after[0] - before[0])
        context += answer.prompt_tokens + before[1]
    return MixedPoint(
        in_flight=len(answers),
        context_tokens=context,
        prompt_tokens=late.prompt_tokens,
        seconds=statistics.median(gaps),
    )
