"""The one place that builds cache keys: from typed parts, so that none can be forgotten.

A builder takes whole structs, never fields picked from them, and a key encodes every field of every
struct it holds. A field that is added to one of them therefore enters the key by itself; a test
fails until ``INFLUENCES`` or ``NEUTRAL`` names it. Keys hold no version of a knowledge base: stored
values do, and are revalidated.

A digest is BLAKE2b-128 over canonical msgpack of (type, ``KEY_VERSION``, all fields by name):
mappings and sets in one order, absent apart from zero, all groups apart from none.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from hashlib import blake2b
from typing import Literal

import msgspec
from msgspec.structs import replace

from forebay.cache.canonical import canonical
from forebay.cache.hashing import sum_of
from forebay.kernel.context import Principal
from forebay.kernel.stages import EmbedderSpec, Message, Sampling, SearchRequest

KEY_VERSION = 2
"""Raised whenever a key means something else than before."""

INFLUENCES: Mapping[type, frozenset[str]] = {
    SearchRequest: frozenset({"kb", "query", "top_k", "filter", "kind", "hypothesis"}),
    Sampling: frozenset(
        {
            "temperature",
            "top_p",
            "max_tokens",
            "stop",
            "seed",
            "presence_penalty",
            "frequency_penalty",
            "response_format",
        }
    ),
    Message: frozenset({"role", "content"}),
    Principal: frozenset({"tenant", "groups", "user"}),
    EmbedderSpec: frozenset({"fingerprint"}),
}
"""Fields that may change a result. ``user`` does where a rule says so."""

NEUTRAL: Mapping[type, frozenset[str]] = {
    SearchRequest: frozenset(),
    Sampling: frozenset(),
    Message: frozenset(),
    Principal: frozenset(
        {
            "key_id",
            "knowledge",  # decides before any tier is asked whether the kb may be read
            "default_kb",  # the request names the kb it became
            "admin",
            "operator",
            "priority",  # where classes have engines of their own, whoever builds the key adds it
            "business_line",
            "plan",
        }
    ),
    EmbedderSpec: frozenset({"name", "dimensions", "max_tokens"}),  # the fingerprint covers them
}
"""Fields that change when or whether a result comes, never the result."""


class EmbeddingKey(msgspec.Struct, frozen=True):
    """One text as one embedder sees it."""

    fingerprint: str
    kind: Literal["query", "passage", "raw"]
    text: str


class AskerKey(msgspec.Struct, frozen=True):
    """A question and the tenant who asked it, whatever it was answered with."""

    tenant: str
    text: str


class Setup(msgspec.Struct, frozen=True):
    """What every retrieval of a process rests on beside the request.

    ``store`` identifies the folder; ``retrieval`` and ``rerank`` are ``settings_digest`` of theirs.
    """

    store: str
    embedder: str
    retrieval: str
    rerank: str


class RetrievalKey(msgspec.Struct, frozen=True):
    """A search and whose it is; ``request`` is spelled canonically. ``groups`` None: all rights."""

    tenant: str
    groups: frozenset[str] | None
    request: SearchRequest
    setup: Setup


class PromptSetup(msgspec.Struct, frozen=True):
    """What turns hits into an answer beside the request."""

    template: str
    model: str
    model_version: str


class AnswerKey(msgspec.Struct, frozen=True):
    """A conversation and everything its answer may depend on.

    ``user`` None: answers are the same for all who have these rights. ``more``: fields of the
    request that the edge honours and ``Sampling`` does not have.
    """

    retrieval: RetrievalKey
    conversation: tuple[Message, ...]
    sampling: Sampling
    prompt: PromptSetup
    user: str | None
    more: Mapping[str, object]


Key = EmbeddingKey | AskerKey | RetrievalKey | AnswerKey

_encode = msgspec.msgpack.Encoder(order="deterministic").encode


def digest(key: Key) -> bytes:
    """The 16 bytes that stand for a key in every tier."""
    parts = _encode((type(key).__name__, KEY_VERSION, key))
    return sum_of(parts, 16)


def embedding_key(
    spec: EmbedderSpec, kind: Literal["query", "passage", "raw"], text: str
) -> EmbeddingKey:
    """The key of a vector; only questions have other spellings."""
    return EmbeddingKey(spec.fingerprint, kind, canonical(text) if kind == "query" else text)


def asker_key(principal: Principal, text: str) -> AskerKey:
    """The key under which it is known that a tenant asked a question."""
    return AskerKey(principal.tenant, canonical(text))


def retrieval_key(principal: Principal, request: SearchRequest, setup: Setup) -> RetrievalKey:
    """The key of a retrieval with its reranking."""
    request = replace(request, query=canonical(request.query), filter=_filter(request.filter))
    return RetrievalKey(principal.tenant, principal.groups, request, setup)


def answer_key(
    retrieval: RetrievalKey,
    conversation: tuple[Message, ...],
    sampling: Sampling,
    prompt: PromptSetup,
    *,
    user: str | None = None,
    more: Mapping[str, object] | None = None,
) -> AnswerKey:
    """The key of an answer; only what users say has other spellings."""
    if sampling.stop is not None:
        sampling = replace(sampling, stop=tuple(sorted(set(sampling.stop))))
    said = tuple(
        Message("user", canonical(message.content)) if message.role == "user" else message
        for message in conversation
    )
    return AnswerKey(retrieval, said, sampling, prompt, user, more or {})


def settings_digest(*settings: msgspec.Struct) -> str:
    """Stands for settings that a result depends on; every field of every one counts."""
    try:
        return _known_digest(settings)
    except TypeError:
        # Settings with a mapping are no key of a table.
        return _settings_digest(settings)


def _settings_digest(settings: tuple[msgspec.Struct, ...]) -> str:
    return blake2b(_encode([_fields(one) for one in settings]), digest_size=16).hexdigest()


_known_digest = lru_cache(maxsize=128)(_settings_digest)
"""Rules are in the key of every question that they hold for."""


def _filter(conditions: Mapping[str, str | tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """Any of several values, in whatever order; one value is a choice of one."""
    return {
        name: (wanted,) if isinstance(wanted, str) else tuple(sorted(set(wanted)))
        for name, wanted in conditions.items()
    }


def _fields(value: object) -> object:
    # Not left to the encoder: it omits defaults, which are not the same in every release.
    if isinstance(value, msgspec.Struct):
        names = value.__struct_fields__
        return (type(value).__name__, {name: _fields(getattr(value, name)) for name in names})
    if isinstance(value, Mapping):
        return {name: _fields(part) for name, part in value.items()}
    if isinstance(value, tuple | list):
        return [_fields(part) for part in value]
    return value
