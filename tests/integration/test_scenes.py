"""Over HTTP: what a request is taken for, what its client may change, and what that gives it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from forebay.testing.engine_server import EngineServer
from tests.integration.in_process import Answer, Gateway, engine_config, gateway

PIECES = ("The spillway ", "is ", "120 ", "metres ", "long ", "[1].")
CONFIG = """
[generation.ladder]
enabled = false
[admission]
profile = "scene"
[admission.limits.tenant]
rate_per_s = 0.001
burst = 100000
[admission.scenes.report]
max_output_tokens = 4
deadline_ms = 90000
[admission.scenes.legal]
profile = "document"
deadline_ms = 1000
[[admission.scene_rules]]
scene = "legal"
pattern = "contract|合同"
"""
FAQ, REPORT = "How long is the spillway?", "Write a report on the spillway."
TASKS = {
    FAQ: "faq",
    "溢洪道有多长？": "faq",
    REPORT: "report",
    "写一份关于溢洪道的报告": "report",
    "寫一份關於溢洪道的報告": "report",
    "Write a Python function that opens the gate": "code",
    "用 Python 写一个打开闸门的函数": "code",
    "What does the contract say?": "legal",
    "合同怎么说？": "legal",
}


@pytest.fixture
async def engine() -> AsyncIterator[EngineServer]:
    async with EngineServer(PIECES) as found:
        yield found


@pytest.fixture
async def made(tmp_path: Path, engine: EngineServer) -> AsyncIterator[Gateway]:
    pool = engine_config(engine.base_url, max_input_tokens=9000, max_output_tokens=200)
    async with gateway(tmp_path, pool + CONFIG) as running:
        yield running


async def ask(made: Gateway, question: str, scene: str | None = None, **more: Any) -> Answer:
    headers = {} if scene is None else {"x-forebay-scene": scene}
    message = [{"role": "user", "content": question}]
    return await made.ask(messages=message, headers=headers, **more)


async def test_each_request_says_what_it_was_taken_for(made: Gateway) -> None:
    for question, scene in TASKS.items():
        for stream in (False, True):
            answer = await ask(made, question, stream=stream)
            assert answer.status == 200, answer.body
            assert answer.headers["x-forebay-scene"] == scene, question
            assert f'"scene":"{scene}"'.encode() in answer.body
    figures = await made.figures()
    counted = {scene: 2.0 * sum(one == scene for one in TASKS.values()) for scene in TASKS.values()}
    for scene, count in counted.items():
        assert figures[f'forebay_scene_requests_total{{scene="{scene}"}}'] == count


async def test_its_client_may_only_lower_it(made: Gateway) -> None:
    assert (await ask(made, FAQ, "document")).headers["x-forebay-scene"] == "document"
    # More time than it has.
    assert (await ask(made, FAQ, "report")).headers["x-forebay-scene"] == "faq"
    # Less to pay.
    code = "Write a Python function that opens the gate"
    assert (await ask(made, code, "faq")).headers["x-forebay-scene"] == "code"
    refused = await ask(made, FAQ, "poem")
    assert refused.status == 400
    assert refused.json["error"]["param"] == "x-forebay-scene"


async def test_it_is_charged_as_its_scene(made: Gateway) -> None:
    charged = {}
    for scene in ("faq", "document"):
        before = made.level()
        await ask(made, FAQ, scene)
        charged[scene] = before - made.level()
    # The double says 11 tokens in and 6 out: 17 plain ones; .5, .7 and 2 for all of them.
    assert charged["faq"] == pytest.approx(17, abs=0.1)
    assert charged["document"] == pytest.approx(11 * 2.5 + 6 * 2.7, abs=0.1)


async def test_its_output_cap_cuts_the_answer_which_says_so(made: Gateway) -> None:
    answer = (await ask(made, REPORT, max_tokens=100)).json
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == 4
    assert "length limit of this service" in answer["choices"][0]["message"]["content"]


@pytest.mark.parametrize(("sent", "status"), [(None, 504), ("60000", 200)])
async def test_its_deadline_holds_unless_the_client_sent_one(
    made: Gateway, engine: EngineServer, sent: str | None, status: int
) -> None:
    engine.gate.clear()
    headers = {} if sent is None else {"x-forebay-deadline-ms": sent}
    question = [{"role": "user", "content": "What does the contract say?"}]
    if sent is not None:
        engine.gate.set()
    answer = await made.ask(messages=question, headers=headers)
    assert answer.status == status, answer.body
