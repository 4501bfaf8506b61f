"""Of a long text the pieces are read that a question's words point to."""

from __future__ import annotations

import pytest

from forebay.generation.nearest import nearest

ENGLISH = ["Other things.", "The gate is green.", "The gate weighs 45 tonnes.", "A gate opens."]
CHINESE = ["别的事情。", "闸门是绿色的。", "闸门重四十五吨。", "打开闸门。"]


@pytest.mark.parametrize(
    ("question", "texts"),
    [("How much does the gate weigh?", ENGLISH), ("闸门重四十五吨是真的吗？", CHINESE)],
)
def test_the_rarer_word_decides(question: str, texts: list[str]) -> None:
    found = nearest(question, texts, 3)
    assert next(at for at, _ in found) == 2
    assert {at for at, _ in found} == {1, 2, 3}
    shares = [share for _, share in found]
    assert shares == sorted(shares, reverse=True) and shares[-1] > 0.0 and shares[0] <= 1.0


def test_no_more_than_wanted_and_nothing_without_a_word() -> None:
    assert len(nearest("gate", ENGLISH, 2)) == 2
    assert nearest("Wozu?", ENGLISH, 3) == nearest("", ENGLISH, 3) == nearest("gate", [], 3) == []
