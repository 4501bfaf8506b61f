"""Hostile JSON is a sentence, never a crash."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.kernel.errors import InvalidRequest
from forebay.wire.chat import ChatRequest
from forebay.wire.decoding import JsonDecoder
from forebay.wire.encoding import encode_json
from forebay.wire.search import SearchBody

DECODER = JsonDecoder(ChatRequest)
GOOD = b'{"model":"m","messages":[{"role":"user","content":"hi"}]}'


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"nonsense",
        b"\xff\xfe",
        b"[" * 200_000,
        b'{"model":' + b"[" * 200_000,
        b'{"unknown":' + b'{"a":' * 200_000,
        b'{"model":"\\ud800","messages":[]}',
        b'{"model":"\\udc00x","messages":[]}',
        GOOD[:-1] + b',"temperature":NaN}',
        GOOD[:-1] + b',"temperature":Infinity}',
        GOOD[:-1] + b',"temperature":1e999}',
        GOOD[:-1] + b',"seed":99999999999999999999999999}',
        GOOD + b"x",
        b"null",
    ],
)
def test_bad_json_is_an_invalid_request(body: bytes) -> None:
    with pytest.raises(InvalidRequest) as caught:
        DECODER.decode(body)
    assert caught.value.message.endswith(".")


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b'{"model":"m","messages":[]}', "messages"),
        (b'{"model":"m","messages":[{"role":"user","content":3}]}', "messages[0].content"),
        (b'{"model":"m","messages":[{"role":"king","content":"x"}]}', "messages[0].role"),
        (GOOD[:-1] + b',"temperature":3}', "temperature"),
        (GOOD[:-1] + b',"stream":"yes"}', "stream"),
        (GOOD[:-1] + b',"forebay":{"top_k":0}}', "forebay.top_k"),
    ],
)
def test_the_field_at_fault_is_named(body: bytes, param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        DECODER.decode(body)
    assert caught.value.param == param
    assert caught.value.message.startswith(param)


def test_unknown_fields_and_nulls_are_tolerated() -> None:
    extra = b',"user":"u","store":null,"tools":[{"type":"function"}],"stream":null,"n":null}'
    assert DECODER.decode(GOOD[:-1] + extra).model == "m"


def test_a_big_prompt_decodes() -> None:
    prompt = "长" * 700_000
    body = msgspec.json.encode({"model": "m", "messages": [{"role": "user", "content": prompt}]})
    assert DECODER.decode(body).messages[0].content == prompt


@given(st.binary(max_size=200))
def test_any_bytes_either_decode_or_are_invalid(data: bytes) -> None:
    try:
        DECODER.decode(data)
    except InvalidRequest as error:
        error.message.encode()


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), JSON) | JSON)
def test_any_value_encodes(value: Any) -> None:
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        return
    try:
        encoded = encode_json(value)
    except OverflowError:
        return
    encoded.decode("utf-8")


def test_lone_surrogates_become_replacement_marks() -> None:
    assert encode_json({"a\ud800": ["x\udfff"]}) == '{"a\ufffd":["x\ufffd"]}'.encode()


@pytest.mark.parametrize(
    ("kind", "body", "param", "said"),
    [
        (SearchBody, b'{"query":"q","topk":3}', "topk", "did you mean top_k?"),
        (SearchBody, b'{"query":"q","colour":3}', "colour", "known here: query, top_k, filter, kb"),
        (ChatRequest, GOOD[:-1] + b',"forebay":{"topk":3}}', "forebay.topk", "did you mean top_k?"),
    ],
)
def test_a_misspelt_field_of_our_own_is_refused(
    kind: type, body: bytes, param: str, said: str
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        JsonDecoder(kind).decode(body)
    assert caught.value.param == param
    assert said in caught.value.message


def test_fields_that_other_servers_know_are_passed_over() -> None:
    assert DECODER.decode(GOOD[:-1] + b',"forbay":{"topk":3},"logit":1}').model == "m"


def test_an_empty_body_is_called_empty() -> None:
    for body in (b"", b" \r\n"):
        with pytest.raises(InvalidRequest, match="the body is empty") as caught:
            DECODER.decode(body)
        assert caught.value.code == "invalid_json"
