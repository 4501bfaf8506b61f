"""Questions to tune on: with labels, or asked by the documents' own headings."""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from forebay.kernel.documents import ChunkDraft, DocumentDraft
from forebay.kernel.errors import InvalidRequest

_HEADING_CHARACTERS_MIN = 2
_MARK = re.compile(r"^[\s#*_=>\-]+|[\s#*_=:：]+$")


class Target(msgspec.Struct, frozen=True):
    """What should be found: a document, or one part of it (character offsets)."""

    document_id: str
    grade: int = 1
    start: int | None = None
    end: int | None = None

    @property
    def name(self) -> str:
        """What it is called in a ranking."""
        return self.document_id if self.start is None else f"{self.document_id}@{self.start}"


class Question(msgspec.Struct, frozen=True):
    """A question and what answers it."""

    id: str
    text: str
    targets: tuple[Target, ...]


class Place(msgspec.Struct, frozen=True):
    """Where a hit is, its document and its span there, and what it says."""

    document_id: str
    start: int
    end: int
    text: str = ""


def halves(questions: Sequence[Question]) -> tuple[tuple[Question, ...], tuple[Question, ...]]:
    """Return the half to tune on and the half held out, by CRC-32 of the text: always the same.

    A text asked twice is on one side. ``InvalidRequest`` when a half is empty.
    """
    tuning = tuple(each for each in questions if zlib.crc32(each.text.encode()) % 2 == 0)
    held_out = tuple(each for each in questions if zlib.crc32(each.text.encode()) % 2 == 1)
    if not tuning or not held_out:
        raise InvalidRequest(
            f"{len(questions)} questions are too few to tune on one half and check on the other; "
            "give at least twenty."
        )
    return tuning, held_out


def sample(questions: Sequence[Question], most: int) -> tuple[Question, ...]:
    """Return at most ``most`` questions, chosen by CRC-32 of the id: always the same."""
    if len(questions) <= most:
        return tuple(questions)
    lots = sorted(range(len(questions)), key=lambda i: (zlib.crc32(questions[i].id.encode()), i))
    return tuple(questions[i] for i in sorted(lots[:most]))


def ranking(question: Question, found: Iterable[Place]) -> list[str]:
    """Return the names of what was found, best first; a part is found by a chunk that is in it."""
    parts = [target for target in question.targets if target.start is not None]
    if not parts:
        return list(dict.fromkeys(place.document_id for place in found))
    named = []
    for place in found:
        met = [target.name for target in parts if _met(target, place)]
        named.append(met[0] if met else f"{place.document_id}#{place.start}")
    return list(dict.fromkeys(named))


def _met(target: Target, place: Place) -> bool:
    """Whether a chunk shows a part: half of the shorter of the two lies in the other."""
    if place.document_id != target.document_id or target.start is None or target.end is None:
        return False
    common = min(place.end, target.end) - max(place.start, target.start)
    return common * 2 >= min(place.end - place.start, target.end - target.start) > 0


def asked_by_headings(documents: Sequence[DocumentDraft]) -> tuple[Question, ...]:
    """Make questions of titles and headings; the part under each is what should be found.

    Documents come cut at every heading.

    A heading that stands in several places is asked with its document's title before it, and left
    out when that is not unique either. What a part's own text repeats word for word is left out:
    it would be found by itself. Index the documents as ``without_headings`` returns them, or the
    answer is in the index.
    """
    sections = [section for document in documents for section in _sections(document)]
    alone = Counter(_plain(section.heading) for section in sections)
    full = Counter(_plain(section.whole) for section in sections)
    questions: list[Question] = []
    for section in sections:
        text = section.heading
        if alone[_plain(text)] > 1:
            text = section.whole
            if full[_plain(text)] > 1:
                continue
        if len(section.heading) < _HEADING_CHARACTERS_MIN or _plain(text) in _plain(section.text):
            continue
        target = section.target
        questions.append(Question(f"{target.name}:{text}", text, (target,)))
    return tuple(questions)


class _Section(msgspec.Struct, frozen=True):
    heading: str
    whole: str
    text: str
    target: Target


def _sections(document: DocumentDraft) -> Iterable[_Section]:
    """The parts of a document by their innermost heading; a document without any is one part."""
    hidden = without_headings(document, headings(document))
    spans: dict[tuple[str, ...], tuple[int, int]] = {}
    for chunk in document.chunks:
        start, end = spans.get(chunk.heading_path, (chunk.start, chunk.end))
        spans[chunk.heading_path] = (min(start, chunk.start), max(end, chunk.end))
    for path, (start, end) in spans.items():
        heading = path[-1] if path else document.title
        text = hidden.text[start:end].strip()
        if not heading.strip() or not text:
            continue
        whole = heading if heading == document.title else f"{document.title} {heading}".strip()
        yield _Section(heading, whole, text, Target(document.document_id, 1, start, end))


def headings(document: DocumentDraft) -> frozenset[str]:
    """Return title and headings of a document that was cut at every heading, spelt plainly."""
    known = {_plain(part) for chunk in document.chunks for part in chunk.heading_path}
    return frozenset({*known, _plain(document.title)} - {""})


def without_headings(document: DocumentDraft, known: frozenset[str]) -> DocumentDraft:
    """Return a document whose title and headings are blank: offsets stay, their words are gone."""
    text = "".join(
        _blank(line) if _plain(line) in known else line
        for line in document.text.splitlines(keepends=True)
    )
    chunks = [_cut(chunk, text) for chunk in document.chunks]
    kept = [chunk for chunk in chunks if chunk.text.strip()]
    numbered = [msgspec.structs.replace(chunk, ordinal=at) for at, chunk in enumerate(kept)]
    return msgspec.structs.replace(document, title="", text=text, chunks=tuple(numbered))


def _cut(chunk: ChunkDraft, text: str) -> ChunkDraft:
    return msgspec.structs.replace(chunk, text=text[chunk.start : chunk.end], heading_path=())


def _blank(line: str) -> str:
    return "".join(character if character in "\r\n" else " " for character in line)


def _plain(text: str) -> str:
    return " ".join(_MARK.sub("", text).split()).casefold()
