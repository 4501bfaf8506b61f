"""The citations of one answer: clean markers in its stream, and which passages they name.

What counts as a marker is said in ``forebay.context.markers``. What was sent is never taken back:
the stream and the final text are the same string.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from forebay.context.attribution import MAX_TEXT_CHARACTERS, supporting
from forebay.context.markers import MarkerStream
from forebay.kernel.documents import Hit

__all__ = ["CitationStream", "Cited", "supporting"]

_HALF_MARKER = re.compile(r"[ \t]*[\[【［]\s*[0-9０-９]{0,3}\Z")


class Cited(msgspec.Struct, frozen=True):
    """What one answer cites: passage numbers in order of first use, and bad markers dropped."""

    numbers: tuple[int, ...]
    invalid: int


class CitationStream:
    """Cleans the markers of one answer; feed pieces, then ``finish`` once.

    With ``attach``, passages that hold the answer's sentences are cited after its text when the
    text cites nothing itself.
    """

    def __init__(self, passages: Sequence[Hit], *, attach: bool = True) -> None:
        self._passages = tuple(passages)
        self._attach = attach
        self._markers = MarkerStream(len(passages))
        self._text: list[str] = []
        self._characters = 0
        self._last = ""

    def feed(self, text: str) -> str:
        """Return the text that is certain after ``text`` arrived; may be empty."""
        certain = self._markers.feed(text)
        return self._keep(certain) if certain else certain

    def finish(self, *, refused: bool = False) -> tuple[str, Cited]:
        """Return the rest of the text, and what was cited; nothing is attached to a refusal."""
        rest = self._markers.finish()
        cut = _HALF_MARKER.search(rest)
        numbers: Sequence[int] = self._markers.cited
        attaching = self._attach and not (numbers or refused)
        if attaching:
            numbers = supporting("".join((*self._text, rest)), self._passages)
        if numbers and cut is not None and not self._markers.in_code:
            # A bound on tokens ended the text inside a marker: the half of it is no text.
            rest = rest[: cut.start()]
        rest = self._keep(rest)
        # Behind an open fence a marker would be code: then only the list says it.
        if attaching and numbers and not self._markers.in_code:
            rest += self._trailing(numbers)
        return rest, Cited(tuple(numbers), self._markers.invalid)

    def _keep(self, text: str) -> str:
        if text:
            self._last = text[-1]
            if self._attach and self._characters < MAX_TEXT_CHARACTERS:
                self._text.append(text)
                self._characters += len(text)
        return text

    def _trailing(self, numbers: Sequence[int]) -> str:
        """Markers after the text: below code, glued to what is before elsewhere."""
        markers = "".join(f"[{number}]" for number in numbers)
        return "\n\n" + markers if self._last in "`~" else markers
