"""Reads questions: language, kind, what they leave out, their parts, their senses."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

import msgspec

from forebay.kernel.documents import Hit, Vectors
from forebay.kernel.errors import InvalidRequest
from forebay.kernel.stages import Likeness, Message, QueryKind, Sense, Understood
from forebay.query.ambiguity import may_be_ambiguous, senses_of
from forebay.query.classifier import KindClassifier
from forebay.query.compound import parts_of
from forebay.query.followup import MOST_CHARACTERS, MOST_TURNS, standalone
from forebay.query.kinds import READ_CHARACTERS, Guess, kind_of
from forebay.query.language import language_of
from forebay.query.namesakes import MOST_UNCLEAR_CHARACTERS, namesakes, pieces
from forebay.query.replies import ask_back, asked_back, chat_reply, replies_in
from forebay.query.settings import QuerySettings

LIKELY = 0.5
"""Of a kind by the classifier where no word gave it away."""

LEAST_UNITS = 3
_UNITS = re.compile(r"[\u3400-\u9fff]|[^\W\d_\u3400-\u9fff]+")

_SEAM = re.compile(r"[?.!]\s+\S|[？。！]\s*\S")
"""Where one sentence ends and another begins."""

BESIDE: tuple[QueryKind, ...] = ("chat", "out_of_scope")
"""Kinds of what is not about documents."""

REMEMBERED_CHARACTERS = 500
"""Of a question whose reading is kept: 4,096 of them take a few megabytes."""

_guess = lru_cache(maxsize=4096)(kind_of)
_ambiguous_at_most = lru_cache(maxsize=4096)(may_be_ambiguous)


def _ambiguous(question: str) -> bool:
    short = len(question) <= REMEMBERED_CHARACTERS
    return _ambiguous_at_most(question) if short else may_be_ambiguous(question)


def says_enough(question: str) -> bool:
    """Whether a question has words enough to have a kind; one name alone has none."""
    return len(_UNITS.findall(question[:READ_CHARACTERS])) >= LEAST_UNITS


def kind_by_words(query: str) -> QueryKind:
    """The kind that retrieval is told: of the words alone, so that it is the same every time."""
    return _guess(query[:READ_CHARACTERS]).kind


def _parts(question: str, asked: str) -> tuple[str, ...]:
    """What to look up beside ``question``; never an earlier question put in front of ``asked``."""
    parts = parts_of(question)
    if question == asked or _SEAM.search(question) is None or _SEAM.search(asked) is not None:
        return parts
    return parts[1:] if parts_of(asked) else ()


def _unsettled(question: str, before: Sequence[Message]) -> bool:
    """Whether nothing that a short question names was asked about before: that says which."""
    if len(question) > MOST_UNCLEAR_CHARACTERS:
        return False
    named = pieces(question)
    said = (one.content for one in before if one.role == "user")
    return all(named.isdisjoint(pieces(one[:MOST_CHARACTERS])) for one in said)


class RuleReader:
    """``QueryReader`` by rules and, after the search, by a classifier over the question's vector.

    ``classifier`` None: rules alone.
    """

    def __init__(self, settings: QuerySettings, classifier: KindClassifier | None = None) -> None:
        self._settings = settings
        self._classifier = classifier
        self._alone = lru_cache(maxsize=4096)(lambda message: self._read((message,)))

    def read(self, messages: Sequence[Message]) -> Understood:
        """See ``QueryReader``; ``InvalidRequest`` without a user message at the end."""
        if len(messages) == 1 and len(messages[0].content) <= REMEMBERED_CHARACTERS:
            # Many ask the same, and rules read it the same each time.
            return self._alone(messages[0])
        return self._read(messages)

    def _read(self, messages: Sequence[Message]) -> Understood:
        if not messages or messages[-1].role != "user":
            raise InvalidRequest("the last message must be the user's.", param="messages")
        asked = messages[-1].content
        question = self._standalone(asked, messages[:-1])
        language = language_of(asked)
        kind = kind_by_words(question)
        settings = self._settings
        if kind == "chat":
            # Whoever gives rules of their own may have given manners, too.
            fixed = settings.chat_replies and all(one.role != "system" for one in messages)
            reply = chat_reply(language, asked) if fixed else ""
            return Understood(question, language, kind, reply=reply)
        return Understood(
            question,
            language,
            kind,
            rewritten=question != asked,
            parts=_parts(question, asked) if settings.splitting else (),
            unclear=settings.ambiguity != "off" and _unsettled(question, messages[:-1]),
        )

    def judge(
        self, understood: Understood, vector: Vectors | None, hits: Sequence[Hit]
    ) -> Understood:
        """See ``QueryReader``; a refusal is the ``reply`` to what no document answers."""
        settings = self._settings
        guess = _guess(understood.question[:READ_CHARACTERS])
        best = max((hit.score for hit in hits), default=0.0)
        found = best > settings.out_of_scope_max_score
        kind, out_of_scope = self._judged(understood.question, guess, vector, found=found)
        reply = understood.reply
        if (
            settings.out_of_scope
            and not found
            and out_of_scope >= settings.out_of_scope_probability
        ):
            reply = replies_in(understood.language, understood.question).out_of_scope
        unclear = understood.unclear and _ambiguous(understood.question)
        if (kind, reply, unclear) != (understood.kind, understood.reply, understood.unclear):
            judged = msgspec.structs.replace(understood, kind=kind, reply=reply, unclear=unclear)
        else:
            judged = understood
        if reply or not understood.unclear or understood.parts:
            return judged
        senses = namesakes(understood.question, hits)
        return (
            msgspec.structs.replace(self._with(judged, senses), unclear=False) if senses else judged
        )

    def senses(self, understood: Understood, hits: Sequence[Hit], likeness: Likeness) -> Understood:
        """See ``QueryReader``."""
        settings = self._settings
        senses = senses_of(
            understood.question,
            hits,
            likeness,
            related=settings.related_percentile,
            unrelated=settings.unrelated_percentile,
            lone=settings.lone_percentile,
        )
        return self._with(understood, senses) if senses else understood

    def _with(self, understood: Understood, senses: tuple[Sense, ...]) -> Understood:
        mode = self._settings.ambiguity
        reply = understood.reply
        if mode == "ask":
            reply = ask_back(understood.language, understood.question, senses)
        return msgspec.structs.replace(understood, senses=senses, reply=reply, each=mode == "each")

    def _judged(
        self, question: str, guess: Guess, vector: Vectors | None, *, found: bool
    ) -> tuple[QueryKind, float]:
        """The kind, and how probable it is that no document answers.

        What the search ``found`` is about the documents, whatever its words sound like.
        """
        shares = None
        if self._classifier is not None and vector is not None and says_enough(question):
            shares = self._classifier.probabilities(vector)
        beside = guess.kind == "out_of_scope"
        if shares is None:
            return ("fact" if beside and found else guess.kind), float(beside)
        out_of_scope = shares["out_of_scope"]
        if found:
            shares = {kind: share for kind, share in shares.items() if kind not in BESIDE}
        best = max(shares, key=lambda kind: shares[kind])
        if found:
            guess = Guess("fact", sure=False) if beside else guess
        elif beside:
            # Its words and its vector each may say so.
            return guess.kind, 1.0 if best == guess.kind else max(out_of_scope, LIKELY)
        elif out_of_scope >= self._settings.out_of_scope_probability:
            return "out_of_scope", out_of_scope
        return (guess.kind if guess.sure or shares[best] < LIKELY else best), out_of_scope

    def _standalone(self, asked: str, before: Sequence[Message]) -> str:
        if not self._settings.rewriting or not before or len(asked) > MOST_CHARACTERS:
            return asked
        earlier = [
            one.content
            for one in before
            if one.role == "user" and len(one.content) <= MOST_CHARACTERS
        ]
        earlier = [said for said in earlier[-2 * MOST_TURNS :] if kind_by_words(said) != "chat"]
        if not earlier or kind_by_words(asked) == "chat":
            return asked
        last = before[-1]
        if last.role == "assistant" and asked_back(last.content):
            return f"{standalone(earlier[-1], earlier[:-1]).rstrip('?？。. ')} {asked.strip()}"
        return standalone(asked, earlier)
