"""What will be asked next, learned from what was asked, and what of it to fetch beforehand (F0.13).

Two things are learned from the request log, for each segment of users (tenant, groups, business
line) apart: which request follows which, by counts that back off from long contexts to short ones
(Witten-Bell), and how often each question comes. A prediction's confidence is a probability: that
it is the very next one, or that it is asked at all while a result lives. Questions of one segment
are never predicted for another: whether something is prepared can be told by its speed.
"""

from __future__ import annotations

import heapq
import math
from collections import OrderedDict
from collections.abc import Hashable, Mapping, Sequence
from hashlib import blake2b
from typing import Annotated, Generic, NamedTuple, TypeVar

import msgspec
from msgspec import Meta

from forebay.cache.canonical import canonical
from forebay.kernel.context import Principal
from forebay.kernel.stages import Sampling, SearchRequest

S = TypeVar("S", bound=Hashable)

STAGE_SHARES = (0.3, 0.7, 1.0)
"""Of the tier's memory that prepared results may take, stage by stage."""
STAGE_ONE_PREDICTIONS = 5
QUESTION_CHARACTERS = 512
"""Longer questions are not asked twice."""
PAUSE_S = 1800.0
"""Who was silent for so long begins anew."""
SET_BACK_S = 60.0
"""Requests that are so much older than the last before them come after a clock was set back."""
MEMORY_S = 86_400.0
"""Time constant in which what was asked is forgotten."""
MAX_QUESTIONS = 20_000
MAX_COUNTS = 100_000
MAX_WHO = 20_000
MOST_FOLLOWERS = 64
"""Contexts with more followers foretell nothing."""
DOUBT = 2
"""Requests' worth: of many contexts some are followed by the same a few times by chance. Without it
of ten predictions above .85 three came true, with it none that is false is made
(benchmarks/caching/foretelling.py)."""
SPARE_SHARE = 0.25
COLD_WEIGHT = 0.3


class PrewarmSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Fetching beforehand what will be asked."""

    enabled: Annotated[
        bool,
        Meta(
            description="Keep a log of questions in the store's folder, learn from it what will be "
            "asked, and search for that beforehand."
        ),
    ] = False
    log_bytes: Annotated[
        int, Meta(description="Disk of the log of questions.", ge=65_536, le=1_000_000_000)
    ] = 16_000_000
    confidence: Annotated[
        float,
        Meta(description="Only what is asked with this probability (F0.13).", ge=0.5, le=1.0),
    ] = 0.85
    share: Annotated[
        float,
        Meta(description="Share of the time, and of free places, it may take.", gt=0.0, le=0.5),
    ] = SPARE_SHARE
    per_s: Annotated[
        float, Meta(description="Searches a second beforehand at most.", gt=0.0, le=1000.0)
    ] = 20.0
    start_s: Annotated[
        float,
        Meta(
            description="Readiness waits so long at most for what was asked often before a "
            "restart; 0: not at all.",
            ge=0.0,
            le=300.0,
        ),
    ] = 10.0
    stage_s: Annotated[
        float,
        Meta(description="After a start 30 %, then 70 %, then all of the memory, so long each.",
             gt=0.0),
    ] = 3600.0  # fmt: skip
    min_ms: Annotated[
        float, Meta(description="Only searches that take so long.", ge=0.0)
    ] = 2.0  # fmt: skip
    answers: Annotated[
        bool,
        Meta(
            description="Also have answers written where cache.answers.rules allow one to be kept; "
            "the tenant is charged for them."
        ),
    ] = False


class Question(msgspec.Struct, frozen=True, array_like=True):
    """Something that can be asked again, and whose; ``groups`` None: all rights.

    ``sampling`` None: not to be answered beforehand.
    """

    tenant: str
    groups: tuple[str, ...] | None
    line: str
    kb: str
    text: str
    top_k: int
    filter: Mapping[str, str | tuple[str, ...]] = {}
    sampling: Sampling | None = None
    route: str = "chat"

    def principal(self) -> Principal:
        """Who may see what is found, with the least priority."""
        groups = None if self.groups is None else frozenset(self.groups)
        return Principal(tenant=self.tenant, groups=groups, business_line=self.line, priority="low")

    def search(self) -> SearchRequest:
        """The search to make."""
        return SearchRequest(self.kb, self.text, self.top_k, self.filter)


class Asked(msgspec.Struct, frozen=True, array_like=True):
    """One request, a line of the log. ``at`` is wall time; ``who`` stands for a user, hashed.

    ``kind`` is the request's class; ``cold_s`` what its search took, None: it was not made.
    """

    at: float
    who: str
    kind: str
    question: Question
    cold_s: float | None = None


class Foretold(NamedTuple):
    """A question and how sure it is."""

    question: Question
    confidence: float


class BackOff(Generic[S]):
    """Counts of what followed in which context; bounded, the oldest fade first."""

    def __init__(self, most: int = MAX_COUNTS) -> None:
        self._most = most
        self._size = 0
        self._followers: dict[Hashable, dict[S, float]] = {}
        self._totals: dict[Hashable, float] = {}

    def learn(self, contexts: Sequence[Hashable], symbol: S) -> None:
        """``symbol`` came in all of these contexts."""
        for context in contexts:
            followers = self._followers.setdefault(context, {})
            if symbol not in followers:
                self._size += 1
            followers[symbol] = followers.get(symbol, 0.0) + 1.0
            self._totals[context] = self._totals.get(context, 0.0) + 1.0
        if self._size > self._most:
            self._fade()

    def foretell(self, contexts: Sequence[Hashable], most: int) -> list[tuple[S, float]]:
        """The likeliest to come, with their probabilities; ``contexts`` from short to long."""
        known = [context for context in contexts if context in self._followers]
        if not known:
            return []
        nearest = self._followers[known[-1]]
        if len(nearest) > MOST_FOLLOWERS:
            likely = heapq.nlargest(most, nearest, key=nearest.__getitem__)
        else:
            likely = list(nearest)
        found = [(symbol, self._probability(known, symbol)) for symbol in likely]
        return heapq.nlargest(most, found, key=lambda one: one[1])

    def likeliest(self, most: int) -> set[S]:
        """The likeliest to come in each context that is known."""
        found: set[S] = set()
        # Taken at once: this runs beside the loop, which learns on.
        for followers in tuple(self._followers.values()):
            counts = dict(followers)
            found.update(heapq.nlargest(most, counts, key=counts.__getitem__))
        return found

    def __len__(self) -> int:
        return self._size

    def _probability(self, contexts: Sequence[Hashable], symbol: S) -> float:
        """Witten-Bell: a context counts against shorter ones by how many followers it knows, and
        a little more against chance.
        """
        value = 0.0
        for context in contexts:
            followers, total = self._followers[context], self._totals[context]
            unseen = len(followers) + DOUBT
            value = (followers.get(symbol, 0.0) + unseen * value) / (total + unseen)
        return value

    def _fade(self) -> None:
        """Halve all counts; what came once is forgotten."""
        self._size = 0
        for context in list(self._followers):
            kept = {
                symbol: count / 2
                for symbol, count in self._followers[context].items()
                if count >= 2
            }
            if kept:
                self._followers[context] = kept
                self._totals[context] = sum(kept.values())
                self._size += len(kept)
            else:
                del self._followers[context], self._totals[context]


class _Known(msgspec.Struct):
    """What is known of one question; ``heat`` counts requests, faded up to ``at``."""

    question: Question
    kind: str
    heat: float
    at: float
    cold_s: float | None


class _Recent(NamedTuple):
    at: float
    kinds: tuple[str, ...]
    questions: tuple[bytes, ...]


class Learner:
    """All that is learned; requests must come in the order of their times."""

    def __init__(self, settings: PrewarmSettings, life_s: float) -> None:
        self._settings = settings
        self._life_s = life_s
        self._known: OrderedDict[bytes, _Known] = OrderedDict()
        self._recent: OrderedDict[str, _Recent] = OrderedDict()
        self._first_at: float | None = None
        self._last_at = -math.inf
        self.kinds: BackOff[str] = BackOff()
        self.questions: BackOff[bytes] = BackOff()

    def learn(self, asked: Asked) -> None:
        """One more request."""
        key, segment = _key(asked.question), _segment(asked.question)
        if self._first_at is None:
            self._first_at = asked.at
        elif asked.at < self._last_at - SET_BACK_S:
            # Somebody set the clock back; what was seen was seen over as long a time as before.
            self._first_at -= self._last_at - asked.at
        self._last_at = asked.at
        before = self._before(asked.who, asked.at)
        self.kinds.learn(_kind_contexts(segment, before), asked.kind)
        self.questions.learn(_question_contexts(segment, before), key)
        self._recent[asked.who] = _Recent(
            asked.at, (*before.kinds, asked.kind)[-2:], (*before.questions, key)[-2:]
        )
        self._recent.move_to_end(asked.who)
        if len(self._recent) > MAX_WHO:
            self._recent.popitem(last=False)
        self._note(key, asked)

    def next(self, who: str, segment_of: Question, now: float) -> list[Foretold]:
        """What this user asks next, surely enough and slow enough."""
        before = self._before(who, now)
        if not before.questions:
            return []
        # The segment alone foretells nobody's next question.
        contexts = _question_contexts(_segment(segment_of), before)
        found = self.questions.foretell(contexts, STAGE_ONE_PREDICTIONS)
        return [
            Foretold(self._known[key].question, confidence)
            for key, confidence in found
            if confidence >= self._settings.confidence and self._worth(key)
        ]

    def next_kind(self, who: str, segment_of: Question, now: float) -> tuple[str, float] | None:
        """The class of this user's next request, and how sure that is."""
        contexts = _kind_contexts(_segment(segment_of), self._before(who, now))
        found = self.kinds.foretell(contexts, 1)
        return found[0] if found else None

    def hot(self, stage: int, now: float, room: int) -> list[Foretold]:
        """What will be asked while a result lives, as far as the stage allows: ``room`` in all.

        First the five likeliest in each context, after a class or a question, before the others;
        then by frequency alone; then the latest.
        """
        likeliest = self.questions.likeliest(STAGE_ONE_PREDICTIONS) if stage == 0 else set()
        found: list[tuple[tuple[float, ...], Foretold]] = []
        # Taken at once: this runs beside the loop, which learns on.
        for key, known in tuple(self._known.items()):
            sure = self._chance(known, now)
            if sure < self._settings.confidence or not self._worth(key):
                continue
            rank = (known.at,) if stage >= 2 else (float(key in likeliest), sure)
            found.append((rank, Foretold(known.question, sure)))
        return [one for _, one in heapq.nlargest(room, found, key=lambda each: each[0])]

    def statistics(self) -> dict[str, float]:
        """How much is known."""
        return {
            "questions": len(self._known),
            "sequences": len(self.questions),
            "users": len(self._recent),
        }

    def _before(self, who: str, now: float) -> _Recent:
        recent = self._recent.get(who)
        if recent is None or now - recent.at > PAUSE_S:
            return _Recent(now, (), ())
        return recent

    def _note(self, key: bytes, asked: Asked) -> None:
        known = self._known.get(key)
        if known is None:
            known = _Known(asked.question, asked.kind, 0.0, asked.at, None)
            self._known[key] = known
            if len(self._known) > MAX_QUESTIONS:
                self._forget(asked.at)
        known.heat = _faded(known, asked.at) + 1.0
        known.at = max(known.at, asked.at)
        known.question, known.kind = asked.question, asked.kind
        if asked.cold_s is not None:
            before = asked.cold_s if known.cold_s is None else known.cold_s
            known.cold_s = before + COLD_WEIGHT * (asked.cold_s - before)

    def _forget(self, now: float) -> None:
        """The colder half goes."""
        warm = heapq.nlargest(
            MAX_QUESTIONS // 2, self._known.items(), key=lambda item: _faded(item[1], now)
        )
        self._known = OrderedDict(warm)

    def _worth(self, key: bytes) -> bool:
        """Whether its search is slow enough to be made beforehand; unknown: it may be."""
        known = self._known.get(key)
        if known is None:
            return False
        return known.cold_s is None or known.cold_s * 1000 >= self._settings.min_ms

    def _chance(self, known: _Known, now: float) -> float:
        """That it is asked within a result's life, if requests come as they did."""
        first_at = known.at if self._first_at is None else self._first_at
        span_s = max(60.0, now - first_at)
        seen_s = MEMORY_S * -math.expm1(-span_s / MEMORY_S)
        return -math.expm1(-_faded(known, now) / seen_s * self._life_s)


def _faded(known: _Known, now: float) -> float:
    return known.heat * math.exp(-max(0.0, now - known.at) / MEMORY_S)


def _segment(question: Question) -> tuple[Hashable, ...]:
    return (question.tenant, question.groups, question.line)


def _kind_contexts(segment: Hashable, before: _Recent) -> list[Hashable]:
    """From short to long; classes hold no words, so all may learn from all."""
    contexts: list[Hashable] = [(), (segment,)]
    if before.kinds:
        last = before.kinds[-1]
        contexts += [("k", last), ("k", segment, last)]
        if len(before.kinds) > 1:
            contexts.append(("kk", segment, *before.kinds))
    return contexts


def _question_contexts(segment: Hashable, before: _Recent) -> list[Hashable]:
    """From short to long."""
    contexts: list[Hashable] = [(segment,)]
    if before.questions:
        contexts += [("k", segment, before.kinds[-1]), ("q", segment, before.questions[-1])]
        if len(before.questions) > 1:
            contexts.append(("qq", segment, *before.questions))
    return contexts


_encode = msgspec.msgpack.Encoder(order="deterministic").encode


def _key(question: Question) -> bytes:
    """Stands for a question however it is spelled."""
    parts = (
        question.tenant,
        question.groups,
        question.line,
        question.kb,
        canonical(question.text),
        question.top_k,
        question.filter,
    )
    return blake2b(_encode(parts), digest_size=8).digest()
