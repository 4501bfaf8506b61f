"""What is said instead of an answer, in the language of the question."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from forebay.folding import simplified
from forebay.kernel.stages import QueryLanguage, Sense


class Replies(msgspec.Struct, frozen=True):
    """Fixed sentences of one language; ``which`` begins every question that is asked back."""

    greeting: str
    thanks: str
    farewell: str
    out_of_scope: str
    which: str


ENGLISH = Replies(
    greeting="Hello! I answer questions from the documents of this knowledge base and quote the "
    "place. What would you like to know?",
    thanks="You are welcome. Is there anything else you would like to know from the documents?",
    farewell="Goodbye! Come back whenever you have a question about the documents.",
    out_of_scope="I can only answer from the documents of this knowledge base, and they do not "
    "cover this.",
    which="This may mean several things in the documents. Which one do you mean?",
)
SIMPLIFIED = Replies(
    greeting="您好！我根据本知识库的文档回答问题，并注明出处。请问您想了解什么？",
    thanks="不客气。还想从文档里了解什么，请直接提问。",
    farewell="再见！有关于文档的问题，欢迎随时再来。",
    out_of_scope="我只能根据本知识库的文档回答，文档中没有这方面的内容。",
    which="这个问题在文档中可能有几种意思，请问您指的是哪一个？",
)
TRADITIONAL = Replies(
    greeting="您好！我根據本知識庫的文件回答問題，並註明出處。請問您想了解什麼？",
    thanks="不客氣。還想從文件裡了解什麼，請直接提問。",
    farewell="再見！有關於文件的問題，歡迎隨時再來。",
    out_of_scope="我只能根據本知識庫的文件回答，文件中沒有這方面的內容。",
    which="這個問題在文件中可能有幾種意思，請問您指的是哪一個？",
)
_ALL = (ENGLISH, SIMPLIFIED, TRADITIONAL)
_THANKS = re.compile(r"thank|thx|cheers|谢|多谢|辛苦", re.IGNORECASE)
_FAREWELL = re.compile(
    r"bye|see you|have a (?:nice|good|great)|再见|拜拜|回见|明天见|回头见|晚安", re.IGNORECASE
)
_HAN = re.compile("[\u3400-\u9fff]")


def replies_in(language: QueryLanguage, text: str) -> Replies:
    """The sentences for a question; English where nothing nearer is spoken."""
    if language == "mixed":
        return SIMPLIFIED if _HAN.search(text) else ENGLISH
    return {"zh": SIMPLIFIED, "zh-Hant": TRADITIONAL}.get(language, ENGLISH)


def chat_reply(language: QueryLanguage, text: str) -> str:
    """What is said to a greeting, a thank-you or a farewell."""
    replies, plain = replies_in(language, text), simplified(text)
    if _FAREWELL.search(plain):
        return replies.farewell
    return replies.thanks if _THANKS.search(plain) else replies.greeting


def ask_back(language: QueryLanguage, text: str, senses: Sequence[Sense]) -> str:
    """The question which of the senses is meant, each with a citation of its best hit."""
    lines = [f"- {sense.name} [{number}]" for number, sense in enumerate(senses, 1)]
    return "\n".join((replies_in(language, text).which, *lines))


def asked_back(answer: str) -> bool:
    """Whether an earlier answer asked which sense was meant."""
    return answer.startswith(tuple(each.which for each in _ALL))
