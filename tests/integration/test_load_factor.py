"""Over HTTP: what quotas are multiplied by is shown, and what the load makes of them holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from forebay.policy.admission.load_factor import Pacing
from tests.integration.in_process import ANYBODY, Cutting, Gateway, gateway

CONFIG = """
[admission]
load_factor = 0.5
[admission.load]
enabled = true
[admission.limits.tenant]
rate_per_s = 1000
burst = 40000
"""


async def factors(made: Gateway) -> dict[str, object]:
    async with Cutting(made.port, {}, "/v1/admission", "GET") as client:
        found: dict[str, object] = (await client.answer()).json["factors"]
        return found


async def test_every_part_is_shown_and_holds(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "forebay.admission")
    async with gateway(tmp_path, CONFIG) as made:
        found = await factors(made)
        assert (found["operator"], found["window"], found["state"]) == (0.5, 1.0, "usual")
        load = made.desk.load
        for second in range(40):
            # As if the gates had refused every other one that came.
            load.came("default")
            for _ in range(5):
                load.left(0.0, refused=True)
            load.look(made.desk.clock.now() + 10.0 * second, made.desk.gates)
        assert load.factor == 0.5
        load.pacing = Pacing(load.factor, 100.0)
        found = await factors(made)
        assert (found["load"], found["refill"], found["fair_per_s"]) == (0.5, 0.25, 100.0)
        assert (await made.figures())["forebay_quota_load_factor"] == 0.5
        answer = await made.ask()
        assert answer.status == 200
        # The burst is the operator's, whatever the load.
        assert answer.headers["x-ratelimit-limit-tokens"] == "20000"
        [claim] = made.desk._claims(ANYBODY)
        assert claim.limit.rate_per_s == 250.0
    assert "quotas are refilled at 0.50 of their rates (load: peak)" in caplog.text
