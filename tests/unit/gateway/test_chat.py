"""Chat completions that are refused because silence would mislead."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.gateway.client import client
from tests.unit.gateway.fakes import World

CHAT = "/v1/chat/completions"
ASK = {"model": "x", "messages": [{"role": "user", "content": "how many days?"}]}


@pytest.mark.parametrize(
    ("extra", "param"),
    [
        ({"n": 2}, "n"),
        ({"logprobs": True}, "logprobs"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": {"type": "function"}}, "tool_choice"),
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        ({"response_format": {}}, "response_format.type"),
        ({"response_format": {"type": ["text"]}}, "response_format.type"),
        ({"messages": []}, "messages"),
        ({"temperature": 9}, "temperature"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            "messages[0].content",
        ),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": "  "}]}, "query"),
    ],
)
async def test_what_cannot_be_honoured_is_400(extra: dict[str, Any], param: str) -> None:
    async with client(World()) as http:
        response = await http.post(CHAT, json=ASK | extra)
    assert response.status_code == 400
    assert response.json()["error"]["type"] == "invalid_request_error"
    assert response.json()["error"]["param"] == param


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("form", ["text", "json_object", "json_schema", "structural_tag"])
async def test_a_form_needs_an_engine(form: str, stream: bool) -> None:
    body = ASK | {"response_format": {"type": form}, "stream": stream}
    async with client(World()) as http:
        assert (await http.post(CHAT, json=body)).status_code == 200
    async with client(World(engines=False)) as http:
        response = await http.post(CHAT, json=body)
    if form == "text":
        assert response.status_code == 200
        return
    assert response.status_code == 400
    error = response.json()["error"]
    assert error["param"] == "response_format.type" and "needs an engine" in error["message"]
