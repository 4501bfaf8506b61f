"""Notes on the parts of a long text: what is said for them, and what is told of those missing."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from forebay.kernel.documents import ChunkRow, Hit
from forebay.pipeline.messages import Citation, Usage

SOURCE = "request"
"""What citations of the text in the request name as their document and source."""
_CITED_CHARACTERS = 1000


class Words(msgspec.Struct, frozen=True):
    """What is said to the engine and to the reader in one language."""

    whole: str
    part: str
    merge: str
    title: str
    missing: str


WORDS = {
    False: Words(
        whole="Summarise the main points of the text.",
        part="{asked}\n\n(Passage [1] is part {number} of {count} of one text; the other parts are "
        "read separately. Answer from it as far as it goes. If it holds nothing that answers, "
        "write only: NONE)",
        merge="{asked}\n\n(Passages [1] to [{count}] are notes on the parts of one text, in its "
        "order. Merge them into one answer and say nothing twice.)",
        title="Your text, part {number} of {count}",
        missing="(Not in this answer: part {parts} of {count} of the text, which could not be "
        "read just now.)",
    ),
    True: Words(
        whole="概括这段文字的要点。",
        part="{asked}\n\n（资料 [1] 是一篇长文的第 {number} 部分，共 {count} 部分，"
        "其余部分另行阅读。只就这一部分回答；如果其中没有相关内容，只写：无）",
        merge="{asked}\n\n（资料 [1] 到 [{count}] 是同一篇长文各部分的笔记，按原文顺序排列。"
        "把它们合并成一个回答，不要重复。）",
        title="所给文本，第 {number} 部分（共 {count} 部分）",
        missing="（本回答不含原文第 {parts} 部分（共 {count} 部分），该部分暂时未能读取。）",
    ),
}


class Note(msgspec.Struct, frozen=True):
    """The answer from one part: [1] cites the part, [n] the knowledge base's hit n - 1."""

    text: str
    usage: Usage
    invalid: int
    cut: bool
    model: str = ""


Notes = Sequence[Note | None]
"""One for each part, in order; None: that part could not be answered, or not in time."""


def told(notes: Notes, note_tokens: int) -> str:
    """Why an answer from parts is less than one from the whole."""
    said = f"the text is longer than the engines take and was answered in {len(notes)} parts"
    cut = sum(note.cut for note in notes if note is not None)
    if cut:
        said += f", {cut} of them cut at {note_tokens} tokens"
    missing = missing_of(notes)
    return f"{said}, without part {', '.join(missing)}" if missing else said


def missing_of(notes: Notes) -> tuple[str, ...]:
    """The numbers of the parts that are not in the answer, from 1."""
    return tuple(str(number) for number, note in enumerate(notes, 1) if note is None)


def left_out(notes: Notes, words: Words) -> str:
    """A sentence for the reader on what is missing; empty where nothing is."""
    missing = ", ".join(missing_of(notes))
    return "\n\n" + words.missing.format(parts=missing, count=len(notes)) if missing else ""


def one_after_the_other(shown: Sequence[Hit]) -> str:
    """The notes as an answer, where nobody merges them."""
    return "\n\n".join(hit.chunk.text.strip() for hit in shown)


def part_of(text: str, start: int, words: Words, number: int, count: int) -> Hit:
    """A part of the text as a passage; its offsets are those in the message."""
    row = ChunkRow(
        chunk_id=number,
        document_id=SOURCE,
        ordinal=number - 1,
        start=start,
        end=start + len(text),
        text=text,
        context="",
        tokens=0,
        page=None,
        heading_path=(),
        title=words.title.format(number=number, count=count),
        source=SOURCE,
        language="",
        tags=(),
        groups=(),
        metadata={},
        version=0,
    )
    return Hit(chunk=row, score=1.0)


def shortened_to(text: str, tokens: int, count: Callable[[Sequence[str]], int]) -> str:
    """The beginning of a note that holds no more than it may."""
    while (has := count([text])) > tokens and len(text) > 1:
        text = text[: max(1, min(len(text) - 1, len(text) * tokens // has))]
    return text


def shortened(citation: Citation) -> Citation:
    """The caller's own text need not be sent back in full: the offsets say where it is."""
    if citation.source != SOURCE or len(citation.text) <= _CITED_CHARACTERS:
        return citation
    return msgspec.structs.replace(citation, text=citation.text[:_CITED_CHARACTERS] + "…")
