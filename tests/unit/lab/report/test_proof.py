"""The proof's figures and chart, from runs in virtual time."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from forebay.kernel.errors import ConfigError
from forebay.lab.bench.describe import describe_workload
from forebay.lab.measure.reasons import Reason
from forebay.lab.measure.result import Generator, Run, RunResult
from forebay.lab.report.page import svg
from forebay.lab.report.proof import (
    Panel,
    Proof,
    Side,
    chart,
    doubts,
    load_proof,
    summarise,
    table,
    verdicts,
    write_proof_report,
)
from forebay.lab.report.words import LANGUAGES, Words
from forebay.lab.sim.fleet import PoolConfig
from forebay.lab.sim.profiles import find_profile
from forebay.lab.sim.run import VirtualOptions, simulate
from forebay.lab.workload.presets import preset_workload

PHASE_S = 6.0


def run(mix: str, router: str) -> RunResult:
    profile = find_profile("h100/8b")
    workload = preset_workload(mix, 200.0, PHASE_S)
    about = Run(source="simulation", workload=describe_workload(workload))
    pool = PoolConfig(engine=profile.engine_config(max_model_len=16_384), name="engine")
    steps = profile.step_model()
    result = simulate(workload, [(pool, steps)], about, VirtualOptions(seed=1, router=router))
    return msgspec.structs.replace(result, generator=Generator())


@pytest.fixture(scope="module")
def panel() -> Panel:
    sides = (
        Side("pass_through", run("light", "least-outstanding"), run("heavy5", "least-outstanding")),
        Side("forebay", run("light", "admission"), run("heavy5", "admission")),
    )
    return Panel(
        mix="heavy",
        share=0.05,
        calm_s=PHASE_S,
        phase_s=PHASE_S,
        sides=sides,
        summary=tuple(summarise(side, "heavy") for side in sides),
    )


@pytest.fixture(scope="module")
def proof(panel: Panel) -> Proof:
    medium = msgspec.structs.replace(panel, mix="medium", share=0.2, calm_s=PHASE_S / 2)
    return Proof(
        panels=(panel, medium, msgspec.structs.replace(medium, mix="parts")),
        rate_per_s=200.0,
        profile="h100",
        speed=1.0,
        valid=False,
        why_not=("the machine was busy",),
    )


def test_the_summary_tells_the_sides_apart(panel: Panel, proof: Proof) -> None:
    through, admitted = panel.summary
    assert through.light_good_share_before > 0.99
    assert through.light_good_share < 0.5 < 0.6 < admitted.light_good_share
    assert through.light_ttft_p99_s == pytest.approx(2.0, rel=0.01)
    assert through.light_refused == through.larger_refused == 0
    assert through.refused_p99_s == 0.0
    assert admitted.larger_refused > 0
    assert through.light_sent == admitted.light_sent
    heavy, medium, parts = verdicts(proof, Words())
    assert "With heavy requests about" in heavy and "by Forebay" in heavy
    assert "With medium requests about" in medium
    assert "With texts answered in parts about" in parts
    nearly = tuple(msgspec.structs.replace(one, light_good_share=0.9976) for one in panel.summary)
    changed = msgspec.structs.replace(panel, summary=nearly)
    assert (
        "99.8% by Forebay"
        in verdicts(msgspec.structs.replace(proof, panels=(changed,)), Words())[0]
    )


def test_light_requests_without_an_answer_count_with_their_deadline(panel: Panel) -> None:
    side = panel.sides[0]
    light = side.mixed.by_kind["light"]
    assert light.statuses["timeout"] > light.sent // 2
    # The same, had the gateway answered 504: then their waits are not in the histogram.
    changed = msgspec.structs.replace(
        light,
        ttft=msgspec.structs.replace(light.ttft, histogram=""),
        statuses={"http_error": light.sent},
    )
    kinds = {**side.mixed.by_kind, "light": changed}
    mixed = msgspec.structs.replace(side.mixed, by_kind=kinds)
    found = summarise(msgspec.structs.replace(side, mixed=mixed), "heavy")
    assert (found.light_ttft_p50_s, found.light_ttft_p99_s) == (2.0, 2.0)


@pytest.mark.parametrize("language", LANGUAGES)
def test_table_chart_and_page(proof: Proof, language: str, tmp_path: Path) -> None:
    words = Words(language)
    columns, rows = table(proof, words)
    assert len(columns) == 3
    assert {len(row) for row in rows} == {3}
    assert len(rows) == 3 * 7
    assert words("proof_refused_p99") in {row[0] for row in rows}
    drawn = svg(chart(proof, words))
    for name in ("proof_good", "proof_lost", "proof_refused", "forebay_title"):
        assert words(name) in drawn
    for mix, share in (("heavy", "5%"), ("medium", "20%"), ("parts", "20%")):
        assert words(f"proof_turn_{mix}").format(share=share) in drawn
    alone = svg(chart(msgspec.structs.replace(proof, panels=proof.panels[:1]), words))
    assert "5%" in alone and "20%" not in alone
    path = tmp_path / "proof.html"
    write_proof_report(proof, path, words)
    page = path.read_text("utf-8")
    assert words("not_valid") in page
    assert "the machine was busy" in page


def test_why_it_is_not_valid_is_told_in_either_language(
    panel: Panel, proof: Proof, tmp_path: Path
) -> None:
    late = Reason("generator_late", {"late": "9.1", "most": "5.0"})
    slow = Generator(valid=False, why_not=(str(late),), why=(late,))
    through, admitted = panel.sides
    mixed = msgspec.structs.replace(through.mixed, generator=slow)
    through = msgspec.structs.replace(through, mixed=mixed, cpu={"gateway": 0.97, "engine": 0.2})
    doubted = msgspec.structs.replace(panel, sides=(through, admitted))
    assert doubts((doubted,), Words()) == (
        f"pass-through, with heavy ones: {late}",
        "pass-through, with heavy ones: the gateway used 97% of a core",
    )
    late_zh, busy_zh = doubts((doubted,), Words("zh"))
    assert late_zh.startswith("直通, 有重请求: ") and "9.1 ms" in late_zh
    assert busy_zh == "直通, 有重请求: 网关用掉了一个核的 97%"
    path = tmp_path / "proof.html"
    write_proof_report(msgspec.structs.replace(proof, panels=(doubted,)), path, Words("zh"))
    assert late_zh in path.read_text("utf-8")


def test_a_stored_proof_is_read_again(proof: Proof, tmp_path: Path) -> None:
    path = tmp_path / "proof.json"
    path.write_bytes(msgspec.json.encode(proof))
    assert load_proof(path) == proof
    path.write_bytes(b'{"panels": []}')
    with pytest.raises(ConfigError, match="is no proof"):
        load_proof(path)
    with pytest.raises(ConfigError, match="cannot read"):
        load_proof(tmp_path / "absent.json")
