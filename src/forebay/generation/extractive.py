"""The default backend: the sentences that answer, quoted and cited, or a refusal.

Needs no model, takes a fraction of a millisecond to a few, and is the last rung of any ladder.
Quotes stay in their source's language; the words around them are in the question's.
"""

from __future__ import annotations

import math
import re
from collections.abc import AsyncGenerator, Sequence

import msgspec

from forebay.folding import simplified
from forebay.generation.answer_types import AnswerType
from forebay.generation.contrast import leans_away
from forebay.generation.crossing import (
    across,
    agrees,
    another_telling,
    are_alike,
    choose_crossing,
    without_lesser,
)
from forebay.generation.frames import Frame, frame_for, is_greeting
from forebay.generation.lists import Quoted, place_of, with_siblings
from forebay.generation.nearness import (
    Nearness,
    nearness_score,
    with_nearness,
    within_score,
)
from forebay.generation.opposing import opposing
from forebay.generation.passages import PassageCache, cells
from forebay.generation.ranges import by_range, is_of_other_days
from forebay.generation.selection import choose
from forebay.generation.settings import ExtractiveSettings
from forebay.generation.siblings import is_another
from forebay.generation.statements import Telling, TellingModel, says_all, showing, telling_score
from forebay.generation.subjects import Subject
from forebay.generation.support import (
    Reading,
    Scored,
    SupportModel,
    Weights,
    held_of,
    of_siblings_only,
    read,
    said_of,
)
from forebay.generation.terms import MAX_QUESTION_CHARACTERS, Term, question_terms
from forebay.generation.titles import without_siblings
from forebay.generation.typos import respelt
from forebay.kernel.context import RequestContext
from forebay.kernel.documents import Hit
from forebay.kernel.errors import DeadlineExceeded
from forebay.kernel.stages import (
    Finished,
    FinishReason,
    GenerationRequest,
    TextDelta,
    TokenCounter,
)

MODEL = "extractive"

# Fitted by benchmarks/extractive/measure.py; see the paragraph there.
SUPPORT = SupportModel(
    words=Weights(constant=-10.29, window=7.38, found=6.68, names_missing=-1.08),
    words_share=Weights(constant=-11.67, window=5.55, found=6.45, names_missing=-0.98, share=9.88),
    vectors=Weights(
        constant=-11.67, window=5.99, found=6.34, names_missing=-0.95, cosine_lead=1.60
    ),
    vectors_share=Weights(
        constant=-11.25,
        window=2.47,
        found=3.30,
        names_missing=-1.58,
        share=22.76,
        cosine_lead=0.88,
    ),
    # What is found by the lexicon, of what it can tell, beside the passages' scores.
    crossing=Weights(
        constant=-2.94, window=0.5, found=2.52, told=-1.7, share=3.51, cosine_lead=2.11
    ),
    crossing_lead=Weights(constant=-2.22, window=0.5, found=2.61, told=-1.7, cosine_lead=2.45),
)

# Fitted by benchmarks/answers; see the paragraph there.
TELLING = TellingModel(
    han=Telling(constant=4.3, open=-5.32, named=-2.72, measured=2.2, typed=-0.38),
    han_share=Telling(
        constant=-0.86, open=-2.4, named=-3.78, measured=2.29, typed=-0.71, share=9.81
    ),
    other=Telling(constant=4.61, open=-5.28, named=-6.44, measured=1.47, typed=-0.52),
    other_share=Telling(
        constant=-0.36, open=-3.18, named=-14.0, measured=1.67, typed=-0.82, share=9.6
    ),
    crossing=Telling(constant=2.0, open=-2.8, named=-14.0, measured=0.0, typed=0.0),
)

MEASURED = 0.9
"""Log-odds of a quotation that shows the measure asked for, a duration or a price."""
WHOLE = 1.2
"""Log-odds of a statement that holds every word of the question: short ones hold little weight."""
AGREEING = 1.5
"""Log-odds of a code or mark that question and passage share across languages, fitted likewise."""

_OF_OTHERS = 0.6
"""Of what a statement about a sibling holds of the question, what one that answers must hold."""

_BRACKETED_NUMBER = re.compile(r"\[(\s*\d[\d\s,，]*)\]")


class Draft(msgspec.Struct, frozen=True):
    """An answer before it is streamed: its pieces in order, and whether it is a refusal.

    ``unsure``: what is quoted may be no answer, and the text says so.
    """

    pieces: tuple[str, ...]
    refused: bool
    score: float
    unsure: bool = False


class ExtractiveGenerator:
    """Quotes; its cost does not depend on the answer's length."""

    def __init__(
        self,
        counter: TokenCounter,
        settings: ExtractiveSettings | None = None,
        model: SupportModel = SUPPORT,
    ) -> None:
        self._counter = counter
        self._settings = settings or ExtractiveSettings()
        self._model = model
        self._cache = PassageCache(max_entries=self._settings.cached_passages)

    async def generate(
        self, ctx: RequestContext, request: GenerationRequest
    ) -> AsyncGenerator[TextDelta | Finished, None]:
        """Yield the frame and the quotes one by one, then ``Finished``.

        ``DeadlineExceeded`` when the deadline has passed at the start.
        """
        if ctx.deadline.expired():
            raise DeadlineExceeded("The request's deadline passed before the answer was written.")
        draft = self.draft(request)
        budget = min(request.max_output_tokens, request.sampling.max_tokens or 1 << 30)
        pieces, reason = _bounded(draft.pieces, request.sampling.stop or (), budget, self._counter)
        for piece in pieces:
            yield TextDelta(piece)
        yield Finished(
            reason=reason,
            prompt_tokens=request.prompt_tokens,
            completion_tokens=self._counter.count("".join(pieces)),
            model=MODEL,
            refused=draft.refused,
            unsure=draft.unsure,
        )

    def draft(self, request: GenerationRequest) -> Draft:
        """Choose what to quote; a pure function of the request but for the passage cache."""
        frame = frame_for(request.language)
        question = simplified(request.question[:MAX_QUESTION_CHARACTERS])
        request = msgspec.structs.replace(request, question=question)
        if is_greeting(question):
            return Draft((frame.greeting,), refused=True, score=0.0)
        terms = question_terms(question)
        subject = Subject(question, terms)
        reading = self.read(terms, request, subject)
        passages = [self._cache.get(hit) for hit in request.passages]
        reading = without_siblings(reading, [one.head for one in passages], request.passages)
        reading, nearness = with_nearness(reading, request.sentences)
        if request.likeness:
            reading = msgspec.structs.replace(reading, likeness=request.likeness)
        terms = reading.terms
        asked = AnswerType(question), subject
        score = 0.0 if nearness else self._supported(asked, terms, reading)
        if not terms or score < 0.0:
            return Draft((frame.refusal,), refused=True, score=score)
        chosen = self._choose(request, terms, reading, asked)
        # Who approves such an amount is found by the amount.
        by_amount = subject.amounts and asked[0].asked and not reading.features.crossing
        typed = asked[0].is_measure or by_amount
        if typed and not any(asked[0].shown(one.unit, itself=True) for one in chosen):
            shown = showing(asked[0], reading, chosen)
            chosen = self._choose(request, terms, shown, asked) if shown.units else chosen
        if not chosen:
            return Draft((frame.refusal,), refused=True, score=score)
        if nearness:
            score = self._near(request, reading, asked, nearness, chosen)
        else:
            told = telling_score(asked, terms, reading, chosen, request.passages, TELLING)
            score = min(score, told)
        told = score >= 0.0 and not of_siblings_only(reading)
        units = [one.unit for one in chosen]
        told = told and not is_of_other_days(terms, subject.amounts, passages, units)
        told = told and _OF_OTHERS * reading.another <= max(said_of(reading, one) for one in chosen)
        if not told or is_another(question, terms, reading.held, chosen):
            return Draft((frame.refusal,), refused=True, score=score)
        chosen = self._with_opposing(request, reading, asked[0], chosen)
        # Words alone are careful: what they let pass below that is right as often as above.
        unsure = nearness is not None and score < self._settings.plain_from
        opening = frame.nearest if unsure else frame.opening
        room = self._settings.max_quote_characters
        quoted = with_siblings(request, asked[0], reading, passages, chosen, room)
        pieces = tuple(_write(quoted, frame, opening))
        return Draft(pieces, refused=False, score=score, unsure=unsure)

    def _with_opposing(
        self, request: GenerationRequest, reading: Reading, kind: AnswerType, chosen: list[Scored]
    ) -> list[Scored]:
        """Where vectors say so, what another document says otherwise, too."""
        most = self._settings.max_quotes
        pair = opposing(request.question, kind, chosen, reading, request.passages)
        if pair is None or most < 2:
            return chosen
        rest = sorted((one for one in chosen if one is not pair[0]), key=lambda one: -one.fit)
        return sorted([*pair, *rest[: most - 2]], key=lambda one: (one.passage, one.position))

    def _supported(
        self, asked: tuple[AnswerType, Subject], terms: Sequence[Term], reading: Reading
    ) -> float:
        """Log-odds that passages speak of what is asked, by words and by their own vectors."""
        score = self._model.score(reading.features) - self._settings.strictness
        if not reading.features.crossing:
            # What shows no such measure is refused later.
            return score + MEASURED * asked[0].is_measure + WHOLE * says_all(terms, reading)
        return score + AGREEING * agrees(asked[1], reading.units)

    def _near(
        self,
        request: GenerationRequest,
        reading: Reading,
        asked: tuple[AnswerType, Subject],
        nearness: Nearness,
        chosen: Sequence[Scored],
    ) -> float:
        """Log-odds that ``chosen`` tells what is asked, by vectors of sentences."""
        strictness, terms = self._settings.strictness, reading.terms
        nearest = max(chosen, key=lambda one: one.near or 0.0)
        foreign = nearest.unit.has_han != any(term.han for term in terms)
        if reading.features.crossing or foreign:
            score = nearness_score(asked, reading, nearness, chosen) - strictness
            leans = reading.features.crossing and leans_away(chosen, reading)
            return -math.inf if leans else score
        score = within_score(asked, reading, nearness, chosen, request.passages) - strictness
        if not by_range(asked[1].amounts, [one.unit for one in chosen]):
            return score
        # Vectors know nothing of ranges that an amount falls into; words do.
        told = telling_score(asked, terms, reading, chosen, request.passages, TELLING)
        by_words = min(self._supported(asked, terms, reading), told)
        return max(score, 0.0, self._settings.plain_from) if by_words >= 0.0 else score

    def read(
        self, terms: Sequence[Term], request: GenerationRequest, subject: Subject | None = None
    ) -> Reading:
        """Look for the terms in the request's passages, but where they tell of something else."""
        passages = [self._cache.get(hit) for hit in request.passages]
        terms = respelt(terms, passages)
        return read(
            terms,
            request.passages,
            passages,
            subject or Subject(request.question, terms),
            shares=self._settings.scores_are_shares,
            cosine_deviation=self._settings.cosine_deviation,
        )

    def statistics(self) -> dict[str, int]:
        """What the passage cache holds."""
        return self._cache.statistics()

    def _choose(
        self,
        request: GenerationRequest,
        terms: Sequence[Term],
        reading: Reading,
        asked: tuple[AnswerType, Subject],
    ) -> list[Scored]:
        question, hits, units = request.question, request.passages, reading.units
        most = self._settings.max_quotes
        room = self._settings.max_quote_characters
        if not reading.features.crossing:
            chosen = choose(question, terms, hits, units, max_quotes=most, max_characters=room)
        else:
            chosen = choose_crossing(
                asked, terms, hits, units, max_quotes=most, max_characters=room
            )
        if not chosen or most < 2:
            return chosen
        chosen = without_lesser(reading.terms, chosen)
        return self._with_other_side(question, reading, hits, chosen, asked)

    def _with_other_side(
        self,
        question: str,
        reading: Reading,
        hits: Sequence[Hit],
        chosen: list[Scored],
        asked: tuple[AnswerType, Subject],
    ) -> list[Scored]:
        """Where words do not meet, another document's statement is found by other signs."""
        # What shows the thing asked for is likelier to be what is asked, then what holds most.
        crossing = reading.features.crossing

        def holds(one: Scored) -> float:
            return held_of(reading.terms, one) if crossing else one.fit

        shown = sorted(chosen, key=lambda one: (not asked[0].shown(one.unit), -holds(one)))
        for best in shown:
            if holds(best) < holds(shown[0]):
                break
            other = across(asked, question, best, reading, hits)
            if other is None and reading.features.crossing:
                other = another_telling(question, best, reading.units, hits)
            if (
                other is not None
                and other not in chosen
                and asked[0].shown(best.unit) == asked[0].shown(other.unit)
            ):
                rest = [one for one in shown if one is not best]
                kept = [best, other, *rest[: self._settings.max_quotes - 2]]
                if not are_alike(reading, best, other):
                    kept = without_lesser(reading.terms, kept)
                return sorted(kept, key=lambda one: (one.passage, one.position))
        return chosen


def _write(quoted: Quoted, frame: Frame, opening: str) -> list[str]:
    """Frame and quotations, each under the heading that stands above it in its passage; neighbours
    run together under one marker, those of a list line by line.
    """
    pieces = [opening + "\n"]
    groups: list[list[Scored]] = []
    for one in (msgspec.structs.replace(one, unit=one.unit.as_written) for one in quoted.units):
        last = groups[-1][-1] if groups else None
        if last and (_go_on(last, one) or quoted.go_on(last, one)):
            groups[-1].append(one)
        else:
            groups.append([one])
    lead = ""
    for group in groups:
        marker = f"[{group[0].passage + 1}]"
        first = group[0].unit
        if first.kind == "code":
            pieces.append(f"\n```\n{first.text}\n```\n{marker}\n")
            continue
        items = [one for one in group if one.unit.kind != "sentence"]
        head = _joined([_quotable(one, frame) for one in group if one.unit.kind == "sentence"])
        if items and items[0].unit.kind == "item":
            head = head or _escape(items[0].unit.lead) * (items[0].unit.lead != lead)
            lead = items[0].unit.lead
        lines = _lines(items, frame)
        if len(group) == 1:
            head, lines = " ".join(filter(None, (head, *lines))), []
        if first.section:
            head = frame.pair.format(name=_escape(first.section), value=head).rstrip()
        end = place_of(group[-1])
        left = quoted.left.get(end, 0)
        text = "\n> ".join(filter(None, (head, *lines)))
        told = frame.at_least if end in quoted.open else frame.more
        more = "\n> " + told.format(count=left) if left else ""
        pieces.append(f"\n> {text} {marker}{more}\n")
    pieces[-1] = pieces[-1].removesuffix("\n")
    return pieces


def _go_on(one: Scored, other: Scored) -> bool:
    """Whether a sentence goes on with the next."""
    return (
        one.passage == other.passage
        and one.position + 1 == other.position
        and {one.unit.kind, other.unit.kind} == {"sentence"}
        and one.unit.section == other.unit.section
    )


def _lines(items: Sequence[Scored], frame: Frame) -> list[str]:
    """The items of a list or the rows of a table, one a line; a single one without its mark."""
    texts = [_quotable(one, frame) for one in items]
    if len(items) < 2:
        return texts
    rest = "  " if any(one.unit.marker for one in items) else "- "
    return [
        _joined([one.unit.marker, text]) if one.unit.marker else rest + text
        for one, text in zip(items, texts, strict=True)
    ]


def _joined(texts: Sequence[str]) -> str:
    whole = ""
    for text in texts:
        whole += text if not whole or ord(whole[-1]) > 0x2E7F else " " + text
    return whole


def _quotable(one: Scored, frame: Frame) -> str:
    if one.unit.kind != "row":
        return _escape(one.unit.text)
    names, values = cells(one.unit.lead), cells(one.unit.text)
    pairs = [
        frame.pair.format(name=name, value=value) if name else value
        for name, value in zip([*names, *[""] * len(values)], values, strict=False)
        if value
    ]
    return _escape(frame.separator.join(pairs))


def _escape(text: str) -> str:
    """Keep a source's own ``[12]`` from being read as a citation of this answer."""
    return _BRACKETED_NUMBER.sub(r"\\[\1\\]", text)


def _bounded(
    pieces: Sequence[str], stop: Sequence[str], max_tokens: int, counter: TokenCounter
) -> tuple[list[str], FinishReason]:
    """Cut at the first stop sequence, then at the token bound; pieces keep their ends."""
    text = "".join(pieces)
    end = min((at for at in (text.find(one) for one in stop if one) if at >= 0), default=len(text))
    reason: FinishReason = "stop"
    if counter.count(text[:end]) > max_tokens:
        end, reason = _cut(text[:end], max_tokens, counter), "length"
    kept, used = [], 0
    for piece in pieces:
        part = piece[: max(0, end - used)]
        used += len(piece)
        if part:
            kept.append(part)
    return kept, reason


def _cut(text: str, max_tokens: int, counter: TokenCounter) -> int:
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        if counter.count(text[:middle]) <= max_tokens:
            low = middle
        else:
            high = middle - 1
    return low
