"""Kinds of requests and who sends them: how long, what about, how urgent, how patient."""

from __future__ import annotations

import itertools
import stat
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec
import numpy as np

from forebay.kernel.errors import ConfigError
from forebay.lab.workload.distributions import (
    Amount,
    Floats,
    Sampler,
    Shares,
    Tokens,
    Zipf,
    sampler,
    unreadable,
    whole_tokens,
)
from forebay.lab.workload.queries import Queries, QueriesSpec, read_queries
from forebay.lab.workload.text import Language, mixed

Share = Annotated[float, msgspec.Meta(gt=0, le=1e9)]
TokenCount = Annotated[int, msgspec.Meta(ge=1, le=10_000_000)]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
Priority = str | int
# Block ids of generated prefixes leave room for this many blocks after each start.
_ID_SPACING_BITS = 20
_ID_MASK = (1 << 62) - 1
MAX_KEY_BYTES = 4096


class Disconnect(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A ``share`` (0..1) of the clients leaves after ``after_tokens`` tokens of the answer."""

    share: Annotated[float, msgspec.Meta(ge=0, le=1)]
    after_tokens: Tokens = 1


class Documents(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Passages before the question, from ``count`` documents of ``tokens`` tokens each.

    Rank r is used in proportion to 1/r^zipf, so that a few documents serve most requests and
    prefix caches have something to find.
    """

    count: Annotated[int, msgspec.Meta(ge=1, le=10_000_000)]
    tokens: TokenCount
    zipf: Annotated[float, msgspec.Meta(ge=0, le=10)] = 1.0
    per_request: Annotated[int, msgspec.Meta(ge=1, le=64)] = 1


class Conversation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``turns`` questions one after another; ``think_s`` seconds from an answer to the next."""

    turns: Tokens
    think_s: Amount = 5.0


class Kind(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One class of requests.

    ``share`` is a weight beside the other kinds'. ``input_tokens`` is the question's length; a
    question from ``queries`` is its own length, or is filled up to ``input_tokens``. System
    prompt, documents and earlier turns come on top. Caps cut what was drawn or traced. Replayed
    requests belong to the kind of their name, else to the one with the highest
    ``trace_min_tokens`` (input and output) that they reach.
    """

    name: Name
    share: Share = 1.0
    input_tokens: Tokens | None = None
    output_tokens: Tokens = 128
    input_cap_tokens: TokenCount | None = None
    output_cap_tokens: TokenCount | None = None
    deadline_s: Annotated[float, msgspec.Meta(gt=0, le=1e6)] | None = None
    priority: Priority | None = None
    disconnect: Disconnect | None = None
    queries: QueriesSpec | None = None
    system_prompt_tokens: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] = 0
    documents: Documents | None = None
    conversation: Conversation | None = None
    language: Language = "en"
    trace_min_tokens: Annotated[int, msgspec.Meta(ge=0)] = 0


class Tenant(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Who asks. ``key`` is the API key itself, ``key_file`` a file that holds nothing else.

    ``users`` above 0 spreads the requests over that many users, named ``<tenant>-<number>``.
    """

    name: Name
    share: Share = 1.0
    key: str = ""
    key_file: str = ""
    users: Annotated[int, msgspec.Meta(ge=0, le=10_000_000)] = 0
    priority: Priority | None = None


class Drawn(NamedTuple):
    """What was drawn for one request; tokens are the question's, the prefix comes on top."""

    question_tokens: int
    output_tokens: int
    text: str
    prefix: tuple[int, ...]
    prefix_tokens: int
    disconnect: int | None


class KindSource:
    """Draws the contents of one kind's requests; files are read once, when it is built."""

    def __init__(self, kind: Kind, number: int, folder: Path, block_tokens: int) -> None:
        where = f"kind {kind.name}"
        self.kind = kind
        self.queries: Queries | None = None
        if kind.queries is not None:
            self.queries = read_queries(kind.queries, folder)
        self._input = None
        if kind.input_tokens is not None:
            self._input = sampler(kind.input_tokens, f"{where}: input_tokens", folder)
        self._output = sampler(kind.output_tokens, f"{where}: output_tokens", folder)
        talk, leave = kind.conversation, kind.disconnect
        self.turns: Sampler | None = None
        self.think_s: Sampler | None = None
        if talk is not None:
            self.turns = sampler(talk.turns, f"{where}: turns", folder)
            self.think_s = sampler(talk.think_s, f"{where}: think_s", folder)
        self._leave_after: Sampler | None = None
        if leave is not None:
            self._leave_after = sampler(leave.after_tokens, f"{where}: after_tokens", folder)
        self._prefixes = _Prefixes(kind, number, block_tokens)

    @property
    def makes_content(self) -> bool:
        """Whether it says what is asked (else only a trace can)."""
        return self._input is not None or self.queries is not None

    def stream(self, seed: np.random.SeedSequence) -> KindStream:
        """A run's draws."""
        return KindStream(self, np.random.default_rng(seed))

    def questions(
        self, rng: np.random.Generator, chosen: list[int] | None, count: int
    ) -> tuple[list[int], list[str]]:
        """Tokens and texts of ``count`` questions; ``chosen`` are those of the query file."""
        drawn = None if self._input is None else whole_tokens(self._input(rng, count))
        if self.queries is None or chosen is None:
            return drawn or [], [""] * count
        counts = [self.queries.tokens[place] for place in chosen]
        texts = [self.queries.texts[place] for place in chosen]
        if drawn is not None:
            counts = [max(pair) for pair in zip(counts, drawn, strict=True)]
        return counts, texts

    def outputs(self, rng: np.random.Generator, count: int) -> list[int]:
        """Output tokens, capped."""
        cap = self.kind.output_cap_tokens
        drawn = whole_tokens(self._output(rng, count))
        return drawn if cap is None else [min(tokens, cap) for tokens in drawn]

    def disconnects(self, rng: np.random.Generator, count: int) -> list[int | None]:
        """After how many tokens each client leaves; None for those who stay."""
        if self.kind.disconnect is None or self._leave_after is None:
            return [None] * count
        leaves = rng.random(count) < self.kind.disconnect.share
        after = whole_tokens(self._leave_after(rng, count))
        return [tokens if leaving else None for leaving, tokens in zip(leaves, after, strict=True)]

    def prefixes(self, rng: np.random.Generator, count: int) -> tuple[list[tuple[int, ...]], int]:
        """Block ids before each question, and how many tokens stand there."""
        return self._prefixes.draw(rng, count), self._prefixes.tokens


class KindStream:
    """One run's draws of one kind, in order; independent of every other kind's."""

    def __init__(self, source: KindSource, rng: np.random.Generator) -> None:
        self._source = source
        self._rng = rng
        self._chosen = None if source.queries is None else source.queries.draws(rng)

    def draw(self, count: int) -> list[Drawn]:
        """The next ``count`` requests' contents."""
        source, rng, kind = self._source, self._rng, self._source.kind
        chosen = None if self._chosen is None else self._chosen.next(count)
        questions, texts = source.questions(rng, chosen, count)
        if kind.input_cap_tokens is not None:
            questions = [min(tokens, kind.input_cap_tokens) for tokens in questions]
        outputs = source.outputs(rng, count)
        prefixes, prefix_tokens = source.prefixes(rng, count)
        before = itertools.repeat(prefix_tokens)
        leaves = source.disconnects(rng, count)
        return list(map(Drawn, questions, outputs, texts, prefixes, before, leaves))

    def disconnects(self, count: int) -> list[int | None]:
        """Only when clients leave, for requests whose contents a trace gives."""
        return self._source.disconnects(self._rng, count)

    def turns(self, count: int) -> list[int]:
        """How many turns each of ``count`` conversations has."""
        source = self._source
        return [1] * count if source.turns is None else whole_tokens(source.turns(self._rng, count))

    def thinking_s(self, count: int) -> list[float]:
        """Seconds before each of ``count`` further turns."""
        if self._source.think_s is None:
            return [0.0] * count
        seconds: list[float] = self._source.think_s(self._rng, count).tolist()
        return seconds


class _Prefixes:
    """Ids of the blocks of system prompt and documents.

    An id stands for its block and all before it, as a prefix cache's hashes do: the same document
    after another beginning has other ids.
    """

    def __init__(self, kind: Kind, number: int, block_tokens: int) -> None:
        documents = kind.documents
        self._block_tokens = block_tokens
        self._system = kind.system_prompt_tokens
        self._start = mixed(number + 1) if self._system else 0
        self._documents = documents
        self._zipf = None if documents is None else Zipf(documents.count, documents.zipf)
        self.tokens = self._system
        if documents is not None:
            self.tokens += documents.tokens * documents.per_request
        self._of = lru_cache(maxsize=4096)(self._ids)
        if self.tokens // block_tokens >= 1 << _ID_SPACING_BITS:
            raise ConfigError(f"kind {kind.name}: system prompt and documents are too long.")

    def draw(self, rng: np.random.Generator, count: int) -> list[tuple[int, ...]]:
        if self._zipf is None or self._documents is None:
            return [self._of(())] * count
        each = self._documents.per_request
        ranks = self._zipf.draw(rng, count * each).reshape(count, each)
        of = self._of
        return [of(tuple(row)) for row in ranks.tolist()]

    def _ids(self, documents: tuple[int, ...]) -> tuple[int, ...]:
        size, chain = self._block_tokens, self._start
        ids = list(_run(chain, 0, self._system // size))
        end = self._system
        for document in documents:
            assert self._documents is not None
            end += self._documents.tokens
            chain = mixed(chain * 31 + document + 1)
            # A block that spans a border belongs to what ends it.
            ids += _run(chain, len(ids), end // size)
        return tuple(ids)


def _run(chain: int, first: int, end: int) -> range:
    base = (chain << _ID_SPACING_BITS) & _ID_MASK
    return range(base + first, base + end)


class Tenants:
    """Draws who asks."""

    def __init__(self, tenants: tuple[Tenant, ...], folder: Path) -> None:
        self._tenants = tenants
        self._keys = [_key(tenant, folder) for tenant in tenants]
        self._shares = Shares([tenant.share for tenant in tenants]) if tenants else None
        self._users = np.array([tenant.users for tenant in tenants] or [0])
        self._by_name = {tenant.name: place for place, tenant in enumerate(tenants)}

    def draw(
        self, rng: np.random.Generator, count: int
    ) -> Iterator[tuple[str, str, str, Priority | None]]:
        """Tenant, key, user and priority of ``count`` requests."""
        if self._shares is None:
            return itertools.repeat(("", "", "", None), count)
        return self._named(self._shares.draw(rng, count).tolist(), rng.random(count))

    def _named(
        self, places: list[int], chance: Floats
    ) -> Iterator[tuple[str, str, str, Priority | None]]:
        fixed = [
            (tenant.name, key, tenant.priority)
            for tenant, key in zip(self._tenants, self._keys, strict=True)
        ]
        numbers = (chance * self._users[places]).astype(np.int64).tolist()
        spread = self._users.tolist()
        for place, number in zip(places, numbers, strict=True):
            name, key, priority = fixed[place]
            yield name, key, f"{name}-{number}" if spread[place] else "", priority

    def key(self, name: str) -> tuple[str, Priority | None]:
        """Key and priority of the tenant a trace names; none when the workload has no such one."""
        place = self._by_name.get(name)
        return ("", None) if place is None else (self._keys[place], self._tenants[place].priority)


def _key(tenant: Tenant, folder: Path) -> str:
    if tenant.key and tenant.key_file:
        raise ConfigError(f"tenant {tenant.name} has both key and key_file: give one of them.")
    if not tenant.key_file:
        return tenant.key
    path = folder / tenant.key_file
    try:
        if not stat.S_ISREG(path.stat().st_mode) or path.stat().st_size > MAX_KEY_BYTES:
            raise ConfigError(f"{path.name} is no key file: it must hold one key and nothing else.")
        return path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise unreadable(path, error) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path.name} is no key file: it is not UTF-8 text.") from error
