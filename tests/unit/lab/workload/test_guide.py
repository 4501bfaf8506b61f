"""The guide to workloads: its blocks run, it names every key, and the log it shows is the log."""

from __future__ import annotations

import itertools
import logging
import re
from pathlib import Path
from typing import Any, ClassVar, get_args

import msgspec
import numpy as np
import pytest

from forebay.kernel.context import Principal
from forebay.lab.workload import arrivals, distributions, kinds, plan, queries
from forebay.lab.workload.plan import ArrivalSpec, Workload, WorkloadSpec, read_workload
from forebay.lab.workload.presets import preset_names
from forebay.lab.workload.traces import TraceArrivals, replay
from forebay.telemetry.ids import begin_trace
from forebay.telemetry.logs import AccessLog, JsonFormatter
from forebay.telemetry.report import RequestReport
from tools.snippets import marked_blocks

ROOT = Path(__file__).resolve().parents[4]
PAGES = [ROOT / "docs" / "guides" / name for name in ("workloads.md", "workloads.zh-CN.md")]
SPECS: tuple[type[msgspec.Struct], ...] = (
    WorkloadSpec,
    *get_args(ArrivalSpec),
    arrivals.Step,
    distributions.Uniform,
    distributions.LogNormal,
    distributions.Exponential,
    distributions.FromFile,
    kinds.Kind,
    kinds.Tenant,
    kinds.Disconnect,
    kinds.Documents,
    kinds.Conversation,
    plan.ClosedLoop,
    queries.QueriesSpec,
)


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_workload_shown_runs(page: Path, tmp_path: Path) -> None:
    (tmp_path / "acme.key").write_text("sk-acme")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    shown = {
        name: text for name, text in marked_blocks(text_of(page)).items()
        if name.startswith("workload-")
    }  # fmt: skip
    assert len(shown) >= 3
    for name, text in shown.items():
        (tmp_path / f"{name}.toml").write_text(text, encoding="utf-8")
        planned = read_workload(tmp_path / f"{name}.toml")
        assert len(list(itertools.islice(planned.requests(1), 20))) == 20


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_key_and_every_mix_is_named(page: Path) -> None:
    words = set(re.findall(r"[A-Za-z_0-9]+", text_of(page)))
    keys = {field.name for spec in SPECS for field in msgspec.structs.fields(spec)}
    assert keys | set(preset_names()) <= words
    tags = {str(spec.__struct_config__.tag) for spec in SPECS if spec.__struct_config__.tag}
    assert tags <= words


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_request_log_shown_is_replayed(page: Path, tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text(marked_blocks(text_of(page))["request-log"])
    values: dict[str, Any] = {"arrivals": {"kind": "trace", "file": "log.jsonl"}}
    requests = list(Workload(msgspec.convert(values, WorkloadSpec), tmp_path).requests(1))
    assert [(one.kind, one.input_tokens) for one in requests] == [("trace", 1_460), ("faq", 11)]
    assert requests[1].at_s == pytest.approx(1.1605, abs=1e-4)


def test_the_log_that_the_server_writes_is_replayed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Context:
        principal = Principal(tenant="acme")
        degradations = ()
        labels: ClassVar[dict[str, str]] = {}

    report = RequestReport(
        request_id="r", method="POST", route="chat", status=200, outcome="ok", ended_at=0.0,
        arrived_at=0.0, duration_s=0.25, client="", trace=begin_trace(None), prompt_tokens=30,
        completion_tokens=4, ctx=Context(),  # type: ignore[arg-type]
    )  # fmt: skip
    with caplog.at_level(logging.INFO):
        AccessLog().finished(report)
        logging.getLogger("forebay.app").info("something else")
        AccessLog().finished(report)
    formatter = JsonFormatter("test", "here")
    lines = [formatter.format(record) for record in caplog.records]
    (tmp_path / "log.jsonl").write_text("\n".join(lines))
    rows = replay(TraceArrivals(file="log.jsonl"), tmp_path, np.random.default_rng(1))
    assert [(row.input_tokens, row.output_tokens, row.tenant) for row in rows] == [
        (30, 4, "acme"), (30, 4, "acme"),
    ]  # fmt: skip
