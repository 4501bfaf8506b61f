"""Follow-ups as questions that stand alone, by rules: what they leave out is carried over.

A question depends on the one before it when it refers to something that it does not name (it,
their, 它, 该), when it only names another case ("and for contractors?", "no, I meant the A300",
"合同工呢？"), or when it lacks what it asks about ("how long?", "需要多久？"). Then the topic of
the earlier question takes the place of what refers to it, and another case that of its like; where
no topic can be cut out safely, the earlier question is put in front. A question with a topic of its
own is left as it is: carrying too much hides what it asks.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from forebay.folding import simplified
from forebay.query.followup_en import (
    asks_in_english,
    carried_en,
    depends_en,
    named_en,
    topic_en,
)
from forebay.query.followup_zh import carried_zh, depends_zh, named_zh, topic_zh
from forebay.query.likes import in_place

MOST_TURNS = 4
"""Earlier questions that are read; what lies further back is seldom meant."""
MOST_CHARACTERS = 200
"""Longer questions say what they are about, and are no topic to put in front of others."""

_HAN = re.compile("[\u3400-\u9fff]")


def standalone(question: str, earlier: Sequence[str]) -> str:
    """The question with what it leaves out; the very same where it stands alone already.

    ``earlier`` are the user's questions before it, oldest first; only the last few are read. Takes
    microseconds; the same for the same input.
    """
    if not earlier or not (depends(question) or _may_name(question)):
        return question
    topic = ""
    for said in earlier[-MOST_TURNS:]:
        topic = _carried(said, topic)
    return _carried(question, topic)


def depends(question: str) -> bool:
    """Whether a question leaves out what it is about."""
    text = "" if len(question) > MOST_CHARACTERS else question.strip()
    if not text or "\n" in text:
        return False
    return depends_zh(simplified(text)) if _chinese(text) else depends_en(text)


def _carried(question: str, earlier: str) -> str:
    if not earlier or len(earlier) > MOST_CHARACTERS:
        return question
    if not depends(question):
        return (in_place(_may_name(question), earlier) if _may_name(question) else None) or question
    carried = carried_zh if _chinese(question) else carried_en
    return carried(question.strip(), earlier, _topic)


def _may_name(question: str) -> str:
    """What a question names and asks nothing about: another case, where its like is found."""
    text = "" if len(question) > MOST_CHARACTERS else question.strip()
    return named_zh(text) if _chinese(text) else named_en(text)


def _topic(question: str) -> str | None:
    """What a question is about, if that can be cut out of it."""
    return topic_zh(question) if _HAN.search(question) else topic_en(question)


def _chinese(text: str) -> bool:
    """Whether a question is to be read by the Chinese rules: "And of 眼科?" is not."""
    return _HAN.search(text) is not None and not asks_in_english(text)
