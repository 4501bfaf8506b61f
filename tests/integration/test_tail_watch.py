"""A severe tail in a whole gateway: what is done, who is told, and how it ends by itself."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from pathlib import Path
from typing import Any

import pytest

from forebay.policy.gate import PoolGate
from forebay.testing.engine_server import EngineServer
from tests.integration.in_process import Answer, Gateway, engine_config, gateway, until

CONFIG = """
[generation.engine]
warm_timeout_s = 0
[generation.ladder]
enabled = false
[admission.scale_out]
command = {command}
pause_s = 0.2
[admission.pools.pool]
look_s = 0
[admission.pools.pool.gate.limit]
initial = 1
least = 1
most = 1
[admission.pools.pool.gate.tail]
least = 20
window = 40
calm_s = 0.3
"""
TOLD = "import sys; open({path!r}, 'a').write(sys.stdin.read() + '\\n')"


def observed(gate: PoolGate, late: int, usual: int) -> None:
    """``late`` answers that took ten times as long as ``usual`` others."""
    for _ in range(usual):
        gate.tail.observe(0.01, long=False)
    for _ in range(late):
        gate.tail.observe(0.1, long=False)


async def level(made: Gateway) -> float:
    return (await made.figures())['forebay_pool_alert_level{pool="pool"}']


async def low_beside_another(made: Gateway, engine: EngineServer) -> Answer:
    """The answer to a request of low priority while another is in work."""
    async with asyncio.TaskGroup() as group:
        group.create_task(made.ask())
        await until(lambda: engine.active == 1)
        answer = await made.ask(headers={"x-forebay-priority": "low"})
        engine.gate.set()
    return answer


async def test_it_holds_back_tells_and_lets_go_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "forebay.admission")
    out = tmp_path / "told"
    command = json.dumps([sys.executable, "-c", TOLD.format(path=str(out))])

    def told() -> list[Any]:
        return [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []

    async with EngineServer() as engine:
        config = engine_config(engine.base_url) + CONFIG.format(command=command)
        async with gateway(tmp_path, config) as made:
            gate = made.desk.gates["pool"]
            observed(gate, late=10, usual=30)
            await until(lambda: gate.hold > 0)
            await until(told)
            assert await level(made) == 2
            engine.gate.clear()
            # With the engine busy low priority is sent away, the others wait.
            refused = await low_beside_another(made, engine)
            assert (refused.status, refused.json["error"]["code"]) == (
                503,
                "overloaded_low_priority",
            )
            observed(gate, late=0, usual=400)
            await until(lambda: gate.hold == 0)
            await until(lambda: len(told()) == 2)
            assert (await made.ask(headers={"x-forebay-priority": "low"})).status == 200
    first_event, last_event = told()
    assert (first_event["pool"], first_event["level"]) == ("pool", "severe")
    assert "times P50" in first_event["reason"]
    assert "25% of its room is withheld" in first_event["actions"]
    assert last_event["level"] != "severe"
    lines = [record.getMessage() for record in caplog.records]
    assert any(line.startswith("the tail of pool pool is severe: P99 is") for line in lines)
    assert any("whatever was held back is let in again" in line for line in lines)
