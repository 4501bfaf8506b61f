"""``forebay prove`` beside its prediction: the same requests in virtual time.

``run.py`` measures with ``forebay prove`` (``--read FILE`` takes a result of its ``--out``),
simulates the same requests of its first panel on the virtual clock, behind the least-outstanding
router and behind the server's own admission, and writes ``result.json`` and the pictures in
docs/images. What the gateway adds to a question (rules, passages) is taken from the measured run:
the mean, of which the rules come from the engine's prefix cache.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec

from forebay.app.proof_traffic import HEAVY, workload, write_corpus
from forebay.app.proving import MAX_MODEL_LEN
from forebay.lab.measure.recorder import RecorderOptions
from forebay.lab.measure.result import Run, RunResult
from forebay.lab.report.page import svg
from forebay.lab.report.proof import FOREBAY, Proof, chart, load_proof
from forebay.lab.report.words import Words
from forebay.lab.sim.fleet import PoolConfig
from forebay.lab.sim.profiles import find_profile
from forebay.lab.sim.routers import ADMISSION
from forebay.lab.sim.run import VirtualOptions, simulate
from forebay.lab.workload.plan import Workload
from forebay.lab.workload.request import PlannedRequest
from forebay.lab.workload.tokens import count_tokens

HERE = Path(__file__).resolve().parent
IMAGES = HERE.parents[1] / "docs" / "images"
FOREBAY_COMMAND = (sys.executable, "-m", "forebay")
BLOCK_TOKENS = 16
GOAL = 0.05
"""How far the predicted goodput may be from the measured one, as a share of what was asked."""


class Built(Workload):
    """Both phases one after the other, with prompts as long as the gateway builds them."""

    def __init__(self, proof: Proof, folder: Path, added_tokens: int) -> None:
        panel = proof.panels[0]
        self._seed = panel.sides[0].light.run.seed
        self._phase_s = panel.phase_s
        self._phases = [
            workload(folder, proof.rate_per_s, panel.phase_s, HEAVY, larger=larger)
            for larger in (False, True)
        ]
        super().__init__(self._phases[1].spec, folder)
        self._added_tokens = added_tokens
        self._cached = tuple(range(_rules_tokens() // BLOCK_TOKENS))

    @property
    def duration_s(self) -> float:
        """Both phases."""
        return 2 * self._phase_s

    def requests(self, seed: int) -> Iterator[PlannedRequest]:
        """The very requests of the measured run; ``seed`` is the run's."""
        index = 0
        for number, phase in enumerate(self._phases):
            for planned in phase.requests(self._seed + number):
                yield msgspec.structs.replace(
                    planned,
                    index=index,
                    at_s=planned.at_s + number * self._phase_s,
                    input_tokens=planned.input_tokens + self._added_tokens,
                    prefix=self._cached,
                    prefix_block_tokens=BLOCK_TOKENS,
                )
                index += 1


def _rules_tokens() -> int:
    """The beginning that every prompt shares."""
    template = resources.files("forebay.context") / "templates" / "en" / "system.j2"
    return count_tokens(template.read_text(encoding="utf-8").split("{{ fence }}")[0])


def added_tokens(proof: Proof, folder: Path) -> int:
    """What the gateway put around a question, in the mean of the calm phase."""
    panel = proof.panels[0]
    side = panel.sides[0]
    calm = side.light.by_kind["light"]
    asked = workload(folder, proof.rate_per_s, panel.phase_s, HEAVY, larger=False)
    questions = [each.input_tokens for each in asked.requests(side.light.run.seed)]
    return round(calm.input_tokens / calm.ok - sum(questions) / len(questions))


def predicted(proof: Proof, router: str, folder: Path) -> RunResult:
    """The second phase as the virtual clock has it, after the first."""
    profile = find_profile(proof.profile)
    pool = PoolConfig(engine=profile.engine_config(max_model_len=MAX_MODEL_LEN), name="engine")
    options = VirtualOptions(
        router=router, recorder=RecorderOptions(warmup_s=proof.panels[0].phase_s)
    )
    load = Built(proof, folder, added_tokens(proof, folder))
    run = Run(source="simulation", target=profile.name)
    return simulate(load, [(pool, profile.step_model())], run, options)


def measured(out: Path) -> None:
    """Run the command itself; 1 is a result that is not valid, which it says."""
    done = subprocess.run([*FOREBAY_COMMAND, "prove", "--out", str(out)], check=False)
    if not out.exists():
        raise SystemExit(done.returncode)


def compared(proof: Proof) -> list[dict[str, Any]]:
    """Both sides, measured and predicted."""
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_corpus(folder)
        panel = proof.panels[0]
        for side, found in zip(panel.sides, panel.summary, strict=True):
            router = ADMISSION if side.name == FOREBAY else "least-outstanding"
            virtual = predicted(proof, router, folder)
            light, heavy = virtual.by_kind["light"], virtual.by_kind["heavy"]
            share = side.mixed.total.goodput_share
            rows.append(
                {
                    "side": side.name,
                    "measured": msgspec.to_builtins(found),
                    "measured_good_share": share,
                    "predicted_good_share": virtual.total.goodput_share,
                    "predicted_light_good_share": light.goodput_share,
                    "predicted_heavy_answered": heavy.good,
                    "predicted_light_ttft_p50_s": light.ttft.p50_s,
                    "predicted_light_ttft_p99_s": light.ttft.p99_s,
                    "difference": virtual.total.goodput_share - share,
                    "cpu": side.cpu,
                }
            )
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--read", type=Path, help="a result of forebay prove --out")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        out = asked.read or Path(folder) / "proof.json"
        if asked.read is None:
            measured(out)
        proof = load_proof(out)
    panel = proof.panels[0]
    if panel.mix != HEAVY.name:
        raise SystemExit("the first panel is compared, and has to be the heavy one")
    rows = compared(proof)
    for row in rows:
        print(
            f"{row['side']}: good {row['measured_good_share']:.1%} measured, "
            f"{row['predicted_good_share']:.1%} predicted ({row['difference']:+.1%})"
        )
    if not proof.valid:
        print("not valid, nothing is written: " + "; ".join(proof.why_not))
        return 1
    run = panel.sides[0].mixed.run
    kept = {
        "profile": proof.profile,
        "rate_per_s": proof.rate_per_s,
        "phase_s": panel.phase_s,
        "seed": panel.sides[0].light.run.seed,
        "machine": run.machine,
        "commit": run.commit,
        "sides": rows,
        "others": [
            {"mix": one.mix, "share": one.share, "phase_s": one.phase_s, "sides": one.summary}
            for one in proof.panels[1:]
        ],
    }
    data = msgspec.json.format(msgspec.json.encode(kept), indent=2)
    (HERE / "result.json").write_bytes(data + b"\n")
    for language, ending in (("en", ""), ("zh", ".zh-CN")):
        drawn = svg(chart(proof, Words(language)))
        (IMAGES / f"prove{ending}.svg").write_text(drawn, encoding="utf-8")
    return 0 if all(abs(row["difference"]) <= GOAL for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
