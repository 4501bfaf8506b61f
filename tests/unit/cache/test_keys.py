"""Keys: whatever may change a result changes the key, and nothing else does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import fields, replace

from forebay.cache import keys
from forebay.cache.keys import (
    INFLUENCES,
    NEUTRAL,
    AnswerKey,
    EmbeddingKey,
    PromptSetup,
    RetrievalKey,
    Setup,
    answer_key,
    digest,
    embedding_key,
    retrieval_key,
    settings_digest,
)
from forebay.kernel.context import Plan, Principal
from forebay.kernel.stages import EmbedderSpec, Message, Sampling, SearchRequest

SPEC = EmbedderSpec("e5", "f1", 384, 512)
SETUP = Setup("store", "f1", "r1", "k1")
PROMPT = PromptSetup("t1", "m", "1")
PRINCIPAL = Principal(tenant="t", groups=frozenset({"g"}), user="u")
REQUEST = SearchRequest("kb", "How?", 5, {"source": "a"})
SAMPLING = Sampling()
MESSAGE = Message("user", "How?")

OTHERS: Mapping[type, Mapping[str, object]] = {
    SearchRequest: {
        "kb": "kb2",
        "query": "why",
        "top_k": 6,
        "filter": {"source": "b"},
        "kind": "faq",
        "hypothesis": "Because.",
    },
    Sampling: {
        "temperature": 0.0,
        "top_p": 1.0,
        "max_tokens": 16,
        "stop": (),
        "seed": 0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "response_format": {},
    },
    Message: {"role": "assistant", "content": "why"},
    Principal: {
        "tenant": "t2",
        "groups": frozenset({"g", "h"}),
        "user": "u2",
        "key_id": "k2",
        "knowledge": frozenset({"kb"}),
        "default_kb": "kb",
        "admin": True,
        "operator": True,
        "priority": "low",
        "business_line": "b",
        "plan": Plan(weight=2.0),
    },
    EmbedderSpec: {"fingerprint": "f2", "name": "e6", "dimensions": 3, "max_tokens": 1},
}
"""Another value for every field of what builders take."""


def whole(
    principal: Principal = PRINCIPAL,
    request: SearchRequest = REQUEST,
    sampling: Sampling = SAMPLING,
    message: Message = MESSAGE,
    spec: EmbedderSpec = SPEC,
) -> tuple[bytes, bytes, bytes]:
    """Every key that one request has."""
    retrieval = retrieval_key(principal, request, replace(SETUP, embedder=spec.fingerprint))
    answer = answer_key(retrieval, (message,), sampling, PROMPT, user=principal.user)
    return digest(embedding_key(spec, "query", request.query)), digest(retrieval), digest(answer)


@pytest.mark.parametrize("kind", INFLUENCES)
def test_every_field_of_what_builders_take_is_classified(kind: Any) -> None:
    named = {field.name for field in fields(kind)}
    assert INFLUENCES[kind] | NEUTRAL[kind] == named == OTHERS[kind].keys(), (
        "say in forebay.cache.keys whether the new field may change a result"
    )
    assert not INFLUENCES[kind] & NEUTRAL[kind]


ARGUMENTS: Mapping[type, tuple[str, msgspec.Struct]] = {
    SearchRequest: ("request", REQUEST),
    Sampling: ("sampling", SAMPLING),
    Message: ("message", MESSAGE),
    Principal: ("principal", PRINCIPAL),
    EmbedderSpec: ("spec", SPEC),
}


@pytest.mark.parametrize(("kind", "field"), [(kind, f) for kind in OTHERS for f in OTHERS[kind]])
def test_a_field_changes_the_answers_key_if_it_may_change_the_answer(
    kind: type, field: str
) -> None:
    name, usual = ARGUMENTS[kind]
    other: Any = {name: replace(usual, **{field: OTHERS[kind][field]})}
    assert (whole(**other)[2] != whole()[2]) == (field in INFLUENCES[kind])


@pytest.mark.parametrize("name", [field.name for field in fields(Setup)])
def test_store_embedder_and_settings_are_part_of_a_retrieval(name: str) -> None:
    usual = retrieval_key(PRINCIPAL, REQUEST, SETUP)
    assert digest(replace(usual, setup=replace(SETUP, **{name: "other"}))) != digest(usual)


@pytest.mark.parametrize("name", [field.name for field in fields(PromptSetup)])
def test_template_and_model_are_part_of_an_answer(name: str) -> None:
    usual = answer_key(retrieval_key(PRINCIPAL, REQUEST, SETUP), (), SAMPLING, PROMPT)
    assert digest(replace(usual, prompt=replace(PROMPT, **{name: "other"}))) != digest(usual)


def answers(*samplings: Sampling, **more: object) -> list[bytes]:
    retrieval = retrieval_key(PRINCIPAL, REQUEST, SETUP)
    return [digest(answer_key(retrieval, (), one, PROMPT, more=more)) for one in samplings]


def test_what_is_absent_is_not_zero() -> None:
    found = answers(
        Sampling(),
        Sampling(temperature=0.0),
        Sampling(temperature=1.0),
        Sampling(max_tokens=16),
        Sampling(max_tokens=4000),
        Sampling(stop=()),
        Sampling(stop=("a",)),
        Sampling(stop=("ab",)),
        Sampling(stop=("a", "b")),
        Sampling(response_format={"type": "text"}),
        Sampling(response_format={"type": "json_object"}),
        Sampling(seed=0),
        Sampling(seed=1),
    )
    found += answers(Sampling(), n=2)
    found += answers(Sampling(), tools=[])
    found += answers(Sampling(), tools=[{"type": "function", "function": {"name": "f"}}])
    found += answers(Sampling(), tool_choice="none")
    assert len(set(found)) == len(found)


def test_order_does_not_matter_where_it_means_nothing() -> None:
    one = Sampling(stop=("a", "b"), response_format={"type": "x", "y": {"p": 1, "q": 2}})
    other = Sampling(stop=("b", "a", "a"), response_format={"y": {"q": 2, "p": 1}, "type": "x"})
    assert len(set(answers(one, other))) == 1
    filters: list[Mapping[str, str | tuple[str, ...]]] = [
        {"source": ("b", "a"), "tags": "x"},
        {"tags": ("x",), "source": ("a", "b", "b")},
    ]
    assert len({whole(request=replace(REQUEST, filter=one)) for one in filters}) == 1
    many = [f"group {number}" for number in range(50)]
    both = {whole(replace(PRINCIPAL, groups=frozenset(g))) for g in (many, reversed(many))}
    assert len(both) == 1


def test_all_rights_no_rights_and_some_rights_are_three() -> None:
    rights = (None, frozenset[str](), frozenset({"g"}), frozenset({"g", "h"}))
    assert len({whole(replace(PRINCIPAL, groups=one))[1] for one in rights}) == 4


def test_the_same_question_by_another_conversation_is_another() -> None:
    retrieval = retrieval_key(PRINCIPAL, REQUEST, SETUP)
    conversations = [
        (),
        (MESSAGE,),
        (Message("system", "How?"), MESSAGE),
        (Message("system", "how?"), MESSAGE),
        (Message("user", "so"), MESSAGE),
        (Message("user", "so how"),),
        (Message("user", "so"), Message("assistant", "yes"), MESSAGE),
    ]
    found = {digest(answer_key(retrieval, one, SAMPLING, PROMPT)) for one in conversations}
    assert len(found) == len(conversations)


def test_spellings_of_users_are_one_and_those_of_others_are_not() -> None:
    retrieval = retrieval_key(PRINCIPAL, REQUEST, SETUP)
    same = retrieval_key(PRINCIPAL, replace(REQUEST, query=" HOW ？"), SETUP)
    assert digest(same) == digest(retrieval)
    one = answer_key(retrieval, (MESSAGE,), SAMPLING, PROMPT)
    other = answer_key(same, (Message("user", "HOW"),), SAMPLING, PROMPT)
    assert digest(one) == digest(other)
    for kind, equal in (("query", True), ("passage", False), ("raw", False)):
        two = {digest(embedding_key(SPEC, kind, text)) for text in ("How?", "how")}  # type: ignore[arg-type]
        assert (len(two) == 1) == equal


def test_kinds_of_one_text_are_apart() -> None:
    found = {digest(embedding_key(SPEC, kind, "x")) for kind in ("query", "passage", "raw")}
    assert len(found) == 3


def test_text_cannot_slip_from_one_field_into_the_next() -> None:
    assert digest(EmbeddingKey("ab", "raw", "c")) != digest(EmbeddingKey("a", "raw", "bc"))


def test_types_and_schema_versions_are_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    before = whole()
    assert len(set(before)) == 3
    monkeypatch.setattr(keys, "KEY_VERSION", keys.KEY_VERSION + 1)
    assert not set(whole()) & set(before)


class Tuning(msgspec.Struct, frozen=True, omit_defaults=True):
    weight: float = 1.0
    legs: tuple[str, ...] = ("a",)


class Tuned(msgspec.Struct, frozen=True):
    tuning: Tuning = Tuning()
    words: Mapping[str, int] = {}


def test_settings_count_down_to_the_last_default() -> None:
    usual = settings_digest(Tuned())
    assert usual == settings_digest(Tuned(words={}))
    others = [
        settings_digest(Tuned(Tuning(weight=2.0))),
        settings_digest(Tuned(Tuning(legs=("a", "b")))),
        settings_digest(Tuned(words={"a": 1})),
        settings_digest(Tuning()),
        settings_digest(Tuned(), Tuned()),
    ]
    assert len({usual, *others}) == 6


TEXTS = st.text(alphabet="abXY中不 -?", max_size=6)
REQUESTS = st.builds(
    SearchRequest,
    kb=TEXTS,
    query=TEXTS,
    top_k=st.integers(1, 3),
    filter=st.dictionaries(TEXTS, st.tuples(TEXTS) | TEXTS, max_size=2),
)
KEYS = st.builds(
    retrieval_key,
    st.builds(Principal, tenant=TEXTS, groups=st.none() | st.frozensets(TEXTS, max_size=3)),
    REQUESTS,
    st.builds(Setup, TEXTS, TEXTS, TEXTS, TEXTS),
)


@settings(deadline=None)
@given(KEYS, KEYS)
def test_two_keys_have_one_digest_if_and_only_if_they_are_equal(
    one: RetrievalKey, other: RetrievalKey
) -> None:
    assert (digest(one) == digest(other)) == (one == other)
    assert digest(one) == digest(msgspec.convert(msgspec.to_builtins(one), RetrievalKey))


def test_the_hash_is_pinned() -> None:
    """Processes of one release share keys, so a key must not depend on the process."""
    key = AnswerKey(
        RetrievalKey("t", frozenset({"b", "a"}), SearchRequest("kb", "q"), SETUP),
        (Message("user", "q"),),
        Sampling(temperature=0.5),
        PROMPT,
        None,
        {"n": 1},
    )
    assert digest(key).hex() == "37c485fa5c224d90533b57843efb4640"
