"""``forebay prove`` with real processes, short: what it writes and says, not how fast it was."""

from __future__ import annotations

import json
import signal
import socket
from pathlib import Path

import psutil
import pytest

from tests.integration.support import Ran, descendants, forebay, start, until

SHORT = ("--seconds", "2", "--rate", "30", "--speed", "20")
LARGER = {"heavy": (8_000, 800), "medium": (2_000, 400), "parts": (6_000, 256)}
"""Least tokens in, and tokens out, of each mix's larger requests."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made: Path = tmp_path_factory.mktemp("prove")
    return made


@pytest.fixture(scope="module")
def proof(folder: Path) -> Ran:
    return proved("heavy", folder)


def proved(mix: str, folder: Path) -> Ran:
    words = (*SHORT, "--panels", mix, "--json", "--out", f"{mix}.json")
    return forebay("prove", *words, folder=folder)


@pytest.mark.parametrize("mix", ["heavy", "parts", pytest.param("medium", marks=pytest.mark.slow)])
def test_both_sides_got_the_same_requests_and_answered(mix: str, proof: Ran, folder: Path) -> None:
    ran = proof if mix == "heavy" else proved(mix, folder)
    found = ran.json
    # A machine that is busy with other tests may make it invalid; then it says so.
    assert ran.status == (0 if found["valid"] else 1), ran.err
    assert ("NOT VALID" in ran.err) is not found["valid"]
    assert json.loads((folder / f"{mix}.json").read_bytes()) == found
    (panel,) = found["panels"]
    assert panel["mix"] == mix
    through, admitted = panel["sides"]
    assert (through["name"], admitted["name"]) == ("pass_through", "forebay")
    for phase in ("light", "mixed"):
        same = ("fingerprint", "seed", "workload")
        assert [through[phase]["run"][key] for key in same] == [
            admitted[phase]["run"][key] for key in same
        ]
        sent = [side[phase]["total"]["sent"] for side in (through, admitted)]
        assert sent[0] == sent[1] > 30
    assert set(through["mixed"]["by_kind"]) == {"light", mix}
    larger, (asked, written) = through["mixed"]["by_kind"][mix], LARGER[mix]
    assert larger["ok"] == larger["sent"] > 0
    assert larger["input_tokens"] / larger["sent"] > asked
    each = larger["output_tokens"] / larger["sent"]
    # What is written from the parts is counted, too.
    assert each > 2 * written if mix == "parts" else each == written
    light = through["light"]["by_kind"]["light"]
    assert light["ok"] == light["sent"]
    assert set(through["light"]["total"]["statuses"]) == {"ok"}
    for side in (through, admitted):
        assert set(side["mixed"]["total"]["statuses"]) <= {"ok", "refused"}
        assert {"gateway", "engine"} == set(side["cpu"])


def test_a_stored_proof_is_shown_again(proof: Ran, folder: Path) -> None:
    words = ("--read", "heavy.json", "--svg", "zh.svg", "--html", "zh.html", "--lang", "zh")
    again = forebay("prove", *words, folder=folder)
    assert again.status == proof.status
    lines = [line.split("\t") for line in again.out.splitlines() if "\t" in line]
    assert lines[0] == ["", "直通", "Forebay"]
    assert len(lines) == 8
    assert {len(line) for line in lines} == {3}
    assert "仿真：一个引擎（h100/llama-3.1-8b/fp16/tp1 x 20）" in again.out
    assert (folder / "zh.svg").read_text("utf-8").startswith("<svg")
    assert "<!doctype html>" in (folder / "zh.html").read_text("utf-8")


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGTERM,
        signal.SIGKILL,
        *(pytest.param(one, marks=pytest.mark.slow) for one in (signal.SIGINT, signal.SIGHUP)),
    ],
)
def test_it_leaves_no_process_behind(folder: Path, number: int) -> None:
    log = folder / f"stopped-{number}.log"
    running = start("prove", "--seconds", "60", folder=folder, log=log)
    until(lambda: "requests/s for 60 s" in log.read_text("utf-8"), 60)
    children = descendants(running.pid)
    assert len(children) >= 2
    running.send_signal(number)
    status = running.wait(60)
    if number == signal.SIGKILL:
        # They notice by themselves.
        assert status == -number
        assert not psutil.wait_procs(children, timeout=60)[1]
        return
    assert status == 128 + number
    assert not [child for child in children if child.is_running()]
    assert "Traceback" not in log.read_text("utf-8")


def test_what_cannot_work_is_said_in_one_sentence(folder: Path) -> None:
    (folder / "other.json").write_text("{}", encoding="utf-8")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        for words, why in (
            (("--port", port), f"port {port} on 127.0.0.1 cannot be bound"),
            (("--svg", "nowhere/chart.svg"), "nowhere/chart.svg cannot be written"),
            (("--read", "nothing.json"), "cannot read nothing.json"),
            (("--read", "other.json"), "other.json is no proof"),
            (("--lang", "fr"), "fr"),
            (("--panels", "heavy,light"), "heavy, medium, parts, not light"),
            (("--panels", ""), "heavy, medium, parts"),
        ):
            ran = forebay("prove", *words, folder=folder)
            assert ran.status == 2, ran
            assert why in ran.err
            assert len(ran.err.strip().splitlines()) == 1
    assert forebay("prove", "--seconds", "0", folder=folder).status == 2
    help_text = forebay("prove", "--help", folder=folder).out
    assert all(
        option in help_text for option in ("--seconds", "--panels", "--svg", "--html", "--json")
    )
