"""Session summaries: rules in two languages, and a cache that never mixes conversations up."""

from __future__ import annotations

import pytest

from forebay.cache.sessions import (
    KEPT_CHARACTERS,
    MOST_ENTITIES,
    Sessions,
    SessionTierSettings,
    summed_up,
)
from forebay.kernel.clock import VirtualClock
from forebay.kernel.stages import Message


@pytest.mark.parametrize(
    ("text", "intent"),
    [
        ("What does error E21 mean?", "fact"),
        ("How long is parental leave?", "fact"),
        ("产假有多长？", "fact"),
        ("Compare plan A with plan B on price", "comparison"),
        ("What is the difference between HNSW and IVF?", "comparison"),
        ("HNSW 和 IVF 有什么区别", "comparison"),
        ("选 A 还是 B 好", "comparison"),
        ("Who does the data team report to? I mean, which service depends on billing", "relation"),
        ("为什么订单会失败", "relation"),
        ("销售部和客服部是什么关系", "relation"),
        ("How do I reset my password?", "faq"),
        ("can I return an opened item?", "faq"),
        ("怎么重置密码", "faq"),
        ("可以带家属参加吗", "faq"),
        ("hello", "chat"),
        ("Thanks, bye!", "chat"),
        ("你好！", "chat"),
        ("谢谢", "chat"),
        ("hello, how do I pay an invoice?", "faq"),
        ("", "fact"),
    ],
)
def test_intents(text: str, intent: str) -> None:
    assert summed_up(text).intent == intent


@pytest.mark.parametrize(
    ("text", "urgency"),
    [
        ("URGENT: my card was stolen", "high"),
        ("系统宕机了，马上处理", "high"),
        ("很急，怎么办", "high"),
        ("不急，有空看看", "low"),
        ("no rush, how do I pay?", "low"),
        ("not urgent", "low"),
        ("急诊报销比例是多少", "normal"),
        ("how do I pay?", "normal"),
    ],
)
def test_urgency(text: str, urgency: str) -> None:
    assert summed_up(text).urgency == urgency


@pytest.mark.parametrize(
    ("text", "entities"),
    [
        ("What does error E21 mean on the XR-200?", ("E21", "XR-200")),
        ("《员工手册》里年假是多少天", ("员工手册",)),
        ("年假是 15天吗", ("15天",)),
        ("年假是15天还是1,000元", ("15天", "1,000元")),
        ("is 30 days enough at 4.5% and 16GB", ("30 days", "4.5%", "16GB")),
        ("open “Order History” in Contoso Portal", ("Order History", "Contoso Portal")),
        ("Does Alice work for Acme?", ("Alice", "Acme")),
        ("set max_tokens to v1.2", ("max_tokens", "v1.2")),
        ("How long is it?", ()),
        ("Refunds take long", ()),
    ],
)
def test_entities(text: str, entities: tuple[str, ...]) -> None:
    assert summed_up(text).entities == entities


def test_entities_are_bounded() -> None:
    many = " ".join(f"E{number}" for number in range(100))
    assert len(summed_up(many).entities) == MOST_ENTITIES


def conversation(*texts: str) -> tuple[Message, ...]:
    roles = ("user", "assistant")
    return tuple(Message(roles[at % 2], text) for at, text in enumerate(texts))  # type: ignore[arg-type]


def sessions(clock: VirtualClock | None = None) -> Sessions:
    return Sessions(SessionTierSettings(), clock or VirtualClock())


def test_a_turn_goes_on_from_the_one_before() -> None:
    tier = sessions()
    first = tier.read("a", conversation("urgent: what does E21 mean?"))
    second = tier.read("a", conversation("urgent: what does E21 mean?", "it", "and XR-200?"))
    assert (first.intent, first.urgency) == ("fact", "high")
    assert second.entities == ("XR-200", "E21")
    assert second.urgency == "high"
    assert tier.statistics()["found"] == 1


def test_without_what_was_kept_the_turns_are_read_again() -> None:
    clock = VirtualClock()
    tier = sessions(clock)
    tier.read("a", conversation("what does E21 mean?"))
    clock.advance(301)
    later = tier.read("a", conversation("what does E21 mean?", "it", "how do I fix it?"))
    assert later.entities == ("E21",)
    assert tier.statistics()["found"] == 0


def test_conversations_are_apart_by_who_asks_and_all_that_was_said() -> None:
    tier = sessions()
    tier.read("a", conversation("what does E21 mean?"))
    tier.read("b", conversation("what does E21 mean?", "it", "and now?"))
    tier.read("a", conversation("what does E2", "1 mean?", "and now?"))
    assert tier.statistics()["found"] == 0


def test_odd_conversations_are_no_error() -> None:
    tier = sessions()
    assert tier.read("a", ()).intent == "chat"
    assert tier.read("a", (Message("system", "x"),)).intent == "chat"
    assert tier.read("\ud800", conversation("\ud800?")).intent == "fact"
    long = conversation("x" * (KEPT_CHARACTERS + 1))
    assert tier.read("a", long) == tier.read("a", long)
    assert tier.statistics()["entries"] <= 1


def test_kinds_are_few() -> None:
    assert summed_up("urgent: what does E21 mean?").kind() == "fact+high"
    assert summed_up("hello").kind() == "chat-normal"
