"""Citation markers in a stream of Markdown: found, checked, normalised, whatever the chunking.

A pure transducer: any split of a text into pieces gives the same output as the whole. It holds
back only what may still become a marker, at most ``HELD_CHARACTERS_MAX`` characters.

A marker is one or more numbers of up to three digits in ``[]``, ``【】`` or ``［］``, separated by
commas (also ``，、;；``) or as a range (``1-3``), with an engine's own note after ``†`` or without;
it is written as ``[n]``, one for each number.
Numbers that name no passage are dropped and counted. Left alone:

- fenced code, code spans (one that is not closed ends with its line), brackets after a backslash;
- Markdown links: ``[1]`` directly before ``(``;
- subscripts outside code spans: directly after an ASCII word, when the word is a lower-case letter,
  a usual name of an array (``arr``, ``args`` …), has an underscore or ends a call ``()``; or when
  the bracket is followed by an assignment, ``++``, ``->`` or ``.name``. So "the answer[1]." and
  "FB-2041[1]" cite, ``arr[1]``, ``x[0]`` and ``row[1].name`` do not. After a Han character a
  bracket always cites.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Literal

HELD_CHARACTERS_MAX = 80

# Escaped, because it stands in character classes.
_OPEN, _CLOSE = r"\[【［", {"[": "]", "【": "】", "［": "］"}
_INNER = r"[0-9０-９\s,，、;；\-–—~～]"
_INNER_MAX = 32
_NOTE = r"†[^\[\]【】［］\n]"
_NOTE_MAX = 40
_PARTIAL = re.compile(rf"[{_OPEN}]{_INNER}{{0,{_INNER_MAX}}}(?:{_NOTE}{{0,{_NOTE_MAX}}})?\Z")
_NUMBER = r"[0-9０-９]{1,3}"
_PART = rf"{_NUMBER}(?:[ ]?[\-–—~～][ ]?{_NUMBER})?"
_BODY = re.compile(
    rf"(?P<inner>[ ]*(?P<body>{_PART}(?:[ ]*[,，、;；][ ]*{_PART})*)[ ]*)"
    rf"(?:{_NOTE}{{0,{_NOTE_MAX}}})?(?P<close>[\]】］])"
)
_SPECIAL = re.compile(rf"[{_OPEN}\\`~\n \t]")
_PLAIN = re.compile(rf"[ \t]*[^{_OPEN}\\`~\n \t]+(?:[ \t]+[^{_OPEN}\\`~\n \t]+)*")
_CODE_SPECIAL = re.compile(r"[`~\n]")
_TICKS = re.compile(rf"`{{1,{HELD_CHARACTERS_MAX}}}|~{{1,{HELD_CHARACTERS_MAX}}}")
_SPACES = re.compile(r"[ \t]+")
_WORD_BEFORE = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*\Z")
_FENCE_PREFIX = re.compile(r"[ \t>*+\-]*(?:\d{1,3}[.)][ \t]*)?\Z")
_ARRAY_NAMES = frozenset(
    "arr array args argv params list items values vals data buf buffer row rows col cols matrix "
    "vec vector nums str elem elems obj dict map result results res tmp idx index node nodes "
    "response resp choices self this".split()
)
_PUNCTUATION = frozenset(".,;:!?)]}。，、；：！？）】」』”’…")
_RANGE_MAX = 20
# Long texts are taken in slices, so that cutting the buffer stays cheap.
_SLICE = 512


class MarkerStream:
    """Feed text as it comes, then ``finish``; ``cited`` and ``invalid`` grow on the way."""

    def __init__(self, passages: int) -> None:
        self._passages = passages
        self._buffer = ""
        self._passed: list[str] = []
        self._line = ""
        self._before = ""
        self._mode: Literal["prose", "span", "info", "fence", "closing"] = "prose"
        self._ticks = 0
        self._tick = "`"
        self._subscript = False
        self._dropped = False
        self.cited: list[int] = []
        self.invalid = 0

    @property
    def in_code(self) -> bool:
        """Whether the text so far ends inside fenced code."""
        return self._mode in ("fence", "info")

    def feed(self, text: str) -> str:
        """Return what is certain now."""
        if (
            not self._buffer
            and self._mode == "prose"
            and not self._dropped
            and len(text) <= _SLICE
            and _PLAIN.fullmatch(text)
        ):
            # Words and nothing else, which is what most tokens are.
            self._subscript = False
            self._passed.append(text)
            return text
        self._catch_up()
        return "".join(self._take(text[at : at + _SLICE]) for at in range(0, len(text), _SLICE))

    def finish(self) -> str:
        """Return the held-back rest."""
        self._catch_up()
        return self._run(final=True)

    def _take(self, text: str) -> str:
        self._buffer += text
        return self._run(final=False)

    def _run(self, *, final: bool) -> str:
        out: list[str] = []
        while self._buffer:
            step = self._prose(final=final) if self._mode == "prose" else self._code(final=final)
            if step is None:
                break
            taken, written = step
            self._note(self._buffer[:taken])
            self._buffer = self._buffer[taken:]
            out.append(written)
        return "".join(out)

    def _catch_up(self) -> None:
        """Note the words that went by, now that something looks at them."""
        if self._passed:
            words, self._passed = "".join(self._passed), []
            self._note(words)

    def _note(self, raw: str) -> None:
        """Keep the little of what went by that later decisions look at."""
        cut = raw.rfind("\n")
        self._line = (self._line + raw if cut < 0 else raw[cut + 1 :])[-80:]
        self._before = (self._before + raw)[-40:]

    # --- code ---------------------------------------------------------------------------------

    def _code(self, *, final: bool) -> tuple[int, str] | None:
        """Pass code through, watching for its end."""
        match = _CODE_SPECIAL.search(self._buffer)
        if match is None or match.start():
            text = self._buffer if match is None else self._buffer[: match.start()]
            if self._mode == "closing" and text.strip():
                self._mode = "fence"
            return len(text), text
        if match.group() == "\n":
            self._end_of_line()
            return 1, "\n"
        run = _TICKS.match(self._buffer)
        assert run is not None
        if self._may_grow(run) and not final:
            return None
        self._tick_run(run.group())
        return run.end(), run.group()

    def _end_of_line(self) -> None:
        if self._mode == "info":
            self._mode = "fence"
        elif self._mode != "fence":
            self._mode = "prose"

    def _tick_run(self, run: str) -> None:
        if run[0] == "`" and self._mode == "info" and self._tick == "`":
            # A line with more backticks opens no fence: it was a code span after all.
            self._mode = "span"
        if self._mode == "span":
            if run == "`" * self._ticks:
                self._mode = "prose"
        elif self._mode == "closing":
            self._mode = "fence"
        elif (
            self._mode == "fence"
            and run[0] == self._tick
            and len(run) >= self._ticks
            and not self._line.strip(" \t>")
        ):
            self._mode = "closing"

    def _may_grow(self, run: re.Match[str]) -> bool:
        """Whether what comes next may belong to the run; longer runs count as several."""
        return run.end() == len(self._buffer) and len(run.group()) < HELD_CHARACTERS_MAX

    # --- prose --------------------------------------------------------------------------------

    def _prose(self, *, final: bool) -> tuple[int, str] | None:
        buffer = self._buffer
        if not self._dropped and (plain := _PLAIN.match(buffer)) is not None:
            # Words up to what is none: one by one they come to the same, at ten times the cost.
            self._subscript = False
            return plain.end(), plain.group()
        special = _SPECIAL.search(buffer)
        if special is None or special.start():
            end = len(buffer) if special is None else special.start()
            self._plain()
            return end, buffer[:end]
        first = buffer[0]
        if first == "\n":
            self._plain()
            return 1, "\n"
        if first == "\\":
            if len(buffer) < 2 and not final:
                return None
            taken = 1 if buffer[1:2] == "\n" else 2
            self._plain()
            return min(taken, len(buffer)), buffer[:taken]
        if first in "`~":
            return self._opening(final=final)
        return self._gap_or_marker(final=final)

    def _plain(self) -> None:
        self._subscript = False
        self._dropped = False

    def _opening(self, *, final: bool) -> tuple[int, str] | None:
        run = _TICKS.match(self._buffer)
        assert run is not None
        if self._may_grow(run) and not final:
            return None
        ticks = run.group()
        fence = len(ticks) >= 3 and _FENCE_PREFIX.fullmatch(self._line) is not None
        self._plain()
        if fence or ticks[0] == "`":
            self._mode = "info" if fence else "span"
            self._ticks, self._tick = len(ticks), ticks[0]
        return run.end(), ticks

    def _gap_or_marker(self, *, final: bool) -> tuple[int, str] | None:
        """White space and a bracket after it are decided together: a dropped marker takes it."""
        buffer = self._buffer
        gap = _SPACES.match(buffer)
        start = gap.end() if gap else 0
        if start > HELD_CHARACTERS_MAX:
            # An endless gap is text like any other.
            return 1, buffer[0]
        if start == len(buffer):
            return (start, "" if self._dropped else buffer) if final else None
        if start and buffer[start] not in _CLOSE:
            return self._gap(start)
        found = _BODY.match(buffer, start + 1)
        if found is None and not final and _PARTIAL.match(buffer, start):
            return None
        if (
            found is None
            or found["close"] != _CLOSE[buffer[start]]
            or len(found["inner"]) > _INNER_MAX
        ):
            self._plain()
            return start + 1, buffer[: start + 1]
        follows = buffer[found.end() :]
        literal = self._is_literal(buffer[start], start, follows, final=final)
        if literal is None:
            return None
        if literal:
            self._plain()
            self._subscript = True
            return found.end(), buffer[: found.end()]
        return self._cite(buffer[:start], found, follows)

    def _gap(self, size: int) -> tuple[int, str]:
        following = self._buffer[size]
        gap = self._buffer[:size]
        if self._dropped and (following in _PUNCTUATION or following == "\n"):
            gap = ""
        self._dropped = False
        self._subscript = False
        return size, gap

    def _is_literal(self, opener: str, gap: int, follows: str, *, final: bool) -> bool | None:
        """Whether a well-formed marker is a link or a subscript; None: not known yet."""
        if not follows and not final:
            return None
        if opener != "[":
            return False
        if follows[:1] == "(":
            return True
        if gap:
            return False
        if self._subscript or self._before.endswith("()"):
            return True
        word = _WORD_BEFORE.search(self._before)
        if word is None:
            return False
        name = word.group()
        if "_" in name or "$" in name or name in _ARRAY_NAMES:
            return True
        if len(name) == 1 and name.islower() and not self._before[-2:-1].isalnum():
            return True
        return _goes_on_as_code(follows, final=final)

    def _cite(self, gap: str, found: re.Match[str], follows: str) -> tuple[int, str]:
        numbers = _numbers(found["body"])
        valid = [number for number in numbers if 1 <= number <= self._passages]
        self.invalid += len(numbers) - len(valid)
        self._subscript = False
        if valid:
            self._dropped = False
            self.cited += [number for number in valid if number not in self.cited]
            return found.end(), gap + "".join(f"[{number}]" for number in valid)
        self._dropped = True
        if gap and follows[:1] and follows[0] not in _PUNCTUATION and follows[0] not in " \t\n":
            return found.end(), self._redo(gap, follows)
        return found.end(), ""

    def _redo(self, gap: str, follows: str) -> str:
        """The gap before a dropped marker stays where a word or another marker follows."""
        if follows[0] in _CLOSE:
            # Decided together with what follows.
            self._buffer = self._buffer[: len(self._buffer) - len(follows)] + gap + follows
            return ""
        return gap


def _goes_on_as_code(follows: str, *, final: bool) -> bool | None:
    """Assignment, increment, arrow or member access after a bracket; None: not known yet."""
    rest = follows[1:] if follows[:1] == " " else follows
    if not rest or (len(rest) < 2 and rest[0] in "+-.*/"):
        return False if final else None
    if rest[0] == "=":
        return True
    if rest[0] in "+-*/" and rest[1] == "=":
        return True
    if rest is follows:
        if rest[:2] in ("++", "--", "->"):
            return True
        return rest[0] == "." and (rest[1].islower() or rest[1] == "_") and rest[1].isascii()
    return False


def _numbers(body: str) -> list[int]:
    """The numbers of a marker in order, each once; ranges written out up to twenty."""
    numbers: list[int] = []
    for part in re.split(r"[,，、;；]", unicodedata.normalize("NFKC", body)):
        ends = [int(end) for end in re.split(r"[\-–—~]", part)]
        if len(ends) == 2 and ends[0] <= ends[1] < ends[0] + _RANGE_MAX:
            numbers += range(ends[0], ends[1] + 1)
        else:
            numbers += ends
    return list(dict.fromkeys(numbers))
