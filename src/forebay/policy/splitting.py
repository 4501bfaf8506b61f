"""A text that no window holds: what is asked of it, and how many tokens a part of it may have.

Numbers and texts in, numbers and spans out; the pipeline cuts, asks and merges (F1.6).
"""

from __future__ import annotations

import re
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from forebay.kernel.errors import ContextTooLong

LEAST_PART_TOKENS = 128
"""Smaller parts say too little to be answered from."""
MARGIN = 0.95
"""Of the room: a passage's label and a counter that errs a little must fit, too."""
_TASK_CHARACTERS = 600
_ASKS = re.compile(
    r"(?:please|summari[sz]e|explain|list|translate|compare|describe|find|tell|give|extract|review|"
    r"what|which|who|whose|when|where|why|how|is|are|does|do|did|can|should)\b"
    r"|请|总结|概括|归纳|列出|说明|解释|翻译|比较|对比|分析|提取|找出|根据",
    re.IGNORECASE,
)
# Chinese asks in the middle of a sentence, too, and often without a mark.
_ASKS_WITHIN = re.compile(
    "什么|哪|谁|为何|为什么|怎么|怎样|如何|是否|多少|多久|几[个次天年月条]|吗"
)
_ASKS_WITHIN_CHARACTERS = 60
_PARAGRAPHS = re.compile(r"\n[ \t\u3000]*\n\s*")
_HAN = re.compile(r"[\u3400-\u9fff]")


class SplittingSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a text that is longer than every window is answered."""

    enabled: Annotated[
        bool,
        Meta(
            description="Whether a text longer than every window is answered in parts; off: it is "
            "refused with 400."
        ),
    ] = True
    max_parts: Annotated[
        int, Meta(description="Parts of one text at most; what takes more is refused.", ge=2, le=32)
    ] = 8
    overlap_tokens: Annotated[
        int, Meta(description="Tokens of a part repeated in the next, inside a section.", ge=0)
    ] = 64
    note_tokens: Annotated[
        int, Meta(description="Longest answer from one part, in tokens.", ge=32)
    ] = 256
    at_once: Annotated[int, Meta(description="Parts of one text in work at once.", ge=1, le=32)] = 2


class Task(NamedTuple):
    """What is asked, and where the text stands; ``asked`` is empty for a text alone."""

    asked: str
    start: int
    end: int


def task_of(message: str) -> Task:
    """Part a question from the text it is about: it stands above or below, in its own paragraph.

    Where both ends could be it, the one that asks more plainly, else the one below.
    """
    gaps = list(_PARAGRAPHS.finditer(message.rstrip()))
    if not gaps:
        gaps = list(re.finditer(r"\n+", message.rstrip()))
    if not gaps:
        return Task("", 0, len(message))
    above, below = message[: gaps[0].start()].strip(), message[gaps[-1].end() :].strip()
    asks_above, asks_below = _asks(above), _asks(below)
    if asks_below and asks_below >= asks_above:
        return Task(below, 0, gaps[-1].start())
    if asks_above:
        return Task(above, gaps[0].end(), len(message))
    return Task("", 0, len(message))


def is_chinese(text: str) -> bool:
    """Whether to speak Chinese of it: its beginning has as many Han characters as Latin words."""
    head = text[:2000]
    han = len(_HAN.findall(head))
    return han > 0 and han >= len(re.findall(r"[A-Za-z]{2,}", head))


class PartSizes(NamedTuple):
    """Tokens of a part of the text, and of the answer from it."""

    text_tokens: int
    note_tokens: int


def part_sizes(
    settings: SplittingSettings, *, room: int, asked_tokens: int, text_tokens: int
) -> PartSizes:
    """Sizes such that every part fits ``room`` beside the question, and all notes together do.

    A quarter of the room is left to passages of the knowledge base. ``ContextTooLong`` where the
    question leaves none, or the text takes more than ``max_parts``.
    """
    free = int(MARGIN * (room - asked_tokens))
    part = free - room // 4
    if part < LEAST_PART_TOKENS:
        raise ContextTooLong(
            "The question leaves no room for the text it is about; shorten the question.",
            param="messages",
        )
    if text_tokens > settings.max_parts * part:
        raise too_many_parts(settings, text_tokens, -(-text_tokens // part))
    return PartSizes(part, max(1, min(settings.note_tokens, part // settings.max_parts)))


def too_many_parts(settings: SplittingSettings, tokens: int, parts: int) -> ContextTooLong:
    """The error for a text that takes more parts than are allowed."""
    return ContextTooLong(
        f"The text has about {tokens} tokens: longer than the engines take, and to be answered in "
        f"{parts} parts, of which at most {settings.max_parts} are (generation.splitting). Shorten "
        "it, or put it into a knowledge base.",
        param="messages",
    )


def _asks(paragraph: str) -> int:
    """How plainly it asks: 0 not at all."""
    if not paragraph or len(paragraph) > _TASK_CHARACTERS:
        return 0
    if paragraph.endswith(("?", "？")):
        return 3
    if _ASKS.match(paragraph):
        return 2
    if len(paragraph) <= _ASKS_WITHIN_CHARACTERS and _ASKS_WITHIN.search(paragraph):
        return 2
    return int("?" in paragraph or "？" in paragraph or paragraph.endswith((":", "：")))
