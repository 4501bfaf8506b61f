"""What prepared prompts and session summaries cost and save, in microseconds.

Run from the repository's root: python benchmarks/caching/prompts.py --data ../shared/data
Prompts of five passages with and without history: built, found, and missed (key, building and
keeping). Counts of such a prompt by a ``tokenizer.json``, and found again. Summaries of the
questions of banking77 as first and as second turns. Medians of repeated calls.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tokenizers import ByteLevelBPETokenizer

from forebay.cache.prompts import PreparedPrompts, PromptTierSettings
from forebay.cache.sessions import Sessions, SessionTierSettings
from forebay.context import ContextSettings, PromptBuilder
from forebay.generation.tokenizing import LocalCounter, PoolTokens
from forebay.generation.vocabularies import of_file
from forebay.ingest import EstimatedTokenCounter
from forebay.kernel.clock import Deadline, SystemClock
from forebay.kernel.context import Principal, RequestContext
from forebay.kernel.documents import ChunkRow, Hit
from forebay.kernel.stages import Message, Sampling

REPEATS = 2000
TURN = "an earlier turn with some words in it, and more. " * 6


class Placed:
    """A place in a pool."""

    pool, replica, hedging, max_output_tokens = "pool", 0, None, 1000

    def token(self) -> None: ...

    def again(self) -> bool:
        return False


def median_us(work: Callable[[], object], repeats: int = REPEATS) -> float:
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return round(statistics.median(times) * 1e6, 1)


def hits(file: Path, characters: int) -> tuple[Hit, ...]:
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()[:5]]
    found = []
    for number, row in enumerate(rows):
        text = row["text"][:characters]
        chunk = ChunkRow(
            number, row["_id"], 0, 0, len(text), text, "", 100, None, ("Part", "Section"),
            row.get("title") or "title", "source", "en", (), (), {}, 1,
        )  # fmt: skip
        found.append(Hit(chunk, 0.5))
    return tuple(found)


def prompts(data: Path) -> dict[str, object]:
    builder = PromptBuilder(ContextSettings(), EstimatedTokenCounter(), "secret")
    clock = SystemClock()
    asked = Message("user", "how long is the notice period in the handbook?")
    roles = ("user", "assistant")
    history = tuple(Message(roles[at % 2], TURN) for at in range(6))  # type: ignore[arg-type]
    found: dict[str, object] = {}
    for language, name in (("en", "scifact_train"), ("zh", "xquad_zh")):
        passages = hits(data / "retrieval" / name / "corpus.jsonl", 1500)
        for turns, messages in (("alone", (asked,)), ("history", (*history, asked))):
            tier = PreparedPrompts(builder, "1", PromptTierSettings(), clock)
            tier.build(messages, passages, Sampling())
            number = iter(range(1_000_000_000))

            def fresh(
                tier: PreparedPrompts = tier,
                number: object = number,
                messages: tuple[Message, ...] = messages,
                passages: tuple[Hit, ...] = passages,
            ) -> object:
                text = f"{messages[-1].content} {next(number)}"  # type: ignore[call-overload]
                return tier.build((*messages[:-1], Message("user", text)), passages, Sampling())

            found[f"{language}/{turns}"] = {
                "built_us": median_us(
                    lambda m=messages, p=passages: builder.build(m, p, Sampling())
                ),
                "found_us": median_us(
                    lambda t=tier, m=messages, p=passages: t.build(m, p, Sampling())
                ),
                "missed_us": median_us(fresh),
            }
    return found


def trained(data: Path, file: Path) -> LocalCounter:
    """A byte-level tokenizer of 30,000 pieces, learned from the corpus."""
    lines = (data / "retrieval" / "scifact_train" / "corpus.jsonl").read_text("utf-8").splitlines()
    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train_from_iterator(
        (json.loads(line)["text"] for line in lines), vocab_size=30_000, show_progress=False
    )
    tokenizer.save(str(file))
    return LocalCounter(of_file(file), EstimatedTokenCounter())


async def counts(data: Path, counter: LocalCounter) -> dict[str, float]:
    clock = SystemClock()
    builder = PromptBuilder(ContextSettings(), EstimatedTokenCounter(), "secret")
    passages = hits(data / "retrieval" / "scifact_train" / "corpus.jsonl", 1500)
    prompt = builder.build((Message("user", "how long is it?"),), passages, Sampling())
    tokens = PoolTokens({"pool": counter})
    tier = PreparedPrompts(builder, "1", PromptTierSettings(), clock).counting(tokens)
    assert tier is not None
    ctx = RequestContext(
        request_id="r", principal=Principal(), deadline=Deadline.after(600.0, clock), clock=clock
    )
    ctx.placement = Placed()
    times: dict[str, list[float]] = {"counted_us": [], "found_us": []}
    await tier.prompt(ctx, prompt.messages)
    for _ in range(200):
        for name, asked in (("counted_us", tokens), ("found_us", tier)):
            began = time.perf_counter()
            await asked.prompt(ctx, prompt.messages)
            times[name].append((time.perf_counter() - began) * 1e6)
    return {
        "characters": sum(len(one.content) for one in prompt.messages),
        **{name: round(statistics.median(values), 1) for name, values in times.items()},
    }


def summaries(data: Path) -> dict[str, float]:
    sessions = Sessions(SessionTierSettings(), SystemClock())
    with (data / "queries" / "banking77_train.csv").open(encoding="utf-8", newline="") as file:
        texts = [row[0] for row in list(csv.reader(file))[1:]]
    first: list[float] = []
    second: list[float] = []
    for one, two in zip(texts[::2], texts[1::2], strict=False):
        turns = (Message("user", one), Message("assistant", TURN), Message("user", two))
        for times, messages in ((first, turns[:1]), (second, turns)):
            began = time.perf_counter()
            sessions.read("who", messages)
            times.append((time.perf_counter() - began) * 1e6)
    return {
        "first_turn_us": round(statistics.median(first), 1),
        "second_turn_us": round(statistics.median(second), 1),
        "second_turns_that_knew_the_first": round(sessions.statistics()["found"] / len(second), 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/caching/prompts.json"))
    arguments = parser.parse_args()
    result: dict[str, object] = {
        "prompts": prompts(arguments.data),
        "summaries": summaries(arguments.data),
    }
    with tempfile.TemporaryDirectory() as place:
        counter = trained(arguments.data, Path(place) / "tokenizer.json")
        result["counts"] = asyncio.run(counts(arguments.data, counter))
    print(json.dumps(result, indent=1))
    arguments.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
