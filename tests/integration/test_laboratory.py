"""The laboratory from the command line: engines served, loaded, compared, interrupted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.support import COMMAND as FOREBAY
from tests.integration.support import forebay

WITHIN_S = 60.0


@pytest.fixture(scope="module")
def engine() -> Iterator[str]:
    served = subprocess.Popen(
        [*FOREBAY, "simulate", "serve", "--port", "0", "--output", "cap", "--json"],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert served.stdout is not None
        yield json.loads(served.stdout.readline())["replicas"][0]
    finally:
        served.terminate()
        assert served.wait(60) == 0


def test_the_short_form_loads_and_writes(engine: str, tmp_path: Path) -> None:
    out, html = tmp_path / "run.json", tmp_path / "run.html"
    ran = forebay(
        *("bench", engine, "--rate", "20", "--duration", "1.5", "--json"),
        *("--out", str(out), "--html", str(html), "--lang", "zh"),
        folder=tmp_path,
    )
    # A busy machine makes the result invalid, which is said and is status 1.
    assert ran.status == (1 if "NOT VALID" in ran.err else 0), ran.err
    result = json.loads(ran.out)
    assert result == json.loads(out.read_bytes())
    assert result["total"]["sent"] == result["total"]["ok"] > 10
    assert result["run"]["workload"]["arrivals"]["rate"] == 20
    page = html.read_text(encoding="utf-8")
    assert 'lang="zh-CN"' in page and engine in page


def test_a_load_of_which_nothing_was_answered_is_no_success(engine: str, tmp_path: Path) -> None:
    out, load = tmp_path / "run.json", ("--rate", "20", "--count", "10")
    for target, model, what in (
        ("http://127.0.0.1:9", "sim", "connect"),
        (engine, "another", "http_error 10"),
    ):
        ran = forebay("bench", target, "--model", model, *load, "--out", str(out), folder=tmp_path)
        assert ran.status == 1 and what in ran.err, ran.err
        assert "NOTHING WAS ANSWERED" in ran.err
        assert json.loads(out.read_bytes())["total"]["sent"] == 10
        again = forebay("bench", "report", str(out), folder=tmp_path)
        assert again.status == 1 and "NOTHING WAS ANSWERED" in again.err


@pytest.mark.parametrize(
    ("sent", "processes"), [(signal.SIGINT, 1), (signal.SIGINT, 2), (signal.SIGTERM, 1)]
)
def test_ctrl_c_keeps_what_was_measured(
    engine: str, tmp_path: Path, sent: signal.Signals, processes: int
) -> None:
    out = tmp_path / "run.json"
    before = _answers(engine)
    running = subprocess.Popen(
        [
            *(*FOREBAY, "bench", engine, "--rate", "20", "--duration", "600", "--out", str(out)),
            *("--processes", str(processes)),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    until = time.monotonic() + WITHIN_S
    while _answers(engine) < before + 20 and time.monotonic() < until:
        time.sleep(0.2)
    # As a terminal does it: to every process of the group.
    os.killpg(running.pid, sent)
    told, warned = running.communicate(timeout=60)
    assert running.returncode == (1 if "NOT VALID" in warned else 0), warned
    assert "good" in told
    assert json.loads(out.read_bytes())["duration_s"] < 60


@pytest.mark.parametrize(
    "closed",
    [">&-", "<&- >&- 2>&-", *(pytest.param(more, marks=pytest.mark.slow) for more in ("", "2>&-"))],
)
def test_closed_streams_do_not_end_a_run(engine: str, tmp_path: Path, closed: str) -> None:
    out = tmp_path / "run.json"
    words = ("bench", engine, "--rate", "20", "--duration", "1", "--out", str(out))
    ran = subprocess.run(
        ["sh", "-c", f'"$@" {closed}', "sh", *FOREBAY, *words],
        capture_output=True,
        timeout=WITHIN_S,
        check=False,
    )
    assert ran.returncode in (0, 1) and b"Traceback" not in ran.stderr
    assert json.loads(out.read_bytes())["total"]["ok"] > 10


def test_a_full_disk_under_the_output_is_one_sentence() -> None:
    device = Path("/dev/full")
    if not device.exists():
        pytest.skip("there is no /dev/full here")
    for words in (("--count", "3"), ("--count", "3", "--json")):
        with device.open("w") as full:
            ran = subprocess.run(
                [*FOREBAY, "simulate", "run", *words],
                stdout=full,
                stderr=subprocess.PIPE,
                timeout=WITHIN_S,
                check=False,
            )
        assert ran.returncode == 1
        assert b"the disk is full" in ran.stderr and b"Traceback" not in ran.stderr


def _answers(engine: str) -> float:
    """Answers that the engine has finished."""
    with urllib.request.urlopen(f"{engine}/metrics", timeout=60) as response:
        lines = response.read().decode().splitlines()
    return sum(
        float(line.rpartition(" ")[2])
        for line in lines
        if line.startswith("vllm:request_success_total{")
    )


def test_results_are_compared_and_shown_again(tmp_path: Path) -> None:
    results = []
    for card in ("h100", "l4"):
        out = tmp_path / f"{card}.json"
        words = ("--mix", "light", "--rate", "10", "--duration", "40", "--out", str(out))
        simulated = forebay(
            *("simulate", "run", "--profile", f"{card}/8b", *words), folder=tmp_path
        )
        assert simulated.status == 0
        results.append(str(out))
    compared = forebay(
        "bench", "compare", *results, "--html", str(tmp_path / "c.html"), folder=tmp_path
    )
    assert compared.status == 0
    assert "worse" in compared.out and "target" in compared.out
    assert (tmp_path / "c.html").stat().st_size > 500_000
    shown = forebay("bench", "report", results[0], folder=tmp_path)
    assert shown.status == 0 and "good 100.00%" in shown.out


@pytest.mark.parametrize(
    ("words", "status", "told"),
    [
        (("bench", "http://127.0.0.1:9", "--rate", "1"), 1, "nothing answers"),
        (("bench", "ftp://127.0.0.1"), 2, "ftp"),
        (("bench", "http://127.0.0.1:9", "--rate", "-1"), 2, "rate"),
        (("bench", "http://127.0.0.1:9", "--header", "x"), 2, "name=value"),
        (("bench", "http://127.0.0.1:9", "--key-file", "none"), 2, "none"),
        (("bench", "compare", "none.json", "none.json"), 2, "none.json"),
        (("bench", "ramp", "http://127.0.0.1:9", "--from", "9", "--to", "3"), 2, "ramp"),
        (("simulate", "run", "--profile", "h100/9b"), 2, "did you mean"),
        (("simulate", "run", "--router", "best"), 2, "router"),
        (("simulate", "serve", "--fault", "fire"), 2, "fire"),
        (("simulate", "serve", "--speed", "0"), 2, "speed"),
        (("simulate", "calibrate", "http://127.0.0.1:9", "--out", "x.toml"), 2, ".json"),
    ],
)
def test_wrong_use_is_one_sentence(
    words: tuple[str, ...], status: int, told: str, tmp_path: Path
) -> None:
    ran = forebay(*words, folder=tmp_path)
    assert ran.status == status, ran.err
    assert told in ran.err and len(ran.err.strip().splitlines()) == 1, ran.err
    assert ran.err.startswith("forebay: ") and not ran.out
