"""How good the product is on the shared sets: retrieval, answers, refusals, by language.

    python benchmarks/quality/run.py --data ../shared/data --out /tmp/quality
    python benchmarks/quality/run.py --read /tmp/quality > benchmarks/quality/result.json

Runs ``forebay eval`` on each set, with questions of another set as ones that the documents do not
answer. Whole results (a row a question, for ``forebay eval compare``) stay in ``--out``; what
is kept here are their means. The index is kept in ``--out`` too, so that a second run of changed
code only asks.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

RUNS: dict[str, tuple[str, str, str]] = {
    "xquad_en": ("xquad_en", "xquad_en", "hotpotqa_train100"),
    "xquad_zh": ("xquad_zh", "xquad_zh", "drcd_dev"),
    "xquad_zh_on_en": ("xquad_zh", "xquad_en", "drcd_dev"),
    "tatqa_dev": ("tatqa_dev", "tatqa_dev", "hotpotqa_train100"),
    "hotpotqa_train100": ("hotpotqa_train100", "hotpotqa_train100", "xquad_en"),
    "drcd_dev": ("drcd_dev", "drcd_dev", "xquad_zh"),
    "scifact_train": ("scifact_train", "scifact_train", "hotpotqa_train100"),
}
"""Name -> whose questions, whose documents, whose questions have no answer there."""


def evaluate(data: Path, out: Path, name: str, more: list[str]) -> None:
    """Run one evaluation, in a process of its own."""
    questions, documents, strangers = RUNS[name]
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made) / name
        folder.mkdir()
        (folder / "corpus.jsonl").symlink_to(data / documents / "corpus.jsonl")
        for file in ("queries.jsonl", "qrels.tsv"):
            (folder / file).symlink_to(data / questions / file)
        command = [sys.executable, "-m", "forebay", "eval", str(folder)]
        command += ["--no-answer", str(data / strangers), "--store", str(out / "store")]
        command.append("--patient")
        subprocess.run([*command, "--out", str(out / f"{name}.json"), *more], check=True)


def summary(out: Path) -> dict[str, Any]:
    """What is kept of the results: everything but the questions' rows."""
    origins, sets = [], []
    for name in RUNS:
        path = out / f"{name}.json"
        if not path.is_file():
            continue
        result = json.loads(path.read_text(encoding="utf-8"))
        origins.append(result["origin"])
        for one in result["sets"]:
            del one["rows"]
            for found in one["measures"].values():
                for measure in found.values():
                    measure.update({key: round(value, 4) for key, value in measure.items()})
            for stages in one["latency"].values():
                for quantiles in stages.values():
                    del quantiles["histogram"]
            sets.append({**one, "options": result["origin"]["options"]})
    return {"origin": {**origins[0], "options": {}}, "sets": sets}


def main() -> None:
    """Run the named sets, or all; or print the summary of what was run."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--read", type=Path)
    parser.add_argument("--sets", nargs="*", default=list(RUNS))
    arguments, more = parser.parse_known_args()
    if arguments.read is not None:
        json.dump(summary(arguments.read), sys.stdout, indent=1, ensure_ascii=False)
        print()
        return
    if arguments.data is None or arguments.out is None:
        parser.error("name --data and --out, or --read")
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name in arguments.sets:
        evaluate(arguments.data.resolve() / "retrieval", arguments.out, name, more)


if __name__ == "__main__":
    main()
