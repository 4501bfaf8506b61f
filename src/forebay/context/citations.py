"""Citation markers in a stream: understood, checked, normalised, collected.

``[2]``, ``[1][2]``, ``[1, 3]``, ``【2】`` and ``［2］`` become ``[n]``, 1-based. Markers that point
to no passage are dropped and counted. Left alone are: fenced and inline code, Markdown links
(``[1](…)``), and an index on a name (``arr[1] = 2``, ``x[0]``, ``rows_a[7]``). A marker right after
a word ("30 days[1].") counts. The output does not depend on how the text was cut into pieces.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

import msgspec

from forebay.kernel.documents import Hit

_SPECIAL = re.compile(r"[ \t]*[\[【［]|[`~]+|\n")
_MARKER = re.compile(
    r"[\[【［]\s{0,3}(\d{1,4}(?:\s{0,3}[,，、;；]\s{0,3}\d{1,4}){0,15})\s{0,3}"
    r"(?:†[^\[\]【】［］\n]{0,40})?[\]】］]"
)
_PARTIAL = re.compile(
    r"[\[【［]\s{0,3}(?:\d{1,4}(?:\s{0,3}[,，、;；]\s{0,3}\d{1,4}){0,15}"
    r"(?:\s{0,3}[,，、;；])?\s{0,3}(?:†[^\[\]【】［］\n]{0,40})?)?"
)
_HELD_TAIL = re.compile(r"[ \t]+\Z|[`~]+\Z")
_NAME = re.compile(r"[A-Za-z0-9_$.()\]'\"]+\Z")
_CODE_NEXT = re.compile(r"\(|\.[A-Za-z_]|\s?[-+*/%&|^]?=|\s?[<>]")
_ENDING = re.compile(r"\Z|[.,;:!?。，；：！？、)）\n\[【［]")
_LOOKAHEAD = 3
_TAIL = 64
_WORD = re.compile(r"[0-9A-Za-z]+|[\u3400-\u9fff\uf900-\ufaff]+")
_SENTENCE = re.compile(r"[^.!?。！？\n]+[.!?。！？\n]*")


class Cited(msgspec.Struct, frozen=True):
    """What one answer cites: passage numbers in order of first use, and bad markers dropped."""

    numbers: tuple[int, ...]
    invalid: int


class CitationStream:
    """Cleans the markers of one answer; feed pieces, then ``finish`` once."""

    def __init__(self, passages: Sequence[Hit], *, attach: bool = True) -> None:
        self._passages = passages
        self._attach = attach
        self._held = ""
        self._tail = ""
        self._fence: str | None = None
        self._code: str | None = None
        self._numbers: list[int] = []
        self._invalid = 0
        self._text: list[str] = []

    def feed(self, text: str) -> str:
        """Return the text that is certain after ``text`` arrived."""
        self._held += text
        return self._emit(final=False)

    def finish(self) -> tuple[str, Cited]:
        """Return the rest of the text, and what was cited.

        When the text cites nothing, passages that support its sentences are cited at its end.
        """
        rest = self._emit(final=True)
        if not self._numbers and self._attach:
            body = "".join(self._text)
            self._numbers = supporting(body, self._passages)
            rest += "".join(f"[{number}]" for number in self._numbers)
        return rest, Cited(tuple(self._numbers), self._invalid)

    def _emit(self, *, final: bool) -> str:
        out: list[str] = []
        held, at = self._held, 0
        while True:
            found = _SPECIAL.search(held, at)
            if found is None:
                end = len(held)
                if not final and (waiting := _HELD_TAIL.search(held, at)):
                    end = waiting.start()
                self._pass(held[at:end], out)
                at = end
                break
            self._pass(held[at : found.start()], out)
            at = found.start()
            step = self._special(held, found, out, final=final)
            if step is None:
                break
            at = step
        self._held = held[at:]
        text = "".join(out)
        if self._attach and not self._numbers:
            self._text.append(text)
        return text

    def _special(
        self, held: str, found: re.Match[str], out: list[str], *, final: bool
    ) -> int | None:
        """Handle what ``found`` begins; return where to go on, or None to wait for more."""
        mark = found.group()
        if mark == "\n":
            self._code = None
            self._pass("\n", out)
            return found.end()
        if mark[0] in "`~":
            if found.end() == len(held) and not final:
                return None
            self._ticks(mark)
            self._pass(mark, out)
            return found.end()
        return self._bracket(held, found, out, final=final)

    def _ticks(self, run: str) -> None:
        line_start = not self._tail.rpartition("\n")[2].strip()
        if len(run) >= 3 and line_start and self._code is None:
            if self._fence is None:
                self._fence = run[0]
            elif self._fence == run[0]:
                self._fence = None
        elif self._fence is None and run[0] == "`":
            if self._code is None:
                self._code = run
            elif self._code == run:
                self._code = None

    def _bracket(
        self, held: str, found: re.Match[str], out: list[str], *, final: bool
    ) -> int | None:
        start = found.end() - 1
        if self._fence is not None or self._code is not None:
            self._pass(found.group(), out)
            return found.end()
        marker = _MARKER.match(held, start)
        if marker is None:
            if not final and _PARTIAL.fullmatch(held, start):
                return None
            self._pass(found.group(), out)
            return found.end()
        if not final and len(held) - marker.end() < _LOOKAHEAD:
            return None
        numbers = [int(number) for number in re.findall(r"\d+", marker.group(1))]
        after = held[marker.end() : marker.end() + _LOOKAHEAD]
        space = found.group()[:-1]
        if marker.group()[0] == "[" and self._is_text(numbers, space, after):
            self._pass(space + marker.group(), out)
            return marker.end()
        self._cite(numbers, space, out)
        return marker.end()

    def _is_text(self, numbers: list[int], space: str, after: str) -> bool:
        """Whether an ASCII bracket is an index or a link rather than a citation."""
        if after.startswith("("):
            return True
        if space:
            return False
        name = _NAME.search(self._tail)
        if name is None or name.group().endswith(("]", ".", ")", '"', "'")):
            return False
        if 0 in numbers or _CODE_NEXT.match(after):
            return True
        word = name.group()
        if any(character in word for character in "_$.()") or len(word) == 1:
            return not word.isdigit()
        return not _ENDING.match(after) and (len(word) < 4 and not word.isdigit())

    def _cite(self, numbers: list[int], space: str, out: list[str]) -> None:
        good = [number for number in numbers if 1 <= number <= len(self._passages)]
        self._invalid += len(numbers) - len(good)
        for number in good:
            if number not in self._numbers:
                self._numbers.append(number)
        if good:
            self._pass(space + "".join(f"[{number}]" for number in dict.fromkeys(good)), out)

    def _pass(self, text: str, out: list[str]) -> None:
        if text:
            out.append(text)
            self._tail = (self._tail + text)[-_TAIL:]


def supporting(text: str, passages: Sequence[Hit]) -> list[int]:
    """Numbers of the passages that support the sentences of ``text``, in order of first use.

    A passage supports a sentence when it holds at least six in ten of the sentence's words (Han
    text by pairs of characters) and no other passage holds more.
    """
    bags = [_terms(f"{hit.chunk.context} {hit.chunk.text}") for hit in passages]
    numbers: list[int] = []
    for sentence in _SENTENCE.findall(text):
        wanted = _terms(sentence)
        if len(wanted) < 3:
            continue
        shares = [len(wanted & bag) / len(wanted) for bag in bags]
        best = max(range(len(shares)), key=shares.__getitem__, default=None)
        if best is not None and shares[best] >= 0.6 and best + 1 not in numbers:
            numbers.append(best + 1)
    return numbers


def _terms(text: str) -> set[str]:
    found: set[str] = set()
    for run in _WORD.findall(unicodedata.normalize("NFKC", text).lower()):
        if run.isascii():
            found.add(run)
        else:
            found.update(run[i : i + 2] for i in range(max(1, len(run) - 1)))
    return found
