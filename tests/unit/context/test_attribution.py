"""Which passages hold an answer's statements, and how many statements none holds."""

from __future__ import annotations

import pytest

from forebay.context.attribution import supporting, unsupported_share
from forebay.kernel.documents import ChunkRow, Hit

REFUND = "Refunds are paid within 14 days of the return reaching our warehouse in Leiden."
RETURNS = "商品签收之日起三十天内可以申请退货，退款在仓库收到退货后十四天内支付。"


def hit(chunk_id: int, text: str) -> Hit:
    row = ChunkRow(
        chunk_id=chunk_id,
        document_id=f"d{chunk_id}",
        ordinal=0,
        start=0,
        end=len(text),
        text=text,
        context="",
        tokens=1,
        page=None,
        heading_path=(),
        title="",
        source="",
        language="en",
        tags=(),
        groups=(),
        metadata={},
        version=1,
    )
    return Hit(row, 1.0)


@pytest.mark.parametrize(
    ("answer", "share"),
    [
        ("Refunds are paid within 14 days of the return reaching the warehouse [1].", 0.0),
        ("退款在仓库收到退货后十四天内支付。[2]", 0.0),
        (f"According to the documents:\n\n> {REFUND} [1]", 0.0),
        (f"根据文档：\n\n> {RETURNS} [2]", 0.0),
        (f"According to the documents:\n\n> - {REFUND} [1]\n> … (3 more)", 0.0),
        (f"根据文档：\n\n> - {RETURNS} [2]\n> ……（还有 3 项）", 0.0),
        ("退款在倉庫收到退貨後十四天內支付。[2]", 0.0),
        ("14 days [1].", 0.0),
        ("15 days [1].", 1.0),
        ("Shipping to Norway costs nine euros and takes a week.", 1.0),
        (f"{REFUND} Shipping to Norway costs nine euros and takes a week.", 0.5),
        ("Refunds are paid within 15 days of the return reaching the warehouse [1].", 1.0),
        ("", 1.0),
    ],
)
def test_the_share_of_statements_without_a_passage(answer: str, share: float) -> None:
    assert unsupported_share(answer, [hit(1, REFUND), hit(2, RETURNS)]) == share


def test_without_passages_nothing_is_supported() -> None:
    assert unsupported_share(REFUND, []) == 1.0


def test_a_short_statement_is_not_attributed_but_can_be_supported() -> None:
    assert supporting("14 days.", [hit(1, REFUND)]) == []
    assert supporting(REFUND, [hit(2, RETURNS), hit(1, REFUND)]) == [2]


@pytest.mark.parametrize(
    ("answer", "passage"),
    [
        ("商品签收之日起三十天内可以申请退货。", "商品簽收之日起三十天內可以申請退貨。"),
        ("商品簽收之日起三十天內可以申請退貨。", RETURNS),
    ],
)
def test_a_statement_is_attributed_across_the_scripts_of_chinese(answer: str, passage: str) -> None:
    assert supporting(answer, [hit(1, REFUND), hit(2, passage)]) == [2]
