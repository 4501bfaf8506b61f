"""What is answered where documents disagree, over small corpora as companies write them.

    python benchmarks/answers/disagreeing.py > benchmarks/answers/disagreeing.json
    python benchmarks/answers/disagreeing.py --show     # and what failed in the sets looked at

Each corpus is a knowledge base of its own, of two to four documents. Everything runs as served, by
the defaults but for time: parsing, chunking, retrieval, reranking and the extractive generator.
Questions are about what the documents contradict each other in, about what they say alike in
other words or notations, and about what differs because it is said of another thing, time or place.
``disagreeing_sealed.toml`` and ``disagreeing_blind.toml`` are looked at as sums only.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
from measure import holds, share

from forebay.app.composition import open_answerer
from forebay.app.eval_targets import LocalTarget
from forebay.app.runtime import open_process
from forebay.app.settings import Settings
from forebay.context import language_of
from forebay.lab.evaluate.datasets import Question
from forebay.lab.evaluate.target import Said
from forebay.pipeline.folders import FolderRequest

HERE = Path(__file__).resolve().parent
SHOWN = ("development", "fresh")
PARTS = (*SHOWN, "sealed", "blind")
PATIENCE_MS = 60_000
SENTENCES_WITHIN_S = 600.0


class Asked(msgspec.Struct, frozen=True):
    """A question and what its answer holds: spellings of a value stand apart by ``|``.

    ``both``: two values, a side each. ``alike``: said by two documents. ``apart``: one value, and
    ``others``, which are said of something else.
    """

    kind: Literal["both", "alike", "apart"]
    text: str
    values: tuple[str, ...]
    others: tuple[str, ...] = ()


class Corpus(msgspec.Struct, frozen=True):
    """A few documents by name, and what is asked of them."""

    name: str
    ask: tuple[Asked, ...]
    documents: dict[str, str]

    @property
    def language(self) -> str:
        """The language of its documents, or that they are in two."""
        found = {language_of(text) for text in self.documents.values()}
        return "mixed" if len(found) > 1 else found.pop()


class Row(msgspec.Struct, frozen=True):
    """One question's end."""

    part: str
    language: str
    asked: Asked
    said: Said

    @property
    def held(self) -> int:
        """How many of its values the answer holds."""
        return sum(_holds(self.said.text, value) for value in self.asked.values)

    @property
    def beside(self) -> bool:
        """Whether a quotation without the value holds one that is said of something else."""
        value = self.asked.values[0]
        return any(
            _holds(line, other) and not _holds(line, value)
            for line in self.said.text.splitlines()
            for other in self.asked.others
        )


def corpora(part: str) -> list[Corpus]:
    """The corpora of one set."""
    with (HERE / f"disagreeing_{part}.toml").open("rb") as file:
        return msgspec.convert(tomllib.load(file)["corpus"], list[Corpus])


async def everything(folder: Path) -> list[Row]:
    """Every question of all sets with its answer."""
    replace, plain = msgspec.structs.replace, Settings()
    patient = {"vector_timeout_ms": PATIENCE_MS, "words_timeout_ms": PATIENCE_MS}
    settings = replace(
        plain,
        store=replace(plain.store, path=str(folder / "store")),
        retrieval=replace(plain.retrieval, **patient),
    )
    rows = []
    async with (
        open_process(settings, write=True) as process,
        open_answerer(process) as answerer,
    ):
        for part in PARTS:
            for number, corpus in enumerate(corpora(part)):
                kb = f"{part}-{number}"
                await _indexed(process.writing, kb, corpus, folder / kb)
                target = LocalTarget(answerer.answering, kb)
                for asked in corpus.ask:
                    language = language_of(asked.text)
                    said = await target.answer(Question(asked.text, asked.text, language))
                    rows.append(Row(part, corpus.language, asked, said))
    return rows


async def _indexed(writing: Any, kb: str, corpus: Corpus, folder: Path) -> None:
    """Bring the documents of a corpus into a knowledge base, as files, vectors included."""
    folder.mkdir()
    for name, text in corpus.documents.items():
        (folder / name).write_text(text, encoding="utf-8")
    await writing.ensure(kb)
    await writing.ingest(FolderRequest(kb=kb, path=str(folder), remove_vanished=False), _quiet)
    await writing.wait_embedded(kb)
    await writing.wait_sentences(kb, SENTENCES_WITHIN_S)


async def _quiet(_: object) -> None:
    """What becomes of each file is not told."""


def _holds(text: str, value: str) -> bool:
    # A Chinese character is no part of the word behind it.
    text = re.sub("(?<=[一-龥])(?=[A-Za-z])", " ", text)
    return any(holds(text, spelling) for spelling in value.split("|"))


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """Rates of one group of rows."""

    def of(kind: str, good: Any) -> dict[str, Any]:
        mine = [row for row in rows if row.asked.kind == kind]
        return share(sum(map(good, mine)), len(mine))

    return {
        "contradictory, both sides": of("both", lambda r: r.held == 2),
        "contradictory, one side": of("both", lambda r: r.held == 1),
        "contradictory, refused": of("both", lambda r: r.said.refused),
        "contradictory, wrong": of("both", lambda r: not r.said.refused and not r.held),
        "alike, right": of("alike", lambda r: r.held == 1),
        "alike, refused": of("alike", lambda r: r.said.refused),
        "alike, of two documents": of(
            "alike", lambda r: len({one.document_id for one in r.said.citations}) > 1
        ),
        "apart, right": of("apart", lambda r: r.held == 1 and not r.beside),
        "apart, refused": of("apart", lambda r: r.said.refused),
        "apart, a false contradiction": of("apart", lambda r: r.held == 1 and r.beside),
        "apart, wrong": of("apart", lambda r: not r.said.refused and not r.held),
    }


def show(rows: Sequence[Row]) -> None:
    """Print what went wrong in the sets that are looked at."""
    for row in rows:
        asked = row.asked
        good = row.held == len(asked.values) and not row.beside
        if row.part in SHOWN and not good:
            text = " ".join(row.said.text.split())
            print(f"{row.language} | {asked.kind} | {asked.text} | {text}", file=sys.stderr)


def main() -> None:
    """Ask, and print the result as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--show", action="store_true", help="failures to stderr")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="forebay-disagreeing-") as folder:
        rows = asyncio.run(everything(Path(folder)))
    if chosen.show:
        show(rows)
    result: dict[str, Any] = {"questions": len(rows)}
    for part in PARTS:
        mine = [row for row in rows if row.part == part]
        result[part] = {"all": summary(mine)}
        for language in ("en", "zh", "mixed"):
            result[part][language] = summary([row for row in mine if row.language == language])
    print(json.dumps(result, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
