"""Small knowledge bases through the whole product: near misses, answers, and rows for all the rest.

    python benchmarks/answers/documents.py > benchmarks/answers/documents.json
    python benchmarks/answers/documents.py --show        # the development half's failures, too

The documents of each corpus in ``documents-development.toml`` and ``documents-sealed.toml`` are
ingested into a knowledge base of their own, parsed, cut and embedded as everywhere, and every
question goes through the answering life with the defaults but for time. Only sums of the sealed
half are printed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from measure import holds, share

from forebay.app.candidates import patient
from forebay.app.composition import open_answerer
from forebay.app.eval_targets import LocalTarget
from forebay.app.operations import load
from forebay.app.runtime import open_process
from forebay.lab.evaluate.datasets import Question
from forebay.pipeline.folders import FolderRequest

HERE = Path(__file__).resolve().parent
PARTS = ("development", "sealed")
SENTENCES_WITHIN_S = 600.0


class Asked(msgspec.Struct, frozen=True):
    """A question of a corpus, what came of it, and whether that is right."""

    part: str
    language: str
    corpus: str
    kind: str
    question: str
    values: tuple[str, ...]
    refused: bool
    unsure: bool
    text: str

    @property
    def held(self) -> bool:
        """Whether a value that is right stands in the quotation."""
        return any(holds(self.text, value) for value in self.values)


def corpora(part: str) -> list[dict[str, Any]]:
    """The corpora of one part."""
    with (HERE / f"documents-{part}.toml").open("rb") as file:
        found: list[dict[str, Any]] = tomllib.load(file)["corpus"]
    return found


async def everything(parts: Sequence[str] = PARTS) -> list[Asked]:
    """Ingest every corpus and put its questions."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        settings = load(None, {})
        store = msgspec.structs.replace(settings.store, path=folder)
        settings = patient(msgspec.structs.replace(settings, store=store))
        async with (
            open_process(settings, write=True) as process,
            open_answerer(process) as answerer,
        ):
            writing = process.writing
            if writing is None:
                raise SystemExit("the store cannot be written")
            for part in parts:
                for number, corpus in enumerate(corpora(part)):
                    kb = f"{part}-{number}"
                    place = Path(folder, "documents", kb)
                    place.mkdir(parents=True)
                    for one in corpus["document"]:
                        (place / one["name"]).write_text(one["text"].lstrip(), encoding="utf-8")
                    await writing.ensure(kb)
                    request = FolderRequest(kb=kb, path=str(place), remove_vanished=False)
                    await writing.ingest(request, quiet)
                    await writing.wait_embedded(kb)
                    await writing.wait_sentences(kb, SENTENCES_WITHIN_S)
                    target = LocalTarget(answerer.answering, kb)
                    rows += [await _ask(target, part, corpus, one) for one in corpus["ask"]]
                print(f"asked {part}", file=sys.stderr)
    return rows


async def quiet(_: object) -> None:
    """What becomes of each file is not told."""


async def _ask(target: LocalTarget, part: str, corpus: dict[str, Any], one: list[Any]) -> Asked:
    kind, text, *values = one
    said = await target.answer(Question("", text, corpus["language"]))
    found = tuple(values[0]) if values else ()
    name, language = corpus["name"], corpus["language"]
    return Asked(part, language, name, kind, text, found, said.refused, said.unsure, said.text)


def summary(rows: Sequence[Asked]) -> dict[str, Any]:
    """Rates of one group of rows."""

    def of(kind: str, good: Any) -> dict[str, Any]:
        mine = [row for row in rows if row.kind.startswith(kind)]
        return share(sum(map(good, mine)), len(mine))

    return {
        "near miss, answered": of("near miss", lambda r: not r.refused),
        "near miss, told as the nearest": of("near miss", lambda r: r.unsure),
        "near miss of a thing, answered": of("near miss: thing", lambda r: not r.refused),
        "near miss of a fact, answered": of("near miss: fact", lambda r: not r.refused),
        "answerable, right": of("answerable", lambda r: r.held),
        "answerable, right, told as the nearest": of("answerable", lambda r: r.held and r.unsure),
        "answerable, refused": of("answerable", lambda r: r.refused),
        "reworded, right": of("reworded", lambda r: r.held),
        "reworded, right, told as the nearest": of("reworded", lambda r: r.held and r.unsure),
        "reworded, refused": of("reworded", lambda r: r.refused),
        "catch-all, right": of("catch-all", lambda r: r.held),
        "catch-all, refused": of("catch-all", lambda r: r.refused),
    }


def table(rows: Sequence[Asked]) -> dict[str, Any]:
    """Rates by part and language."""
    found = {}
    for part in PARTS:
        mine = [row for row in rows if row.part == part]
        found[part] = {
            "all": summary(mine),
            **{lang: summary([r for r in mine if r.language == lang]) for lang in ("en", "zh")},
        }
    return found


def main() -> None:
    """Ask, and print the result as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--show", action="store_true", help="development failures to stderr")
    chosen = parser.parse_args()
    rows = asyncio.run(everything())
    for row in rows:
        good = row.refused if row.kind.startswith("near miss") else row.held
        if chosen.show and row.part == PARTS[0] and not good:
            text = " ".join(row.text.split())
            print(f"{row.corpus} | {row.kind} | {row.question} | {text}", file=sys.stderr)
    print(json.dumps({"questions": len(rows), **table(rows)}, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
