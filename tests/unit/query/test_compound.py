"""What is looked up beside a compound question."""

from __future__ import annotations

import pytest

from forebay.query.compound import parts_of


@pytest.mark.parametrize(
    ("question", "parts"),
    [
        ("Compare the FB-200 with the FB-300 on power consumption.",
         ("the FB-200 power consumption", "the FB-300 power consumption")),
        ("What is the difference between annual leave and sick leave?",
         ("annual leave", "sick leave")),
        ("What is the difference between annual and sick leave?", ("annual leave", "sick leave")),
        ("difference between revenue in 2018 and 2019", ("revenue in 2018", "revenue in 2019")),
        ("HNSW vs IVF-PQ on memory", ("HNSW memory", "IVF-PQ memory")),
        ("Which is cheaper, renting or buying?", ("renting", "buying")),
        ("What is annual leave and how do I apply for it?",
         ("What is annual leave", "How do I apply for annual leave?")),
        ("Where is the office? Who runs it?", ("Where is the office", "Who runs the office?")),
        ("A 和 B 有什么区别", ("A", "B")),
        ("年假和病假有什么区别？", ("年假", "病假")),
        ("年假與病假有什麼區別？", ("年假", "病假")),
        ("比较 FB-200 和 FB-300 的功耗", ("FB-200 功耗", "FB-300 功耗")),
        ("从功耗上对比 FB-200 和 FB-300。", ("FB-200 功耗", "FB-300 功耗")),
        ("Kafka 和 NATS 在投递保证上有何差别？", ("Kafka 投递保证", "NATS 投递保证")),
        ("坐火车和坐班车哪个更快？", ("坐火车", "坐班车")),
        ("什么是年假，怎么申请？", ("什么是年假", "年假怎么申请？")),
    ],
)  # fmt: skip
def test_parts_of(question: str, parts: tuple[str, ...]) -> None:
    assert parts_of(question) == parts


@pytest.mark.parametrize(
    "question",
    [
        "What are the research and development expenses?",
        "How and when did the plague reach Europe?",
        "salt and pepper prices",
        "What is the difference between A and A?",
        "研究和开发费用是多少？",
        "西班牙和葡萄牙于哪年加入欧盟？",
        "如果出差超过三天，住宿标准是多少？",
        "What is the limit, and the reason for it?",
        "x and " * 200,
        "比较和" * 200,
        "",
    ],
)
def test_what_is_one_question_stays_one(question: str) -> None:
    assert parts_of(question) == ()
