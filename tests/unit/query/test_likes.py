"""Another thing in the place of its like."""

from __future__ import annotations

import pytest

from forebay.query.likes import in_place


@pytest.mark.parametrize(
    ("new", "earlier", "found"),
    [
        ("2026年", "2025年的年假有几天？", "2026年的年假有几天？"),
        ("A300", "How much does the A500 weigh?", "How much does the A300 weigh?"),
        ("line 12", "When does line 7 leave, and does line 7 return?",
         "When does line 12 leave, and does line 12 return?"),
        ("Lisbon", "When does the Berlin office open?", "When does the Lisbon office open?"),
        ("X3打印机", "X1打印机多少钱？", "X3打印机多少钱？"),
        ("套餐B", "体检套餐A多少钱？", "体检套餐B多少钱？"),
        ("二号泵", "一号泵的扬程是多少？", "二号泵的扬程是多少？"),
        ("广州", "上海办事处的负责人是谁？", "广州办事处的负责人是谁？"),
        ("联系人", "上海办事处的负责人是谁？", "上海办事处的联系人是谁？"),
        ("带状疱疹疫苗", "孕妇可以接种流感疫苗吗？", "孕妇可以接种带状疱疹疫苗吗？"),
        ("地面停车位", "地下停车位多少钱？", "地面停车位多少钱？"),
        ("养猫", "养狗要登记吗？", "养猫要登记吗？"),
        ("离职", "入职要带什么？", "离职要带什么？"),
        ("晚餐", "食堂早餐几点开始？", "食堂晚餐几点开始？"),
        ("金卡會員", "普通會員的年費是多少？", "金卡會員的年費是多少？"),
    ],
)  # fmt: skip
def test_it_takes_the_place_of_what_is_of_one_sort(new: str, earlier: str, found: str) -> None:
    assert in_place(new, earlier) == found


@pytest.mark.parametrize(
    ("new", "earlier"),
    [
        ("合同工", "年假有多少天？"),
        ("审批人", "年假的申请流程是什么？"),
        ("Lisbon", "How do I get VPN access?"),
        ("Lisbon", "Does the train from Berlin to Madrid stop?"),
        ("A300", "Does the A400 fit the A500?"),
        ("A300", "How many pumps were sold in 2024?"),
        ("contractors", "How many days of leave do employees have?"),
        ("广州", "北京和上海的办事处在哪里？"),
        ("眼科", "Who heads the clinic?"),
    ],
)
def test_where_nothing_tells_what_it_replaces_there_is_no_place(new: str, earlier: str) -> None:
    assert in_place(new, earlier) is None
