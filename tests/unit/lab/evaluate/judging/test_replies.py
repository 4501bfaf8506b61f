"""The JSON of a model is found whatever it says around it."""

from __future__ import annotations

import msgspec
import pytest

from forebay.lab.evaluate.judging.replies import MalformedReply, read_reply


class Order(msgspec.Struct):
    order: list[int]


@pytest.mark.parametrize(
    "text",
    [
        '{"order": [2, 1]}',
        'Sure!\n```json\n{"order": [2, 1]}\n```\nThat is all.',
        '<think>maybe {"order": [1, 2]}</think>{"order": [2, 1]}',
        '{oops {"mind": "made up"} 好的：{"order": ["2", "1"]} {"order": [9]}',
    ],
)
def test_what_was_asked_for_is_found(text: str) -> None:
    assert read_reply(text, Order).order == [2, 1]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "no JSON object"),
        ("I would rather not.", "no JSON object"),
        ("<think>so", "no JSON object"),
        ('{"order": "first"}', r"\$.order"),
        ('{"ranking": [1]}', "order"),
        ("{" * 200_000, "no JSON object"),
        ('{"order":' + "[" * 100_000, "no JSON object"),
        ('{"order": [1e999]}', "cannot be read"),
    ],
)
def test_what_is_none_is_said_to_be_none(text: str, told: str) -> None:
    with pytest.raises(MalformedReply, match=told):
        read_reply(text, Order)
