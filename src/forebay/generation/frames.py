"""The words around a quotation, in the question's language."""

from __future__ import annotations

import re

import msgspec


class Frame(msgspec.Struct, frozen=True):
    """What an extractive answer says itself; quotes are never translated."""

    opening: str
    nearest: str
    refusal: str
    greeting: str
    pair: str
    separator: str
    more: str
    at_least: str


FRAMES = {
    "en": Frame(
        opening="According to the documents:",
        nearest="I found no plain answer in the documents. The nearest they say:",
        refusal="I could not find anything in the documents that answers this question.",
        greeting=(
            "Hello! I answer questions from the documents of this knowledge base and quote the "
            "place. What would you like to know?"
        ),
        pair="{name}: {value}",
        separator="; ",
        more="… ({count} more)",
        at_least="… (at least {count} more)",
    ),
    "zh": Frame(
        opening="根据文档：",
        nearest="在现有文档中没有找到直接的答案，最接近的内容是：",
        refusal="在现有文档中没有找到能够回答这个问题的内容。",
        greeting="您好！我根据本知识库的文档回答问题，并注明出处。请问您想了解什么？",
        pair="{name}：{value}",
        separator="；",
        more="……（还有 {count} 项）",
        at_least="……（至少还有 {count} 项）",
    ),
    "zh-Hant": Frame(
        opening="根據文件：",
        nearest="在現有文件中沒有找到直接的答案，最接近的內容是：",
        refusal="在現有文件中沒有找到能夠回答這個問題的內容。",
        greeting="您好！我根據本知識庫的文件回答問題，並註明出處。請問您想了解什麼？",
        pair="{name}：{value}",
        separator="；",
        more="……（還有 {count} 項）",
        at_least="……（至少還有 {count} 項）",
    ),
}

_GREETING = re.compile(
    r"\W*(?:hi|hello|hey|good (?:morning|afternoon|evening)|how are you|thanks?(?: you)?|"
    r"who are you|what can you do|你好|您好|早上好|下午好|晚上好|嗨|在吗|谢谢|多谢|你是谁|您是谁|"
    r"你能做什么|你会什么)(?:\s+(?:there|so much|very much|all|everyone))?[啊呀吗呢了]?\W*",
    re.IGNORECASE,
)


def frame_for(language: str) -> Frame:
    """The frame of a language; English for those that have none."""
    return FRAMES.get(language, FRAMES["en"])


def is_greeting(question: str) -> bool:
    """Whether the question is small talk and nothing else."""
    return len(question) <= 60 and _GREETING.fullmatch(question) is not None
