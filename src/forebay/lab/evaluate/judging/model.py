"""A model behind an endpoint as a judge: it orders, scores and checks (F3.12)."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Sequence
from typing import Annotated, Generic, TypeVar

import msgspec
import numpy as np

from forebay.kernel.errors import EngineError
from forebay.kernel.stages import Message
from forebay.lab.evaluate.datasets import Question
from forebay.lab.evaluate.judging import prompts
from forebay.lab.evaluate.judging.bias import BiasSettings, corrected, importances
from forebay.lab.evaluate.judging.endpoint import ChatEndpoint
from forebay.lab.evaluate.judging.forms import Form, check_form, order_form, score_form
from forebay.lab.evaluate.judging.replies import MalformedReply, read_reply
from forebay.lab.evaluate.judging.verdicts import Judgement, Verdict
from forebay.lab.evaluate.target import Passage

T = TypeVar("T")
_Any = TypeVar("_Any")
Points = Annotated[float, msgspec.Meta(ge=0, le=10)]
_TOP = 10.0


class JudgeWeights(msgspec.Struct, frozen=True, kw_only=True):
    """What a score is made of; shares of relevance, information and place sum to 1."""

    relevance: float = 0.5
    information: float = 0.3
    place: float = 0.2
    redundancy: float = 0.1
    """Taken off."""


class _Order(msgspec.Struct):
    order: list[int]


class _Score(msgspec.Struct):
    relevance: Points
    information: Points
    redundancy: Points = 0.0


class _Scores(msgspec.Struct):
    scores: dict[str, _Score]


class _Check(msgspec.Struct):
    consistent: bool
    relevance: dict[str, Points] = {}


class _Step(msgspec.Struct, Generic[_Any], frozen=True):
    """One of the three questions, and the form of its reply."""

    messages: tuple[Message, ...]
    form: Form
    kind: type[_Any]
    language: str


class ModelJudge:
    """Asks three times about all passages of a question, which it sees in a drawn order.

    ``count`` tells a text's tokens. ``malformed`` counts those of the ``replies`` that could not be
    read; each is asked for once more, then the question has no judgement.
    """

    def __init__(
        self,
        endpoint: ChatEndpoint,
        count: Callable[[str], int],
        *,
        seed: int = 1,
        weights: JudgeWeights | None = None,
        bias: BiasSettings | None = None,
    ) -> None:
        self._endpoint = endpoint
        self._count = count
        self._seed = seed
        self._weights = weights or JudgeWeights()
        self._bias = bias or BiasSettings()
        self.replies = self.malformed = 0

    async def judge(self, question: Question, passages: Sequence[Passage]) -> Judgement:
        """Verdicts in the order of ``passages``; ``EngineError`` when replies stay unreadable."""
        if not passages:
            return Judgement(())
        seen = _drawn(len(passages), f"{self._seed} {question.id}")
        texts = [_shown(passages[at]) for at in seen]
        about, count = (question.text, texts, question.language), len(texts)
        ranked = await self._ask(
            _Step(prompts.order(*about), order_form(count), _Order, question.language),
            lambda found: _order_of(found, count),
        )
        scores = await self._ask(
            _Step(prompts.score(*about), score_form(count), _Scores, question.language),
            lambda found: _scores_of(found, count),
        )
        relevance = [one.relevance for one in scores]
        asked = prompts.check(*about, (ranked, relevance))
        checked = await self._ask(
            _Step(asked, check_form(count), _Check, question.language),
            lambda found: _revised(found, relevance),
        )
        verdicts = self._verdicts(texts, ranked, scores, checked)
        return Judgement(
            tuple(verdicts[seen.index(at)] for at in range(len(passages))),
            consistency(ranked, checked),
            checked != relevance,
        )

    async def _ask(self, step: _Step[_Any], read: Callable[[_Any], T]) -> T:
        messages = step.messages
        for last in (False, True):
            reply = await self._endpoint.complete(messages, step.form)
            self.replies += 1
            try:
                return read(read_reply(reply, step.kind))
            except MalformedReply as error:
                self.malformed += 1
                if last:
                    raise EngineError(f"{error}, twice.") from error
                messages = prompts.again(messages, reply, str(error), step.language)
        raise AssertionError("the last reply is returned or refused")

    def _verdicts(
        self,
        texts: Sequence[str],
        ranked: Sequence[int],
        scores: Sequence[_Score],
        relevance: Sequence[float],
    ) -> list[Verdict]:
        weights, count = self._weights, len(texts)
        places = [ranked.index(number) for number in range(1, count + 1)]
        raw = [
            weights.relevance * value / _TOP
            + weights.information * one.information / _TOP
            + weights.place * (1 - place / (count - 1) if count > 1 else value / _TOP)
            - weights.redundancy * one.redundancy / _TOP
            for value, one, place in zip(relevance, scores, places, strict=True)
        ]
        raw = [float(value) for value in np.clip(raw, 0.0, 1.0)]
        fair = corrected(raw, [self._count(text) for text in texts], self._bias)
        shares = importances(fair)
        return [
            Verdict(
                score=raw[at],
                corrected=float(fair[at]),
                importance=float(shares[at]),
                relevance=relevance[at] / _TOP,
                information=scores[at].information / _TOP,
                redundancy=scores[at].redundancy / _TOP,
                place=places[at] + 1,
            )
            for at in range(count)
        ]


def consistency(ranked: Sequence[int], relevance: Sequence[float]) -> float:
    """The share of pairs, among those of different relevance, that the order puts alike."""
    alike = pairs = 0
    for place, better in enumerate(ranked):
        for worse in ranked[place + 1 :]:
            difference = relevance[better - 1] - relevance[worse - 1]
            pairs += difference != 0
            alike += difference > 0
    return alike / pairs if pairs else 1.0


def _drawn(count: int, key: str) -> list[int]:
    """A permutation that depends on ``key`` alone."""
    order = list(range(count))
    random.Random(zlib.crc32(key.encode("utf-8", "replace"))).shuffle(order)  # noqa: S311
    return order


def _shown(passage: Passage) -> str:
    return f"{passage.title}\n{passage.text}" if passage.title else passage.text


def _order_of(found: _Order, count: int) -> list[int]:
    if sorted(found.order) != list(range(1, count + 1)):
        raise MalformedReply(f"the order must name 1 to {count} once each")
    return found.order


def _scores_of(found: _Scores, count: int) -> list[_Score]:
    numbers = [str(number) for number in range(1, count + 1)]
    if found.scores.keys() != set(numbers):
        raise MalformedReply(f"there must be scores for each of the passages 1 to {count}")
    return [found.scores[number] for number in numbers]


def _revised(found: _Check, relevance: list[float]) -> list[float]:
    """Relevances after the check: where the judge changed its mind, the mean of both."""
    if found.consistent or not found.relevance:
        return relevance
    wanted = {str(number) for number in range(1, len(relevance) + 1)}
    if not found.relevance.keys() <= wanted:
        raise MalformedReply("the relevance must be of passages that were shown")
    return [
        (value + found.relevance.get(str(number), value)) / 2
        for number, value in enumerate(relevance, 1)
    ]
