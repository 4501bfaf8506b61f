"""Tuning from the command line: a few trials on the handbook, the patch taken over."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from forebay.app.settings import load_settings

FOREBAY = (sys.executable, "-c", "from forebay.app.cli import main; main()")
ROOT = Path(__file__).resolve().parents[2]
HANDBOOK = str(ROOT / "examples" / "handbook")
QUESTIONS = str(ROOT / "examples" / "questions" / "handbook.jsonl")
WITHIN_S = 110.0
SPACE = """
[[parameters]]
type = "choice"
path = "retrieval.vector.kind"
values = ["exact", "hnsw"]

[[parameters]]
type = "whole"
path = "retrieval.vector.hnsw_ef_search"
low = 16
high = 256
log = true
when = { path = "retrieval.vector.kind", value = "hnsw" }

[[parameters]]
type = "choice"
path = "rerank.backend"
values = ["light"]

[[parameters]]
type = "whole"
path = "retrieval.candidates"
low = 40
high = 100
"""
"""Of parameters that are quick to try; candidates begin above the settings in force."""
pytest.importorskip("optuna", reason="the extra tune is not installed")


def tune(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*FOREBAY, "tune", *words],
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
        cwd=folder,
    )


def test_labelled_questions_of_both_languages_choose_a_patch_that_loads(tmp_path: Path) -> None:
    (tmp_path / "space.toml").write_text(SPACE, encoding="utf-8")
    # Answers are compared in tests/unit/app/test_tuning_answers.py, without models to load twice.
    quick = ("--limit", "40", "--repeats", "1", "--space", "space.toml", "--no-answers")
    indexed = ("--set", "retrieval.vector.exact_rows_max=1")
    words = (HANDBOOK, "-q", QUESTIONS, *quick, *indexed, "--trials", "4", "--study", "journal")
    files = (
        "--patch",
        "tuned.toml",
        "--out",
        "tuned.json",
        "--html",
        "报告.html",
        "--svg",
        "f.svg",
    )
    ran = tune(*words, *files, "--lang", "zh", "--json", folder=tmp_path)
    assert ran.returncode == 0, ran.stderr
    result = json.loads(ran.stdout)
    # Four trials may well choose what is worse on the other half: that is said.
    worse = result["found"]["held_out"]["quality"]["high"] < 0
    assert worse is ("请勿采用" in ran.stderr)
    assert result["advice"] == "keep" or not worse
    assert result == json.loads((tmp_path / "tuned.json").read_bytes())
    found = result["found"]
    assert [trial["number"] for trial in found["trials"]] == [0, 1, 2, 3]
    assert found["base"]["memory_bytes"] > 0
    assert set(found["eligible"]) <= set(found["front"])
    assert found["chosen"] in found["eligible"]
    assert result["tuning_questions"] + found["held_out"]["questions"] == 40
    assert found["base"]["quality"] > 0.6
    assert [step["name"] for step in result["steps"]] == ["labels", "retrieval"]

    settings, _ = load_settings(tmp_path / "tuned.toml", {"retrieval.vector.exact_rows_max": 1}, {})
    after = found["trials"][found["chosen"]]["values"]
    assert settings.retrieval.vector.kind == after["retrieval.vector.kind"]
    assert settings.retrieval.candidates == after["retrieval.candidates"]
    shown = subprocess.run(
        [*FOREBAY, "config", "--config", "tuned.toml", "--json"],
        capture_output=True,
        timeout=WITHIN_S,
        check=True,
        cwd=tmp_path,
    )
    rows = {row["key"]: row["value"] for row in json.loads(shown.stdout)}
    assert rows["retrieval.candidates"] == after["retrieval.candidates"]
    assert rows["rerank.backend"] == "light"
    assert 'lang="zh-CN"' in (tmp_path / "报告.html").read_text(encoding="utf-8")
    assert (tmp_path / "f.svg").read_text(encoding="utf-8").startswith("<svg")


def test_headings_ask_where_nobody_has_labels_and_a_search_goes_on(tmp_path: Path) -> None:
    words = (HANDBOOK, "--set", "embedding.backend=none", "--repeats", "1", "--limit", "60")
    first = tune(*words, "--trials", "3", "--study", "j", "--json", folder=tmp_path)
    assert first.returncode == 0, first.stderr
    second = tune(*words, "--trials", "5", "--study", "j", "--out", "o.json", folder=tmp_path)
    assert second.returncode == 0, second.stderr
    before, after = json.loads(first.stdout), json.loads((tmp_path / "o.json").read_bytes())
    assert before["source"] == after["source"] == "headings"
    assert before["found"]["trials"] == after["found"]["trials"][:3]
    assert len(after["found"]["trials"]) == 5
    other = tune(*words, "--seed", "9", "--trials", "5", "--study", "j", folder=tmp_path)
    assert other.returncode == 2
    assert "another search" in other.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("missing",), "no file or folder"),
        ((HANDBOOK, "--set", "nonsense"), "section.key=value"),
        ((HANDBOOK, "--patch", "nowhere/p.toml"), "cannot be written"),
        (
            (HANDBOOK, "--sampler", "grid"),
            "option cannot be read: --sampler is tpe or nsga2, not 'grid'.",
        ),
        ((HANDBOOK, "-q", "missing.jsonl"), "no set of questions"),
        ((), "--kb"),
        ((HANDBOOK, "--kb", "nope"), "or a knowledge base by --kb"),
    ],
)
def test_wrong_use_is_one_sentence(words: tuple[str, ...], told: str, tmp_path: Path) -> None:
    ran = tune(*words, folder=tmp_path)
    assert ran.returncode == 2
    assert told in ran.stderr
    assert "Traceback" not in ran.stderr
