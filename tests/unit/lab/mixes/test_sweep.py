"""Sweeps: what no admission decides is kept, and a report says what an engineer asks."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from forebay.lab.mixes.__main__ import main, seeds_of
from forebay.lab.mixes.judge import judge
from forebay.lab.mixes.mix import Mix, random_mix
from forebay.lab.mixes.rows import LIGHT, OTHER, rows
from forebay.lab.mixes.sweep import fingerprint, sweep, try_mix
from forebay.lab.mixes.text import details, line, summary, workload_file
from forebay.lab.mixes.trial import Trial, pack, unpack
from forebay.lab.workload.arrivals import PoissonArrivals
from forebay.lab.workload.plan import WorkloadSpec


def small_mix(seed: int = 1) -> Mix:
    """A short one, cheap to judge."""
    kinds = random_mix(3).workload.kinds
    spec = WorkloadSpec(
        name="small", arrivals=PoissonArrivals(rate=10.0, duration_s=10.0), kinds=kinds
    )
    return Mix(seed=seed, workload=spec)


def test_a_kept_reference_is_the_one_that_was_found(tmp_path: Path) -> None:
    mix = small_mix()
    first = try_mix(mix, tmp_path)
    (kept,) = tmp_path.iterdir()
    written = kept.stat().st_mtime_ns
    assert try_mix(mix, tmp_path) == first == try_mix(mix)
    assert kept.stat().st_mtime_ns == written


def test_another_mix_has_another_reference(tmp_path: Path) -> None:
    mix, other = small_mix(), small_mix(seed=2)
    assert fingerprint(mix) != fingerprint(other)
    assert fingerprint(mix) != fingerprint(msgspec.structs.replace(mix, replicas=2))
    assert fingerprint(mix) != fingerprint(msgspec.structs.replace(mix, profile="a100/8b"))
    reference, name = Trial(mix).reference()
    data = pack(reference, name, "this")
    found = unpack(data, "this")
    assert found is not None
    assert found[1] == name
    assert (found[0].clairvoyant == reference.clairvoyant).all()
    assert unpack(data, "another") is None


def test_a_sweep_in_processes_finds_the_same(tmp_path: Path) -> None:
    mixes = [small_mix(), small_mix(seed=2)]
    assert list(sweep(mixes, jobs=2)) == list(sweep(mixes))


def test_a_report_names_kinds_shares_and_how_to_run_it() -> None:
    report = try_mix(small_mix())
    assert "rule1" in line(report)
    for kind in report.mix.workload.kinds:
        assert kind.name in details(report)
    told = workload_file(report)
    assert "--workload small.json --seed 1 -p h100/8b" in told
    body = told.split("\n", 2)[2]
    assert msgspec.json.decode(body, type=WorkloadSpec) == report.mix.workload
    assert summary([report]).startswith("1 mixes:")


@pytest.mark.parametrize(("text", "seeds"), [("3", [3]), ("0-2", [0, 1, 2]), ("7,2-3", [7, 2, 3])])
def test_seeds_are_read_from_words(text: str, seeds: list[int]) -> None:
    assert seeds_of(text) == seeds


def test_the_command_line_prints_and_writes_its_verdicts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "out.json"
    code = main(["--seeds", "2", "--jobs", "1", "--json", str(file), "-v"])
    assert code in (0, 1)
    assert "mix-2" in capsys.readouterr().out
    (report,) = msgspec.json.decode(file.read_bytes())
    assert report["mix"]["seed"] == 2


def test_the_fixed_mixes_have_light_and_other_requests() -> None:
    for mix in rows():
        assert [kind.name for kind in mix.workload.kinds] == [LIGHT, OTHER]
        assert mix.load > 1


@pytest.mark.parametrize("seed", [0, 10, 19, 34])
def test_the_schedule_to_compare_with_keeps_both_rules(seed: int) -> None:
    trial = Trial(random_mix(seed))
    reference, name = trial.reference()
    assert judge(trial.offered, reference, reference.clairvoyant).passed, name
