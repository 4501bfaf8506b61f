"""What a judge is asked for says exactly what can be read: shape, counts and bounds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from forebay.lab.evaluate.judging.forms import check_form, order_form, score_form


def objects(schema: Any) -> Iterator[dict[str, Any]]:
    if isinstance(schema, dict):
        if schema.get("type") == "object":
            yield schema
        for part in schema.values():
            yield from objects(part)


@pytest.mark.parametrize("form", [order_form(5), score_form(5), check_form(5)])
def test_forms_keep_what_strict_endpoints_demand(form: Any) -> None:
    told = form.response_format()["json_schema"]
    assert told["name"] == form.name and told["strict"] is True
    for one in objects(json.loads(json.dumps(told["schema"]))):
        assert one["additionalProperties"] is False
        assert one["required"] == list(one["properties"])


def test_an_order_has_as_many_places_as_there_are_passages() -> None:
    order = order_form(3).schema["properties"]["order"]
    assert order["minItems"] == order["maxItems"] == 3
    assert order["items"]["enum"] == [1, 2, 3]


def test_every_passage_is_scored_once_between_0_and_10() -> None:
    scores = score_form(3).schema["properties"]["scores"]["properties"]
    relevance = check_form(3).schema["properties"]["relevance"]["properties"]
    assert list(scores) == list(relevance) == ["1", "2", "3"]
    for points in (*scores["2"]["properties"].values(), relevance["2"]):
        assert points == {"type": "integer", "minimum": 0, "maximum": 10}
