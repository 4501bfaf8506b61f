"""What a conversation is about: intent, entities, urgency, by rules in English and Chinese (F4.10).

A summary is kept for each conversation under all that was said in it, so that the next turn only
reads its own question. It steers what is prepared beforehand and is told in the log; no answer
rests on it, so a wrong label costs time at most.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from forebay.cache.hashing import add_to
from forebay.cache.memory import MemorySettings, MemoryTier, deep_bytes
from forebay.kernel.clock import Clock
from forebay.kernel.stages import Message

Intent = Literal["fact", "relation", "comparison", "faq", "chat"]
Urgency = Literal["low", "normal", "high"]

READ_CHARACTERS = 400
"""What is asked stands at the beginning; a pasted report behind it says nothing about intent."""
KEPT_CHARACTERS = 32_768
"""Longer conversations are summed up by their last question alone."""
MOST_ENTITIES = 16
MOST_ENTITY_CHARACTERS = 64
MOST_TURNS = 4
"""Earlier questions read where nothing is kept of a conversation."""

_CHAT = re.compile(
    r"(?:(?:hi|hello|hey|thanks?|thank you|ok(?:ay)?|great|cool|yes|no|bye|goodbye|good (?:morning|"
    r"afternoon|evening|night)|how are you|who are you|what(?:'s| is) your name|tell me a joke|"
    r"there|very much|so much|你好|您好|嗨|哈喽|谢谢(?:你|您)?|多谢|好的|好吧|嗯+|再见|拜拜|早上好|"
    r"晚上好|你是谁|你叫什么(?:名字)?|讲个笑话|辛苦了)[\s,.!?~，。！？～]*){1,3}",
    re.IGNORECASE,
)
_COMPARISON = re.compile(
    r"\b(?:compar\w+|differences?|differ|versus|vs|better|worse|cheaper|faster|slower|"
    r"pros and cons|rather than|more \w+ than)\b"
    r"|比较|对比|区别|差异|不同|相比|哪个(?:更|好|比)|哪种更|优缺点|还是.{0,12}(?:好|更)",
    re.IGNORECASE,
)
_RELATION = re.compile(
    r"\b(?:relat(?:ed?|es|ing|ion\w*)|depends?|dependenc\w+|reports? to|belongs? to|connected|"
    r"linked|affects?|impacts?|influences?|causes?|caused|leads? to|why|because of)\b"
    r"|关系|关联|相关|依赖|影响|导致|造成|属于|隶属|上级|下级|汇报|为什么|为何|原因",
    re.IGNORECASE,
)
_FAQ = re.compile(
    r"\bhow (?:do|can|should|could|would|to)\b|\b(?:can|may|could|should|must) (?:i|we|you)\b"
    r"|\bwhere (?:do|can) (?:i|we)\b|\bwhat (?:should|do|must) (?:i|we)\b"
    r"|\b(?:i|we) (?:need|want) to\b"
    r"|怎么|怎样|如何|能不能|能否|可不可以|可以.{0,20}[吗么]|是否可以|流程|步骤|在哪里?(?:办|申请|找)",
    re.IGNORECASE,
)
_HIGH = re.compile(
    r"\b(?:urgent(?:ly)?|asap|immediately|emergency|right (?:now|away)|at once|outage|stolen|"
    r"is down|are down|critical)\b|紧急|马上|立刻|立即|尽快|赶紧|急(?!诊|性|救|速|剧)|宕机|被盗",
    re.IGNORECASE,
)
_LOW = re.compile(
    r"\b(?:no (?:rush|hurry)|whenever|not urgent|just curious|when you have time)\b"
    r"|不(?:着)?急|不紧急|有空|随便问|顺便问",
    re.IGNORECASE,
)
_ENTITY = re.compile(
    r"《(?P<title>[^《》]{1,64})》|[“\"「](?P<quoted>[^“”\"「」]{1,64})[”\"」]"
    r"|(?P<number>(?<![A-Za-z0-9_.])(?<!\d,)[$€£¥￥]?\d[\d,.]{0,20}"
    r"(?:\s?(?:%|‰|°C|[kKMGT]?i?[bB]|[kKmM]?[gGmMWwVvAl]|"
    r"Hz|ms|s|h|USD|EUR|RMB|(?:days?|weeks?|months?|years?|hours?|minutes?|seconds?|euros?|dollars?|"
    r"yuan)\b)(?![A-Za-z0-9])|\s?(?:个)?(?:元|万元|天|周|月|年|小时|分钟|秒|次|人|岁|公里|米|克|度)))"
    r"|(?P<code>(?<![A-Za-z0-9])(?=[A-Za-z0-9._/-]*\d)(?=[A-Za-z0-9._/-]*[A-Za-z])"
    r"[A-Za-z0-9]+(?:[-._/][A-Za-z0-9]+)*|(?<![A-Za-z0-9])[A-Za-z]+(?:_[A-Za-z0-9]+)+)"
    r"|(?P<name>(?<![A-Za-z])[A-Z][A-Za-z]+(?: [A-Z][A-Za-z]+)*)"
)
_COMMON = frozenset(
    "I A An The This That These Those What Which Who Whom Whose When Where Why How Is Are Was Were "
    "Do Does Did Can Could Should Would Will May Must Please Tell Show Give Compare Explain List "
    "Find Hi Hello Hey Thanks My Our Your If In On At For From To And Or But It We You They There "
    "Urgent ASAP OK Has Have Had Need Want Let".split()
)


class SessionTierSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Summaries of conversations."""

    enabled: Annotated[
        bool, Meta(description="Sum up what is asked: intent, entities, urgency.")
    ] = True
    max_bytes: Annotated[
        int, Meta(description="Memory of the kept summaries in each process.", ge=65_536)
    ] = 4_000_000
    life_s: Annotated[
        float, Meta(description="A summary is kept so long after a turn (F4.10).", gt=0.0)
    ] = 300.0


class Summary(msgspec.Struct, frozen=True):
    """What the last question is and what the conversation is about, newest entities first."""

    intent: Intent
    entities: tuple[str, ...]
    urgency: Urgency

    def kind(self) -> str:
        """The class of the request: one of thirty."""
        about = "+" if self.entities else "-"
        return f"{self.intent}{about}{self.urgency}"


class Sessions:
    """Summaries of conversations, each kept for the next turn."""

    def __init__(self, settings: SessionTierSettings, clock: Clock) -> None:
        self._life_s = settings.life_s
        bound = MemorySettings(settings.max_bytes)
        self._kept: MemoryTier[Summary] = MemoryTier(bound, clock, _bytes_of)

    def read(self, who: str, messages: Sequence[Message]) -> Summary:
        """The summary of a conversation that ends with a question of ``who``."""
        questions = [at for at, message in enumerate(messages) if message.role == "user"]
        if not questions:
            return Summary("chat", (), "normal")
        last = questions[-1]
        own = summed_up(messages[last].content)
        if sum(len(message.content) for message in messages) > KEPT_CHARACTERS:
            return own
        said = blake2b(who.encode("utf-8", "replace"), digest_size=16)
        earlier: Summary | None = None
        if len(questions) > 1:
            _add(said, messages[: questions[-2] + 1])
            earlier = self._kept.get(said.digest())
            if earlier is None:
                earlier = _of_turns([messages[at].content for at in questions[:-1]])
            _add(said, messages[questions[-2] + 1 : last + 1])
        else:
            _add(said, messages[: last + 1])
        found = own if earlier is None else after(earlier, own)
        self._kept.put(said.digest(), found, self._life_s)
        return found

    def clear(self) -> None:
        """Forget all."""
        self._kept.clear()

    def statistics(self) -> dict[str, float]:
        """Figures of the tier; ``found``: turns whose conversation was known."""
        kept = self._kept.statistics()
        return {**kept, "found": kept["hits"], "lacking": kept["misses"]}


_bytes_of = lru_cache(maxsize=1024)(deep_bytes)


def summed_up(text: str) -> Summary:
    """One question by itself."""
    return _summed_up(text[:READ_CHARACTERS].strip())


@lru_cache(maxsize=1024)
def _summed_up(text: str) -> Summary:
    return Summary(_intent(text), _entities(text), _urgency(text))


def after(earlier: Summary, own: Summary) -> Summary:
    """A conversation after one more question: haste and what it is about go on."""
    entities = tuple(dict.fromkeys((*own.entities, *earlier.entities)))[:MOST_ENTITIES]
    urgency = earlier.urgency if own.urgency == "normal" else own.urgency
    return Summary(own.intent, entities, urgency)


def _of_turns(questions: Sequence[str]) -> Summary:
    found = summed_up(questions[-1])
    for text in questions[-2 : -MOST_TURNS - 1 : -1]:
        found = after(summed_up(text), found)
    return found


def _intent(text: str) -> Intent:
    if _CHAT.fullmatch(text):
        return "chat"
    if _COMPARISON.search(text):
        return "comparison"
    if _FAQ.search(text):
        return "faq"
    return "relation" if _RELATION.search(text) else "fact"


def _urgency(text: str) -> Urgency:
    if _LOW.search(text):
        return "low"
    return "high" if _HIGH.search(text) else "normal"


def _entities(text: str) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for match in _ENTITY.finditer(text):
        value = match[match.lastgroup or 0]
        if match.lastgroup == "name":
            words = [word for word in value.split() if word not in _COMMON]
            # A sentence begins with a capital whatever its first word is.
            if not words or (match.start() == 0 and value == words[0] and not value.isupper()):
                continue
            value = " ".join(words)
        found[value.strip()[:MOST_ENTITY_CHARACTERS]] = None
        if len(found) == MOST_ENTITIES:
            break
    return tuple(found)


def _add(said: blake2b, messages: Sequence[Message]) -> None:
    for message in messages:
        content = message.content.encode("utf-8", "surrogatepass")
        said.update(f"{message.role}{len(content)}:".encode())
        add_to(said, content)
