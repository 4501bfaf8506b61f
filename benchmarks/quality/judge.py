"""What taking a judge's bias off is worth, and what a small judge learns: with a simulated judge.

    python benchmarks/quality/judge.py --data ../shared/data --store /tmp/quality/store \\
        > benchmarks/quality/judge.json

No capable judging model runs on this machine, so one is simulated: a real HTTP server on loopback
that reads the prompts it is sent, knows the sets' labels, and scores by them with noise, plus what
ends and length lend a passage. That says what the correction does to a known bias and what the
small judge can learn from such scores; it says nothing of how good any model is.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from aiohttp import web

SETS = {
    "xquad_zh": ("xquad_zh", "xquad_zh"),
    "tatqa_dev": ("tatqa_dev", "tatqa_dev"),
}
"""Name -> whose questions, whose documents."""
BIASES = {"none": (0.0, 0.0), "F4.7": (0.15, 0.02), "twice": (0.3, 0.04)}
"""Name -> what the ends and 100 tokens lend."""
NOISE = 0.12
QUESTIONS = 200
_PASSAGE = re.compile(r'(?:Passage|段落) \d+[:：]\n"""(.*?)"""', re.DOTALL)
_QUESTION = re.compile(r"^(?:Question|问题): (.*)$", re.MULTILINE)


class Simulated:
    """A judge that knows the labels of one set."""

    def __init__(self, folder: Path, bias: tuple[float, float]) -> None:
        documents = {
            row["_id"]: f"{row['title']}\n{row['text']}" for row in lines(folder / "corpus.jsonl")
        }
        relevant: dict[str, list[str]] = {}
        for line in (folder / "qrels.tsv").read_text(encoding="utf-8").splitlines()[1:]:
            query, document, grade = line.split("\t")
            if int(grade) > 0:
                relevant.setdefault(query, []).append(documents[document])
        self._right = {
            row["text"].strip(): relevant.get(row["_id"], [])
            for row in lines(folder / "queries.jsonl")
        }
        self._ends, self._length = bias
        self._chance = random.Random(1)

    def scores(self, text: str) -> list[float]:
        """One score a passage of a prompt, 0..1."""
        asked = _QUESTION.search(text)
        passages = _PASSAGE.findall(text)
        right = self._right[asked[1].strip()] if asked else []
        last = max(1, len(passages) - 1)
        return [
            min(1.0, max(0.0, self._score(passage, right, abs(2 * at / last - 1))))
            for at, passage in enumerate(passages)
        ]

    def _score(self, passage: str, right: list[str], end: float) -> float:
        body = passage.strip().split("\n", 1)[-1].strip()[:200]
        base = 0.65 if any(body in document for document in right) else 0.25
        # About what the estimate counts: a Han character is a token, a word one and a third.
        han = len(re.findall("[\u3400-\u9fff]", passage))
        tokens = han + 1.3 * len(re.findall(r"[A-Za-z0-9]+", passage))
        lent = self._ends * end + self._length * tokens / 100
        return base + lent + self._chance.gauss(0, NOISE)

    async def answer(self, request: web.Request) -> web.Response:
        """Answer one of the three questions."""
        text = (await request.json())["messages"][1]["content"]
        scores = self.scores(text)
        if '"order"' in text:
            ranked = sorted(range(len(scores)), key=lambda at: -scores[at])
            said: Any = {"order": [at + 1 for at in ranked]}
        elif '"consistent"' in text:
            said = {"consistent": True}
        else:
            rows = [(number, round(10 * score)) for number, score in enumerate(scores, 1)]
            said = {
                "scores": {
                    number: {"relevance": score, "information": score, "redundancy": 0}
                    for number, score in rows
                }
            }
        choice = {"message": {"role": "assistant", "content": json.dumps(said)}}
        return web.json_response({"choices": [choice]})


def lines(path: Path) -> list[dict[str, Any]]:
    """Read a file of JSON lines."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def joined(data: Path, made: Path, name: str) -> Path:
    """A folder of one set's questions and another's documents."""
    questions, documents = SETS[name]
    folder = made / name
    folder.mkdir(exist_ok=True)
    for file, of in (("corpus.jsonl", documents), ("queries.jsonl", questions)):
        (folder / file).symlink_to(data / of / file)
    (folder / "qrels.tsv").symlink_to(data / questions / "qrels.tsv")
    return folder


async def forebay(*words: str | Path) -> str:
    """Run a command of ``forebay`` beside the judge."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "forebay", "eval", *map(str, words), stdout=subprocess.PIPE
    )
    out, _ = await process.communicate()
    if process.returncode:
        raise SystemExit(f"forebay eval ended with status {process.returncode}")
    return out.decode()


async def judged(folder: Path, bias: str, store: Path, made: Path) -> dict[str, Any]:
    """Have one set judged with one bias, and a small judge made of that."""
    app = web.Application()
    app.router.add_post("/v1/chat/completions", Simulated(folder, BIASES[bias]).answer)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        said, small = made / "said.jsonl", made / "small.json"
        words = ("--judge", url, "--judge-model", "simulated", "--judge-top", "10")
        told = json.loads(
            await forebay(
                folder,
                "--search-only",
                "--limit",
                str(QUESTIONS),
                "--store",
                store,
                *words,
                "--judgements",
                said,
                "--patient",
                "--json",
            )
        )
        result = {"judge": told["sets"][0]["judge"]}
        result["small"] = json.loads(
            await forebay("distill-judge", said, "--out", small, "--held-out", "0.4", "--json")
        )
        return result
    finally:
        await runner.cleanup()


async def main() -> None:
    """Judge every set with every bias and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--store", type=Path, required=True)
    arguments = parser.parse_args()
    data = arguments.data.resolve() / "retrieval"
    found: dict[str, Any] = {"questions": QUESTIONS, "noise": NOISE, "biases": BIASES, "sets": {}}
    with tempfile.TemporaryDirectory() as made:
        for name in SETS:
            folder = joined(data, Path(made), name)
            found["sets"][name] = {}
            for bias in BIASES:
                result = await judged(folder, bias, arguments.store, Path(made))
                found["sets"][name][bias] = result
                print(f"{name}, {bias}: done", file=sys.stderr)
    json.dump(found, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    asyncio.run(main())
