"""The bench against a served knowledge base: what it reads of Forebay's own answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import uvloop

from forebay.lab.bench.options import BenchOptions, Target
from forebay.lab.bench.run import run_bench
from forebay.lab.measure.result import DISCONNECTED, HTTP_ERROR, OK, RunResult
from forebay.lab.workload.plan import Workload, WorkloadSpec
from tests.integration.support import LEXICAL, Served, served

KIND: dict[str, Any] = {
    "name": "light",
    "input_tokens": 8,
    "output_tokens": 40,
    "deadline_s": 30.0,
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("bench")
    notes = folder / "notes"
    notes.mkdir()
    (notes / "leave.md").write_text("# Leave\n\nEach employee has twelve days of annual leave.\n")
    with served(folder, LEXICAL + f'[knowledge.notes]\npaths = ["{notes}"]\n') as running:
        yield running


def bench(server: Served, kind: dict[str, Any] | None = None, **target: Any) -> RunResult:
    spec = {
        "arrivals": {"kind": "poisson", "rate": 25, "count": 30},
        "kinds": [KIND | (kind or {})],
    }
    return uvloop.run(
        run_bench(
            BenchOptions(
                target=Target(base_url=f"http://127.0.0.1:{server.port}", **target),
                workload=Workload(msgspec.convert(spec, WorkloadSpec)),
            )
        )
    )


@pytest.mark.parametrize("stream", [True, False])
def test_rungs_and_cache_tiers_are_read(server: Served, stream: bool) -> None:
    result = bench(server, stream=stream)
    assert result.total.statuses == {OK: 30}
    assert result.total.goodput_share == 1.0
    assert result.run.options["target"]["model"] == "forebay/notes"
    assert sum(result.rungs.values()) == 30
    assert set(result.cache) >= {"retrieval", "answer"}
    assert all(sum(counts.values()) == 30 for counts in result.cache.values())
    assert result.total.output_tokens > 0


def test_an_unknown_model_is_an_http_error_with_its_message(server: Served) -> None:
    result = bench(server, model="forebay/none")
    assert result.total.statuses == {HTTP_ERROR: 30}
    assert result.codes == {"404": 30}
    assert "forebay/none" in result.messages[HTTP_ERROR]


def test_clients_that_leave_do_the_server_no_harm(server: Served) -> None:
    result = bench(server, {"disconnect": {"share": 1.0, "after_tokens": 1}})
    assert result.total.statuses.get(DISCONNECTED, 0) + result.total.statuses.get(OK, 0) == 30
    assert bench(server).total.statuses == {OK: 30}
