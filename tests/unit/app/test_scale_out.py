"""Who is called when a tail becomes severe, when it is over, and what people read."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from aiohttp import web

from forebay.app.admitting import actions
from forebay.app.scale_out import ScaleOutHook
from forebay.kernel.clock import VirtualClock
from forebay.kernel.errors import ConfigError
from forebay.policy.admission.settings import ScaleOutSettings
from forebay.policy.gate import GateSettings, PoolGate
from forebay.policy.tail import TailChange, TailSettings
from forebay.testing.loopback import LoopbackServer

SEVERE = TailChange("severe", "normal", "P99 is 7.0 times P50")
WARN = TailChange("warn", "severe", "P99 is 3.0 times P50")
CALM = TailChange("normal", "severe", "P99 is 1.5 times P50")


class Webhook(LoopbackServer):
    """Keeps what was posted; answers ``status``, while ``gate`` is open."""

    def __init__(self) -> None:
        super().__init__("/v1/hook", self._answer)
        self.events: list[dict[str, Any]] = []
        self.status = 204

    async def _answer(self, request: web.Request) -> web.Response:
        await self.gate.wait()
        self.events.append(await request.json())
        return web.Response(status=self.status)

    @property
    def levels(self) -> list[str]:
        return [event["level"] for event in self.events]


@asynccontextmanager
async def running(settings: ScaleOutSettings, clock: VirtualClock) -> AsyncIterator[ScaleOutHook]:
    hook = ScaleOutHook(settings, clock)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(hook.run())
        try:
            yield hook
        finally:
            task.cancel()


def ended(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


async def until(reached: Callable[[], Any]) -> None:
    async with asyncio.timeout(60):
        while not reached():
            await asyncio.sleep(0.002)


def posting(webhook: Webhook, **more: Any) -> ScaleOutSettings:
    return ScaleOutSettings(webhook=f"{webhook.base_url}/hook", **more)


async def test_the_command_gets_the_event_and_hears_when_it_is_over(tmp_path: Path) -> None:
    out = tmp_path / "events"
    script = f"import sys; open({str(out)!r}, 'a').write(sys.stdin.read() + '\\n')"
    settings = ScaleOutSettings(command=(sys.executable, "-c", script), pause_s=0.0)

    def events() -> list[Any]:
        lines = out.read_text().splitlines() if out.exists() else []
        return [json.loads(line) for line in lines]

    async with running(settings, VirtualClock()) as hook:
        hook.told("short", SEVERE, ("25% of its room is withheld",))
        await until(lambda: len(events()) == 1)
        hook.told("short", CALM)
        await until(lambda: len(events()) == 2)
    assert events() == [
        {
            "pool": "short",
            "level": "severe",
            "was": "normal",
            "reason": "P99 is 7.0 times P50",
            "actions": ["25% of its room is withheld"],
        },
        {
            "pool": "short",
            "level": "normal",
            "was": "severe",
            "reason": "P99 is 1.5 times P50",
            "actions": [],
        },
    ]


async def test_what_comes_and_goes_within_the_pause_is_not_told() -> None:
    clock = VirtualClock()
    async with Webhook() as webhook, running(posting(webhook, pause_s=60.0), clock) as hook:
        hook.told("p", SEVERE)
        await until(lambda: webhook.levels == ["severe"])
        for _ in range(5):
            hook.told("p", CALM)
            hook.told("p", SEVERE)
        clock.advance(61)
        hook.told("q", SEVERE)
        await until(lambda: len(webhook.events) == 2)
        assert webhook.events[1]["pool"] == "q"


async def test_the_end_and_a_new_begin_are_told_when_the_pause_is_over() -> None:
    clock = VirtualClock()
    async with Webhook() as webhook, running(posting(webhook, pause_s=60.0), clock) as hook:
        hook.told("p", SEVERE)
        await until(lambda: webhook.levels == ["severe"])
        hook.told("p", WARN)
        hook.told("q", WARN)  # was never told to be severe
        clock.advance(61)
        hook.told("r", CALM)
        await until(lambda: webhook.levels == ["severe", "warn"])
        hook.told("p", SEVERE)
        await asyncio.sleep(0.01)
        assert len(webhook.events) == 2
        clock.advance(61)
        hook.told("r", CALM)
        await until(lambda: webhook.levels == ["severe", "warn", "severe"])


async def test_the_pause_ends_by_itself() -> None:
    class Real(VirtualClock):
        def now(self) -> float:
            return asyncio.get_running_loop().time()

    async with Webhook() as webhook, running(posting(webhook, pause_s=0.05), Real()) as hook:
        hook.told("p", SEVERE)
        await until(lambda: webhook.levels == ["severe"])
        hook.told("p", CALM)
        await until(lambda: webhook.levels == ["severe", "normal"])


async def test_a_call_that_fails_or_hangs_is_told_and_made_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = VirtualClock()
    async with (
        Webhook() as webhook,
        running(posting(webhook, pause_s=60.0, timeout_s=1.0), clock) as hook,
    ):
        webhook.status = 503
        hook.told("p", SEVERE)
        await until(lambda: "it answered 503" in caplog.text)
        webhook.gate.clear()
        clock.advance(61)
        hook.told("p", SEVERE)
        await until(lambda: "it took too long" in caplog.text)
        webhook.gate.set()
        webhook.status = 200
        clock.advance(61)
        hook.told("p", SEVERE)
        await until(lambda: webhook.levels[-1:] == ["severe"] and len(webhook.events) >= 2)
        clock.advance(61)
        hook.told("p", SEVERE)
        await asyncio.sleep(0.01)
        assert len(webhook.events) <= 3


async def test_a_command_that_does_not_end_is_killed(caplog: pytest.LogCaptureFixture) -> None:
    words = (sys.executable, "-c", "import time; time.sleep(60)")
    settings = ScaleOutSettings(command=words, timeout_s=0.2)
    async with running(settings, VirtualClock()) as hook:
        hook.told("p", SEVERE)
        await until(lambda: "command failed for pool p: it took too long" in caplog.text)


@pytest.mark.parametrize(
    "words",
    [
        ("/bin/sh", "-c", "exit 3"),
        ("/bin/sh", "-c", "kill -9 $$"),
        ("/bin/sh", "-c", "exec 0<&-; exit 3"),
        ("/no/such/program",),
        ("a\0b",),
    ],
)
async def test_whatever_a_command_does_the_next_call_is_made(
    caplog: pytest.LogCaptureFixture, words: tuple[str, ...]
) -> None:
    clock = VirtualClock()
    settings = ScaleOutSettings(command=words, pause_s=0.0)
    async with running(settings, clock) as hook:
        # More than a pipe takes, so that its end is noticed while it is written.
        hook.told("p", SEVERE, ("x" * 1_000_000,))
        await until(lambda: caplog.text.count("command failed for pool p") == 1)
        # It failed: however short the pause is, it is not called again at once.
        await asyncio.sleep(0.05)
        assert caplog.text.count("command failed for pool p") == 1
        clock.advance(1.1)
        hook.told("q", SEVERE)
        await until(lambda: "command failed for pool q" in caplog.text)


async def test_a_command_that_does_not_end_is_killed_with_all_that_it_started(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    own = tmp_path / "pid"
    words = ("/bin/sh", "-c", f"sleep 60 & echo $! > {own}; wait")
    async with running(ScaleOutSettings(command=words, timeout_s=0.5), VirtualClock()) as hook:
        hook.told("p", SEVERE)
        await until(lambda: "it took too long" in caplog.text)
        await until(lambda: ended(int(own.read_text())))


def test_an_address_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match="http://"):
        ScaleOutSettings(webhook="ftp://x")


def test_every_action_and_its_end_are_lines_that_people_can_read(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "forebay.admission")
    tail = TailSettings(least=50, window=200, calm_s=10)
    gate = PoolGate(GateSettings(tail=tail), ["r0"])
    hook = ScaleOutHook(ScaleOutSettings(), VirtualClock())
    for _ in range(100):
        gate.tail.observe(0.1, long=False)
    assert gate.judge(0.0) is None
    for number in range(400):
        gate.tail.observe(1.0 if number % 20 == 0 else 0.1, long=False)
    change = gate.judge(1.0)
    assert change is not None
    hook.told("short", change, actions(gate, change))
    for _ in range(5000):
        gate.tail.observe(0.1, long=False)
    assert gate.judge(2.0) is None
    assert gate.hold > 0, "not before it has been calm for a while"
    change = gate.judge(13.0)
    assert change is not None
    hook.told("short", change, actions(gate, change))
    first, second = (record.getMessage() for record in caplog.records)
    assert first.startswith("the tail of pool short is severe: P99 is ")
    assert first.endswith(
        "; 25% of its room is withheld; low priority is sent away while others wait"
    )
    assert second.startswith("the tail of pool short is normal again: P99 is ")
    assert second.endswith("; whatever was held back is let in again")
    assert [record.levelno for record in caplog.records] == [logging.WARNING, logging.INFO]
