"""Answer events as chunks of an OpenAI stream.

The last chunk that has content also has the citations and the ``forebay`` object, and nobody
knows which chunk is the last before the end has come. So the end of the text written so far
(its last character, or a whole citation marker) is held back until more text or the end
arrives. A first text that is no longer than that is sent at once: the first token is what people
wait for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import msgspec

from forebay.gateway.rendering import AnswerFrame, citation_body, usage_body
from forebay.pipeline.messages import AnswerDelta, AnswerEnd
from forebay.wire.chat import ChatChunk, ChunkChoice, CitationBody, Delta, ForebayBody, UsageBody
from forebay.wire.encoding import encode_json
from forebay.wire.sse import DONE, encode_data

_MARKER = re.compile(r"\[\d{1,3}\]\Z")
_CONTENT = b'"content":""'


class ChunkWriter:
    """Encodes one answer; feed it batches until ``ended``."""

    def __init__(self, frame: AnswerFrame, closing: Callable[[AnswerEnd], ForebayBody]) -> None:
        self._frame = frame
        self._closing = closing
        self._held = ""
        self._role_sent = False
        self._around: tuple[bytes, bytes] | None = None
        self.end: AnswerEnd | None = None

    @property
    def ended(self) -> bool:
        """Whether the answer's end has been encoded."""
        return self.end is not None

    def encode(self, events: Sequence[AnswerDelta | AnswerEnd]) -> bytes:
        """Return the bytes to send for what arrived together; may be empty."""
        pieces: list[str] = []
        for event in events:
            if isinstance(event, AnswerEnd):
                self.end = event
                break
            pieces.append(event.text)
        text = self._held + "".join(pieces)
        if self.end is not None:
            self._held = ""
            return self._last(text, self.end)
        return self._text(self._hold_back(text))

    def piece(self, text: str) -> bytes:
        """The same for text alone, a token as a rule."""
        return self._text(self._hold_back(self._held + text))

    def flush(self) -> bytes:
        """What was held back, for an answer that ends in an error."""
        text, self._held = self._held, ""
        return self._text(text)

    def _hold_back(self, text: str) -> str:
        if not text:
            return text
        at = len(text) - 1
        if text[at] == "]" and (marker := _MARKER.search(text, max(0, at - 4))):
            at = marker.start()
        if at == 0 and not self._role_sent:
            return text
        self._held = text[at:]
        return text[:at]

    def _text(self, text: str) -> bytes:
        """A chunk that has nothing but text; all of them have the same bytes around it."""
        if not text:
            return b""
        if not self._role_sent:
            return self._chunk(self._delta(text))
        if self._around is None:
            before, key, after = self._chunk(Delta(content="")).partition(_CONTENT)
            self._around = before + key[:-2], after
        return encode_json(text).join(self._around)

    def _delta(self, text: str) -> Delta:
        if self._role_sent:
            return Delta(content=text)
        self._role_sent = True
        return Delta(role="assistant", content=text)

    def _last(self, text: str, end: AnswerEnd) -> bytes:
        citations = tuple(citation_body(citation) for citation in end.citations)
        parts = [
            self._chunk(self._delta(text), citations=citations, forebay=self._closing(end)),
            self._chunk(Delta(), finish_reason=end.finish_reason),
        ]
        if self._frame.with_usage:
            parts.append(self._event((), usage=usage_body(end.usage)))
        parts.append(DONE)
        return b"".join(parts)

    def _chunk(
        self,
        delta: Delta,
        *,
        finish_reason: str | None = None,
        citations: tuple[CitationBody, ...] | msgspec.UnsetType = msgspec.UNSET,
        forebay: ForebayBody | msgspec.UnsetType = msgspec.UNSET,
    ) -> bytes:
        return self._event(
            (ChunkChoice(delta, finish_reason),),  # type: ignore[arg-type]
            citations=citations,
            forebay=forebay,
        )

    def _event(
        self,
        choices: tuple[ChunkChoice, ...],
        *,
        usage: UsageBody | None = None,
        citations: tuple[CitationBody, ...] | msgspec.UnsetType = msgspec.UNSET,
        forebay: ForebayBody | msgspec.UnsetType = msgspec.UNSET,
    ) -> bytes:
        frame = self._frame
        chunk = ChatChunk(
            id=frame.id,
            created=frame.created,
            model=frame.model,
            choices=choices,
            usage=usage if frame.with_usage else msgspec.UNSET,
            citations=citations,
            forebay=forebay,
        )
        return encode_data(encode_json(chunk))
