"""Where a text may be cut: sentences, lines, clauses, and never inside a character."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

_CLOSERS = "\"'”’»」』）》】)\\]"
_END = re.compile(
    f"(?:[。！？｡؟۔।॥]+|…+(?=[^\\s.…])|(?:[.!?…]+))[{_CLOSERS}]*",
)
_WIDE_END = frozenset("。！？｡؟۔।॥")
_WORD_BEFORE = re.compile(r"[\w.&-]+$")
_ABBREVIATIONS = frozenset(
    "mr mrs ms dr prof sr jr st vs etc e.g i.e eg ie cf al no nos vol fig figs eq eqs sec ch pp p "
    "ed eds inc ltd co corp dept est approx jan feb mar apr jun jul aug sep sept oct nov dec mon "
    "tue wed thu fri sat sun u.s u.k a.m p.m ph.d m.d b.a m.a gen col lt sgt capt rev hon gov sen "
    "rep pres ave blvd rd mt ft art para ref resp max min ca z.b bzw usw d.h nr bd".split()
)
_CLAUSE = re.compile("[；：，、。！？）」』”]|[;:,.!?|)](?=\\s)|\\s")
_NEVER_BEFORE = re.compile(
    "[\u200c\u200d\ufe00-\ufe0f\U000e0100-\U000e01ef\U0001f3fb-\U0001f3ff\u1160-\u11ff]"
)
_GLUED = re.compile("[a-z]{3}[.!?][A-Z](?:[a-z ]|$)")
_GLUED_CHARACTERS = 40
_WIDE_STEP = 4
_MAX_CLUSTER = 64


def sentence_spans(text: str, start: int, end: int) -> list[tuple[int, int]]:
    """Return the sentences of ``text[start:end]`` as spans without outer white space."""
    spans: list[tuple[int, int]] = []
    at = start
    for match in _END.finditer(text, start, end):
        stop = match.end()
        if stop < end and not _ends_sentence(text, at, match, end):
            continue
        _append(spans, text, at, stop)
        at = stop
    _append(spans, text, at, end)
    return spans


def line_spans(text: str, start: int, end: int) -> list[tuple[int, int]]:
    """Return the non-blank lines of ``text[start:end]``; leading blanks stay inside."""
    spans: list[tuple[int, int]] = []
    at = start
    while at < end:
        stop = text.find("\n", at, end)
        stop = end if stop < 0 else stop
        if text[at:stop].strip():
            spans.append((at, stop))
        at = stop + 1
    return spans


def _append(spans: list[tuple[int, int]], text: str, start: int, end: int) -> None:
    piece = text[start:end]
    body = piece.strip()
    if body:
        start += len(piece) - len(piece.lstrip())
        spans.append((start, start + len(body)))


def _ends_sentence(text: str, start: int, match: re.Match[str], end: int) -> bool:
    stop = match.end()
    if text[match.start()] in _WIDE_END:
        return True
    if not text[stop].isspace():
        return text[match.start()] == "…" or _is_wide(text[stop]) or _glued(text, start, match)
    following = text[stop : min(stop + 16, end)].lstrip()
    if following and following[0].islower():
        return False
    if text[match.start()] != "." or match.end() - match.start() > 1:
        return True
    before = _WORD_BEFORE.search(text, max(start, match.start() - 20), match.start())
    if before is None:
        return True
    word = before.group().lower()
    if word in _ABBREVIATIONS or (len(word) == 1 and word.isalpha() and word.isascii()):
        return False
    # "3. Next item": a bare number in front is a list marker, not a sentence.
    return not (word.isdigit() and before.start() == start)


def _glued(text: str, start: int, match: re.Match[str]) -> bool:
    """Whether a space was lost between two sentences: "…the end.The next…"."""
    at = match.start()
    if at - start < _GLUED_CHARACTERS or match.end() - at > 1:
        return False
    return text[at] in ".!?" and _GLUED.match(text, at - 3) is not None


def _is_wide(char: str) -> bool:
    return "\u3000" <= char <= "\u9fff" or "\uf900" <= char <= "\uffef"


def safe_cut(text: str, start: int, at: int) -> int:
    """Return the last place in ``(start, at]`` that is not inside a user-perceived character.

    Where a cluster is longer than 64 code points (text made to hurt), the cut is at ``at``.
    """
    cut = at
    while cut > start and at - cut < _MAX_CLUSTER:
        if not _inside_cluster(text, start, cut):
            return cut
        cut -= 1
    return at


def _inside_cluster(text: str, start: int, at: int) -> bool:
    if at <= 0 or at >= len(text):
        return False
    following, before = text[at], text[at - 1]
    if following < "\u0300" and before < "\u0300":
        return False
    if before == "\u200d" or _NEVER_BEFORE.match(following):
        return True
    if unicodedata.category(following)[0] == "M":
        return True
    if _is_flag(following) and _is_flag(before):
        run = 0
        while at - 1 - run >= start and _is_flag(text[at - 1 - run]) and run < _MAX_CLUSTER:
            run += 1
        return run % 2 == 1
    return False


def _is_flag(char: str) -> bool:
    return "\U0001f1e6" <= char <= "\U0001f1ff"


def natural_cut(text: str, start: int, at: int) -> int:
    """Return a good place in the second half of ``text[start:at]``: line, clause, word, cluster."""
    half = start + (at - start) // 2
    line = text.rfind("\n", half, at)
    if line > half:
        return line + 1
    best = word = 0
    for match in _CLAUSE.finditer(text, half, at):
        if text[match.start()].isspace():
            word = match.end()
        else:
            best = match.end()
    if best or word:
        cut = best if best > word - 40 and best else word
        return safe_cut(text, start, cut)
    return safe_cut(text, start, at)


def tail_cuts(text: str, low: int, end: int) -> Iterator[int]:
    """Yield where a repetition of the end of ``text[:end]`` may begin, not before ``low``.

    First after clauses, then after words or between wide characters; the longest tail first.
    """
    for match in _CLAUSE.finditer(text, low, end):
        if match.end() < end and not match.group().isspace():
            yield match.end() + (1 if text[match.end()].isspace() and match.end() + 1 < end else 0)
    last = low
    for at in range(low, end):
        spaced = text[at - 1].isspace() and not text[at].isspace()
        if spaced or (at - last >= _WIDE_STEP and _is_wide(text[at])):
            last = at
            if not _inside_cluster(text, 0, at):
                yield at
