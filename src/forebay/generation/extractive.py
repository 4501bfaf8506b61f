"""The default backend: the sentences that answer, quoted and cited, or a refusal.

Needs no model, takes a fraction of a millisecond to a few, and is the last rung of any ladder.
Quotes stay in their source's language; the words around them are in the question's.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable, Sequence

import msgspec

from forebay.generation.frames import Frame, frame_for, is_greeting
from forebay.generation.passages import PassageCache, cells
from forebay.generation.selection import choose, lead_of
from forebay.generation.settings import ExtractiveSettings
from forebay.generation.siblings import is_another
from forebay.generation.support import Reading, Scored, SupportModel, Weights, read
from forebay.generation.terms import MAX_QUESTION_CHARACTERS, Term, question_terms
from forebay.kernel.context import RequestContext
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
    # The lead adds nothing to the share there, so it decides only where scores are no shares.
    crossing=Weights(constant=-7.65, found=2.56, share=25.23),
    crossing_lead=Weights(constant=-2.43, found=2.53, cosine_lead=2.62),
)

Respell = Callable[[str, str], str]
"""A question, and the texts in whose script it is to be written."""
_SCRIPT_CHARACTERS = 400
_BRACKETED_NUMBER = re.compile(r"\[(\s*\d[\d\s,，]*)\]")


class Draft(msgspec.Struct, frozen=True):
    """An answer before it is streamed: its pieces in order, and whether it is a refusal."""

    pieces: tuple[str, ...]
    refused: bool
    score: float


class ExtractiveGenerator:
    """Quotes; its cost does not depend on the answer's length.

    ``respell`` writes a question in the script of the texts beside it, so that a question in
    Traditional characters meets the words of Simplified passages.
    """

    def __init__(
        self,
        counter: TokenCounter,
        settings: ExtractiveSettings | None = None,
        model: SupportModel = SUPPORT,
        respell: Respell | None = None,
    ) -> None:
        self._counter = counter
        self._respell = respell or _as_it_is
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
        )

    def draft(self, request: GenerationRequest) -> Draft:
        """Choose what to quote; a pure function of the request but for the passage cache."""
        frame = frame_for(request.language)
        if is_greeting(request.question):
            return Draft((frame.greeting,), refused=True, score=0.0)
        request = self._in_their_script(request)
        terms = question_terms(request.question)
        reading = self.read(terms, request)
        score = self._model.score(reading.features) - self._settings.strictness
        if not terms or score < 0.0:
            return Draft((frame.refusal,), refused=True, score=score)
        chosen = self._choose(request, terms, reading)
        if not chosen or is_another(request.question, terms, reading.held, chosen):
            return Draft((frame.refusal,), refused=True, score=score)
        return Draft(tuple(_write(chosen, frame)), refused=False, score=score)

    def _in_their_script(self, request: GenerationRequest) -> GenerationRequest:
        question = request.question[:MAX_QUESTION_CHARACTERS]
        if question.isascii():
            return request
        texts = "".join(hit.chunk.text[:_SCRIPT_CHARACTERS] for hit in request.passages)
        return msgspec.structs.replace(request, question=self._respell(question, texts))

    def read(self, terms: Sequence[Term], request: GenerationRequest) -> Reading:
        """Look for the terms in the request's passages."""
        return read(
            terms,
            request.passages,
            [self._cache.get(hit) for hit in request.passages],
            shares=self._settings.scores_are_shares,
            cosine_deviation=self._settings.cosine_deviation,
        )

    def statistics(self) -> dict[str, int]:
        """What the passage cache holds."""
        return self._cache.statistics()

    def _choose(
        self, request: GenerationRequest, terms: Sequence[Term], reading: Reading
    ) -> list[Scored]:
        settings = self._settings
        if reading.features.crossing and reading.features.found <= 0.0:
            return lead_of(reading.units, max_characters=settings.max_quote_characters)
        return choose(
            request.question,
            terms,
            request.passages,
            reading.units,
            max_quotes=settings.max_quotes,
            max_characters=settings.max_quote_characters,
        )


def _as_it_is(question: str, texts: str) -> str:
    return question


def _write(chosen: Sequence[Scored], frame: Frame) -> list[str]:
    """Frame and quotations; neighbours in one passage run together under one marker."""
    pieces = [frame.opening + "\n"]
    groups: list[list[Scored]] = []
    for one in chosen:
        last = groups[-1][-1] if groups else None
        if (
            last is not None
            and last.passage == one.passage
            and last.position + 1 == one.position
            and {last.unit.kind, one.unit.kind} == {"sentence"}
        ):
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
        text = _joined([_quotable(one, frame) for one in group])
        if first.kind == "item" and first.lead:
            shown = "" if first.lead == lead else _escape(first.lead) + " "
            lead = first.lead
            text = shown + text
        pieces.append(f"\n> {text} {marker}\n")
    pieces[-1] = pieces[-1].removesuffix("\n")
    return pieces


def _joined(texts: Sequence[str]) -> str:
    whole = texts[0]
    for text in texts[1:]:
        whole += text if ord(whole[-1]) > 0x2E7F else " " + text
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
