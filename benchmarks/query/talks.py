"""Conversations and names of several things, played through the product in one process.

Run from the repository's root: python benchmarks/query/talks.py [--words] [--show]
Each scene is a knowledge base of its own. A conversation is played turn by turn, the product's own
answers between; what is counted is its last turn. Names are asked with ``query.ambiguity = "ask"``.
``--words``: no embedder, so that words alone find. ``--show`` tells what went wrong in development
and fresh scenes; of the others nothing but sums is ever printed. Nothing is drawn by chance.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import tomllib
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

from forebay.app.composition import open_answerer
from forebay.app.runtime import open_process
from forebay.app.settings import load_settings
from forebay.kernel.clock import Deadline
from forebay.kernel.context import Principal, RequestContext
from forebay.kernel.stages import Message
from forebay.pipeline.folders import FolderRequest
from forebay.pipeline.messages import AnswerEnd, AnswerRequest

HERE = Path(__file__).resolve().parent
WAIT_S = 120.0
Told = tuple[str, AnswerEnd]


SHOWN = ("development", "fresh")
"""Parts whose failures may be looked at."""


def scenes(name: str) -> list[dict[str, Any]]:
    """The scenes of a file; one may ask of another's documents."""
    found: list[dict[str, Any]] = tomllib.loads((HERE / name).read_text("utf-8"))["scene"]
    corpora = {scene["name"]: scene["documents"] for scene in found}
    for scene in found:
        if isinstance(scene["documents"], str):
            scene["documents"] = corpora[scene["documents"]]
    return found


class Product:
    """One scene, asked in process."""

    def __init__(self, answering: Any, clock: Any) -> None:
        self._answering = answering
        self._clock = clock

    async def ask(self, messages: Sequence[Message]) -> Told:
        """The text of an answer, and its end."""
        ctx = RequestContext(
            request_id="talks",
            principal=Principal(),
            deadline=Deadline.after(WAIT_S, self._clock),
            clock=self._clock,
        )
        text, end = [], None
        request = AnswerRequest("k", tuple(messages))
        async with aclosing(self._answering.answer(ctx, request)) as events:
            async for event in events:
                if isinstance(event, AnswerEnd):
                    end = event
                else:
                    text.append(event.text)
        assert end is not None
        return "".join(text), end


@asynccontextmanager
async def product(
    documents: dict[str, str], *, words: bool, **query: Any
) -> AsyncIterator[Product]:
    """A store of the documents; slow legs are waited for, so that a busy machine finds the same."""
    slow = {"latency_ms": 0.0, "error_rate": 1.0}
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder) / "corpus"
        corpus.mkdir()
        for name, text in documents.items():
            (corpus / name).write_text(text + "\n", encoding="utf-8")
        asked: dict[str, Any] = {
            "store": {"path": str(Path(folder) / "store")},
            "query": query,
            "retrieval": {
                "vector_timeout_ms": 60_000,
                "words_timeout_ms": 60_000,
                "ladder": {"vector": slow, "words": slow},
            },
        }
        if words:
            asked["embedding"] = {"backend": "none"}
        settings, _ = load_settings(None, asked, {})
        async with open_process(settings, write=True) as process:
            writing = process.writing
            assert writing is not None
            await writing.ensure("k")
            await writing.ingest(FolderRequest("k", str(corpus)), _nothing)
            if not words:
                await writing.wait_embedded("k")
            async with open_answerer(process) as answerer:
                assert answerer is not None
                yield Product(answerer.answering, process.reading.clock)


async def _nothing(_event: object) -> None:
    pass


def places(end: AnswerEnd) -> list[str]:
    """The documents of an answer's hits, best first."""
    found = () if end.rests is None else end.rests.found.hits
    return list(dict.fromkeys(Path(hit.chunk.document_id).name for hit in found))


async def played(asked: Product, turns: Sequence[str]) -> Told:
    messages: list[Message] = []
    for turn in turns:
        messages.append(Message("user", turn))
        text, end = await asked.ask(messages)
        messages.append(Message("assistant", text))
    return text, end


def judged(case: dict[str, Any], told: Told) -> dict[str, bool]:
    """What is right about a conversation's last answer."""
    text, end = told
    found = places(end)
    question = "" if end.understood is None else end.understood.question.casefold()
    named = all(term.casefold() in question for term in case["terms"])
    beside = any(term.casefold() in question for term in case.get("without", ()))
    return {
        "alone": named and not beside,
        "top 1": bool(set(found[:1]) & set(case["documents"])),
        "top 3": bool(set(found[:3]) & set(case["documents"])),
        "answer": any(each.casefold() in text.casefold() for each in case["answer"]),
    }


def count(sums: dict[str, dict[str, list[int]]], group: str, right: dict[str, bool]) -> None:
    for what, good in right.items():
        tally = sums.setdefault(group, {}).setdefault(what, [0, 0])
        tally[0] += good
        tally[1] += 1


async def dialogues(*, words: bool, show: bool) -> dict[str, Any]:
    """Right ones of all, by part and language, and of development ones by kind."""
    sums: dict[str, dict[str, list[int]]] = {}
    for scene in scenes("dialogues.toml"):
        shown = scene["part"] in SHOWN
        async with product(scene["documents"], words=words) as asked:
            for case in scene["dialogue"]:
                told = await played(asked, case["turns"])
                right = judged(case, told)
                count(sums, f"{scene['part']}, {case['language'][:2]}", right)
                if shown:
                    count(sums, f"{scene['part']}, {case['kind']}", right)
                if show and shown and not all(right.values()):
                    question = told[1].understood.question if told[1].understood else ""
                    wrong = [what for what, good in right.items() if not good]
                    said(case["turns"], wrong, question, places(told[1])[:3], told[0])
    return sums


async def names(*, words: bool, show: bool) -> dict[str, Any]:
    """Asked back of those that should be, with the right things, and of those that should not."""
    sums: dict[str, dict[str, list[int]]] = {}
    for scene in scenes("names.toml"):
        group = f"{scene['part']}, {scene['language']}"
        seen = show and scene["part"] in SHOWN
        async with product(scene["documents"], words=words, ambiguity="ask") as asked:
            for question, meant in scene["asks"].items():
                text, end = await asked.ask((Message("user", question),))
                cited = {Path(one.document_id).name for one in end.citations}
                senses = () if end.understood is None else end.understood.senses
                right = bool(senses) and set(meant) <= cited
                count(sums, group, {"asked back": bool(senses), "of the right things": right})
                if seen and not right:
                    said("should ask", question, places(end)[:3], text)
            for question, answers in scene["answers"].items():
                text, end = await asked.ask((Message("user", question),))
                senses = () if end.understood is None else end.understood.senses
                right = answers in {Path(one.document_id).name for one in end.citations}
                count(sums, group, {"asked back needlessly": bool(senses), "answered": right})
                if seen and (senses or not right):
                    said("should answer", question, places(end)[:3], text)
    return sums


def said(*what: object) -> None:
    print(*what, sep=" | ", file=sys.stderr, flush=True)


async def measure(*, words: bool, show: bool) -> dict[str, Any]:
    return {
        "embedder": not words,
        "dialogues": await dialogues(words=words, show=show),
        "names": await names(words=words, show=show),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--words", action="store_true")
    parser.add_argument("--show", action="store_true")
    arguments = parser.parse_args()
    found = asyncio.run(measure(words=arguments.words, show=arguments.show))
    print(json.dumps(found, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
