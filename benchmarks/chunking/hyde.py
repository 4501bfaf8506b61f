"""Chunks by length and by meaning, with and without a hypothetical passage for the query (HyDE).

    python benchmarks/chunking/hyde.py --data ../shared/data --cache ~/.cache/forebay-bench \
        --model model.gguf --questions 120 > benchmarks/chunking/hyde.json

A local model writes the passage that would answer each question; the query's vector is the mean of
the question's and the passage's. The sample is every n-th English XQuAD question.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from cutting import Way
from documents import Question, read
from measure import SPEC, Remembering, measure

from forebay.embedding.counting import open_e5_counter
from forebay.embedding.opening import open_embedder
from forebay.embedding.settings import EmbeddingSettings
from forebay.generation.llama import LlamaGenerator
from forebay.generation.settings import LlamaSettings
from forebay.kernel.clock import Deadline, SystemClock
from forebay.kernel.context import Principal, RequestContext
from forebay.kernel.documents import Vectors
from forebay.kernel.stages import GenerationRequest, Message, Sampling, TextDelta

ASKED = "Write two sentences of an encyclopedia article that answer this question: {}"
WAYS = (Way("fixed", 512, 0), Way("structure", 256, 32), Way("meaning", 512, 0))
PASSAGE_TOKENS = 64


class Hypothetical(Remembering):
    """An embedder that puts what the model wrote beside the question."""

    written: dict[str, str]

    async def embed(
        self, texts: Sequence[str], *, kind: Literal["query", "passage", "raw"]
    ) -> Vectors:
        """Embed passages as they are, and queries with their hypothetical passage."""
        found = await super().embed(texts, kind=kind)
        if kind != "query":
            return found
        asked = np.frombuffer(found.data, "<f4").reshape(len(texts), -1)
        passages = await super().embed([self.written[text] for text in texts], kind="passage")
        blend = asked + np.frombuffer(passages.data, "<f4").reshape(len(texts), -1)
        blend /= np.linalg.norm(blend, axis=1, keepdims=True)
        return Vectors(found.ids, SPEC.dimensions, blend.astype("<f4").tobytes())


async def write(model: Path, questions: list[Question], kept: Path) -> dict[str, str]:
    """What the model writes for each question, kept between runs."""
    written: dict[str, str] = json.loads(kept.read_text()) if kept.exists() else {}
    missing = [q.text for q in questions if q.text not in written]
    if not missing:
        return written
    clock = SystemClock()
    generator = await LlamaGenerator.load(
        LlamaSettings(model_path=str(model), context_tokens=512, threads=1)
    )
    for number, text in enumerate(missing):
        context = RequestContext(
            request_id="h", principal=Principal(), deadline=Deadline.after(300, clock), clock=clock
        )
        request = GenerationRequest(
            question=text,
            language="en",
            messages=(Message("user", ASKED.format(text)),),
            passages=(),
            sampling=Sampling(temperature=0.0, max_tokens=PASSAGE_TOKENS),
            max_output_tokens=PASSAGE_TOKENS,
            prompt_tokens=64,
        )
        pieces = [
            piece.text
            async for piece in generator.generate(context, request)
            if isinstance(piece, TextDelta)
        ]
        written[text] = "".join(pieces).strip() or text
        if number % 20 == 0:
            print(number, text, "->", written[text], file=sys.stderr, flush=True)
            kept.write_text(json.dumps(written))
    kept.write_text(json.dumps(written))
    await generator.close()
    return written


async def main() -> None:
    """Measure with and without, and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache/forebay-bench")
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--questions", type=int, default=120)
    given = parser.parse_args()
    chosen = read(given.data / "retrieval", "xquad_en")
    step = max(1, len(chosen.questions) // given.questions)
    chosen = chosen._replace(questions=chosen.questions[::step])
    written = await write(given.model, chosen.questions, given.cache / "hyde.json")
    inner = await open_embedder(
        EmbeddingSettings(), cache=given.cache / "models", clock=SystemClock()
    )
    counter = open_e5_counter(given.cache / "models")
    folder = given.cache / "chunking"
    results: dict[str, Any] = {"model": given.model.name, "questions": len(chosen.questions)}
    for name, embedder in (
        ("plain", Remembering(inner, folder)),
        ("hyde", Hypothetical(inner, folder)),
    ):
        if isinstance(embedder, Hypothetical):
            embedder.written = written
        results[name] = [await measure(way, chosen, embedder, counter) for way in WAYS]
    json.dump(results, sys.stdout, indent=1)


if __name__ == "__main__":
    asyncio.run(main())
