"""What a laboratory command says of its result, in the language asked for."""

from __future__ import annotations

import pytest

from forebay.app.delivery import Delivery
from forebay.app.output import Output


@pytest.mark.parametrize(
    ("language", "said"), [("en", "THIS RESULT IS NOT VALID: "), ("zh", "本次结果无效: ")]
)
def test_a_result_that_says_nothing_is_called_so(
    language: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Delivery(Output(as_json=True), None, None, language).not_valid(("the machine was busy",))
    told = capsys.readouterr().err
    assert said in told and "the machine was busy." in told
