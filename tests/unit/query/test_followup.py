"""Follow-ups as questions that stand alone."""

from __future__ import annotations

import pytest

from forebay.query.followup import depends, standalone


@pytest.mark.parametrize(
    ("earlier", "question", "alone"),
    [
        ("What is the parental leave policy?", "How long is it?",
         "How long is the parental leave policy?"),
        ("When was the FB-200 released?", "What is its maximum pressure?",
         "What is the FB-200's maximum pressure?"),
        ("Who wrote the safety manual?", "When was it published?",
         "When was the safety manual published?"),
        ("How many days are there for full-time employees?", "And for contractors?",
         "How many days are there for contractors?"),
        ("What was the revenue in 2022?", "And in 2023?", "What was the revenue in 2023?"),
        ("What is the fee for guests?", "What about members?", "What is the fee for members?"),
        ("What is the warranty of pumps?", "And valves?", "What is the warranty of valves?"),
        ("How many days of annual leave are there?", "And sick leave?",
         "How many days of sick leave are there?"),
        ("How many days of leave do employees have?", "And contractors?",
         "How many days of leave do employees have? What about contractors?"),
        ("What is the deductible of the basic insurance?", "And the premium insurance?",
         "What is the deductible of the premium insurance?"),
        ("What is the deadline of the report?", "And the author?",
         "What is the deadline of the report? What about the author?"),
        ("What is the melting point of the alloy?", "What about its density?",
         "What is the melting point of the alloy? What about its density?"),
        ("What is the speed limit?", "Why?", "What is the speed limit? Why?"),
        ("Which forms do visitors sign?", "How long does that take?",
         "Which forms do visitors sign? How long does that take?"),
        ("年假有多少天？", "可以结转吗？", "年假可以结转吗？"),
        ("年假有幾天？", "可以結轉嗎？", "年假可以結轉嗎？"),
        ("年假有多少天？", "那病假呢？", "病假有多少天？"),
        ("年假有多少天？", "那合同工呢？", "年假有多少天？合同工呢？"),
        ("年假有多少天？", "那病假呢？可以结转吗？", "病假可以结转吗？"),
        ("How many days of leave are there?", "And sick leave? Can it be carried over?",
         "Can sick leave be carried over?"),
        ("Who heads the Lisbon office?", "How many visitors park there?",
         "How many visitors park at the Lisbon office?"),
        ("When does the Lisbon office open?", "And in Berlin?",
         "When does the Berlin office open?"),
        ("How many people work in Berlin?", "How many in Lisbon?",
         "How many people work in Lisbon?"),
        ("Are dogs allowed in the park?", "And at the lake?", "Are dogs allowed at the lake?"),
        ("How much does the A500 weigh?", "No, I meant the A300",
         "How much does the A300 weigh?"),
        ("Where do guests of the Berlin office park?", "Sorry, Lisbon I mean.",
         "Where do guests of the Lisbon office park?"),
        ("How long is the A500 hose?", "The A300, I mean.", "How long is the A300 hose?"),
        ("When does the gym close?", "I was asking about the spa.", "When does the spa close?"),
        ("How long does the Meridian take?", "Oops, wrong ferry. I mean the Aurora.",
         "How long does the Aurora take?"),
        ("What does a single room cost?", "No, not the single room, the suite.",
         "What does a suite cost?"),
        ("How much is the ticket for the Aurora?", "Meridian?",
         "How much is the ticket for the Meridian?"),
        ("Is a cot available in the suite?", "Same question for the attic.",
         "Is a cot available in the suite? What about the attic?"),
        ("Tell me about the ferry Aurora.", "Can I take my car on it?",
         "Can I take my car on the ferry Aurora?"),
        ("How much is a massage?", "Where do I book one?", "Where do I book a massage?"),
        ("How much is a locker?", "How do I get a new one?", "How do I get a new locker?"),
        ("Does the hotel have a garage?", "How high is it?", "How high is a garage?"),
        ("Who approves travel expenses?", "How long does it take?",
         "How long does travel expenses take?"),
        ("How can visitors reach the lab?", "Is it far?", "Is the lab far?"),
        ("When does the course for children begin?", "How much does it cost?",
         "How much does the course for children cost?"),
        ("How do I cancel a booking?", "How many days before arrival?",
         "How do I cancel a booking? How many days before arrival?"),
        ("健身房几点关门？", "搞错了，我想问游泳馆", "游泳馆几点关门？"),
        ("地下停车位多少钱？", "不是地下的，是地面停车位", "地面停车位多少钱？"),
        ("健身房月卡多少钱？", "年卡？", "健身房年卡多少钱？"),
        ("游泳馆什么时候开放？", "那边水有多深？", "游泳馆水有多深？"),
        ("访客停车怎么收费？", "有免费时间吗？", "访客停车有免费时间吗？"),
        ("装修几点可以开始？", "周末可以吗？", "装修周末可以吗？"),
        ("X3打印机有多重？", "不对，我是说X1", "X1打印机有多重？"),
        ("北京辦事處幾點開門？", "說錯了，是上海", "上海辦事處幾點開門？"),
        ("How long is sick leave?", "When do I need a certificate for it?",
         "When do I need a certificate for sick leave?"),
        ("What is the price of the A300?", "How heavy is it?", "How heavy is the A300?"),
        ("What is the price of the A300?", "How high is it?",
         "How high is the price of the A300?"),
        ("X3打印机的保修期是多长？", "How heavy is it?", "How heavy is X3打印机?"),
        ("X3打印机的保修期是多长？", "它有多重？", "X3打印机有多重？"),
        ("儿科主任是谁？", "And of 眼科?", "眼科主任是谁？"),
        ("When does the Lisbon office open?", "那 Berlin 呢？",
         "When does the Berlin office open?"),
        ("What is paid for hotels?", "Up to how many euros?",
         "What is paid for hotels? Up to how many euros?"),
        ("How do I get a card?", "Great, thanks. And for guests?",
         "How do I get a card for guests?"),
        ("病假最长多久？", "需要医院证明吗？", "病假需要医院证明吗？"),
        ("产假有多少天？", "期间有工资吗？", "产假期间有工资吗？"),
        ("门禁卡在哪里领？", "丢了要交钱吗？", "门禁卡丢了要交钱吗？"),
        ("停车怎么收费？", "每小时多少钱？", "停车每小时多少钱？"),
        ("北京办事处有多少人？", "上海有多少？", "上海办事处有多少人？"),
        ("2025年的年假有几天？", "2026年呢？", "2026年的年假有几天？"),
        ("怎么重置密码？", "它需要多久？", "重置密码需要多久？"),
        ("FB-2041 的额定压力是多少？", "它的重量呢？", "FB-2041的重量呢？"),
        ("报销流程是什么？", "该流程需要谁审批？", "报销流程需要谁审批？"),
        ("云北的总部在哪里？", "那里有多少员工？", "云北的总部有多少员工？"),
        ("VPN 怎么连？", "连不上怎么办？", "VPN 连不上怎么办？"),
        ("谁可以申领 iPad？", "审批需要多久？", "申领 iPad 审批需要多久？"),
        ("What is the VPN address?", "怎么连接？", "VPN address 怎么连接？"),
    ],
)  # fmt: skip
def test_what_is_left_out_is_carried_over(earlier: str, question: str, alone: str) -> None:
    assert standalone(question, [earlier]) == alone


@pytest.mark.parametrize(
    "question",
    [
        "What time does the canteen open?",
        "Is it possible to get a refund after thirty days?",
        "What happens if a customer cancels their order?",
        "How long does it take to replace a bearing?",
        "What is the form that visitors sign?",
        "食堂几点开门？",
        "什么时候发工资？",
        "员工离职后他的账号怎么处理？",
        "其他假期有几天？",
        "这个月的排班在哪里？",
        "怎么申请新电脑？",
        "需要报备才能远程办公吗？",
        "X1有多少？",
        "周五可以在家办公吗？",
        "儿童乐园？",
        "Thermostats?",
        "The director has a badge. Does the deputy have one?",
        "What does a doctor of the clinic say about it?",
        "When did the ministry say it would reply?",
        "Where is there a printer?",
        "No parking on the lawn, please",
        "Thanks a lot",
        "And then?",
        "And can contractors park here?",
        "And explain pumps?",
        "And one more question about sick leave of contractors?",
        "",
    ],
)
def test_a_question_with_a_topic_of_its_own_is_left_alone(question: str) -> None:
    assert standalone(question, ["What is the notice period?"]) == question
    assert standalone(question, ["通知期有多长？"]) == question


def test_the_topic_goes_on_over_several_turns() -> None:
    turns = ["年假有多少天？", "可以结转吗？", "最多几天？"]
    assert standalone("怎么申请？", turns) == "年假怎么申请？"
    english = ["What is the notice period?", "How long is it?", "Why?"]
    assert "notice period" in standalone("Is it paid?", english)


def test_a_first_question_is_what_it_is() -> None:
    assert standalone("How long is it?", []) == "How long is it?"


def test_long_texts_depend_on_nothing_and_are_carried_nowhere() -> None:
    report = "The gate is open. " * 50
    assert not depends(report + "How long is it?")
    assert standalone("How long is it?", [report]) == "How long is it?"
    assert not depends("How long\nis it?")


def test_the_same_every_time() -> None:
    asked = ("它需要多久？", ["怎么重置密码？"])
    assert len({standalone(*asked) for _ in range(5)}) == 1
