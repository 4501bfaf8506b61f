"""Another thing in the place of its like: what an earlier question asks, asked about that.

What is of one sort with what can be told by form alone: a year and a year, A300 and A500, line 7
and line 12, two names of places, 年假 and 病假. Where a question names several of a sort, or none,
nobody can tell which is meant, and the caller puts both questions together.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import rjieba

from forebay.folding import simplified

_HAN = re.compile("[\u3400-\u9fff]")
_YEAR = re.compile(r"(?<![\d.])(?:19|20)\d\d(?![\d.])")
_CODE = r"[A-Za-z]{0,6}-?\d+(?:[.-]?[A-Za-z0-9]+)*|(?<=[\u3400-\u9fff])[A-Za-z]{1,3}(?![A-Za-z0-9])"
_CODED = re.compile(rf"(?P<lead>[^0-9]*?)(?P<code>{_CODE})")
_PROPER = re.compile(
    r"(?<!^)(?<![?.!] )\b(?!I\b|I['’])[A-Z][\w'’-]*(?:\s+[A-Z][\w'’-]*){0,2}(?!['’\w-])"
)
_PROPERLY = re.compile(r"[A-Z][a-z'’-]+(?:\s+[A-Z][\w'’-]*){0,2}|[A-Z]{2,6}")
_NAMES = ("nr", "ns", "nt", "nz")
_NOUNS = ("n", "eng", "m", "q", "zg", "j", "b", "a", "k", "s")
"""How the segmenter tags what a Chinese name of a thing is made of."""
_NO_NOUN = frozenset("几多哪每各谁这那")
_FUNCTION = (
    frozenset("的了在是有要能会和与跟或给把被由从到就都也还不没请去来向对，,、？?。 ") | _NO_NOUN
)


_Token = tuple[int, int, str, str]


def in_place(new: str, earlier: str) -> str | None:
    """The ``earlier`` question with ``new`` where it names a thing of the same sort; or None."""
    years = _YEAR.findall(new)
    if len(years) == 1 and len(set(_YEAR.findall(earlier))) == 1:
        return _YEAR.sub(years[0], earlier)
    coded = _CODED.fullmatch(new)
    if coded is not None:
        return _same_code(coded, new, earlier)
    if _HAN.search(new):
        return _same_noun(new, earlier) if _HAN.search(earlier) else None
    return _same_name(new, earlier)


def _same_code(coded: re.Match[str], new: str, earlier: str) -> str | None:
    """A code for the only one of its shape, behind the same word."""
    lead, code = coded["lead"], coded["code"]
    pattern = (
        rf"(?<![A-Za-z0-9]){re.escape(lead)}(?:{_CODE})" if lead else rf"(?<![\w-])(?:{_CODE})"
    )
    places = [
        found
        for found in re.finditer(pattern, earlier, re.IGNORECASE | re.ASCII)
        if lead or found[0].isdigit() == code.isdigit()
    ]
    if len({found[0].lower() for found in places}) != 1:
        return None
    return earlier.replace(places[0][0], new)


def _same_name(new: str, earlier: str) -> str | None:
    """A name for the only one that is written as it is: Berlin and Lisbon, GmbH for no city."""
    if not _PROPERLY.fullmatch(new):
        return None
    places = [found for found in _PROPER.finditer(earlier) if found[0].isupper() == new.isupper()]
    if len(places) != 1 or any(mark.isdigit() for mark in places[0][0]):
        return None
    return earlier[: places[0].start()] + new + earlier[places[0].end() :]


def _same_noun(new: str, earlier: str) -> str | None:
    """A Chinese noun for the one with the same end, or a name for the only one of its kind."""
    wanted = simplified(new)
    tokens = _tagged(simplified(earlier))
    places: dict[tuple[int, int], int] = {}
    for at, (begin, end, word, _) in enumerate(tokens):
        start = begin
        if word[-1] != wanted[-1] or not (_is_noun(tokens[at]) or len(word) == len(wanted)):
            continue
        for before in reversed(tokens[:at]):
            part = _is_noun(before) or (len(before[2]) == 1 and before[2] not in _FUNCTION)
            if not part or end - before[0] > len(wanted):
                break
            start = before[0]
        places[start, end] = _shared(word, wanted)
    if not places:
        places = _same_beginning(wanted, tokens)
    most = max(places.values(), default=0)
    best = [place for place, shared in places.items() if shared == most]
    if not best:
        named = _tagged(wanted)
        if len(named) != 1 or named[0][3] not in _NAMES:
            return None
        best = [(start, end) for start, end, _, tag in tokens if tag == named[0][3]]
    if len(best) != 1:
        return None
    start, end = best[0]
    return earlier[:start] + new + earlier[end:]


def _same_beginning(wanted: str, tokens: Sequence[_Token]) -> dict[tuple[int, int], int]:
    """What is as long as a short phrase and begins alike: 养狗 for 养猫."""
    if not 2 <= len(wanted) <= 3:
        return {}
    ends = {end for _, end, _, _ in tokens}
    starts = (start for start, _, word, _ in tokens if word[0] == wanted[0])
    return {(start, start + len(wanted)): 1 for start in starts if start + len(wanted) in ends}


def _shared(one: str, other: str) -> int:
    """How many last characters two words share."""
    count = 0
    for a, b in zip(reversed(one), reversed(other), strict=False):
        if a != b:
            break
        count += 1
    return count


def _is_noun(token: _Token) -> bool:
    _, _, word, tag = token
    return tag.startswith(_NOUNS) and word[0] not in _NO_NOUN


def _tagged(text: str) -> list[_Token]:
    """Words with their places and tags."""
    found, at = [], 0
    for word, tag in rjieba.tag(text, False):
        found.append((at, at + len(word), word, tag))
        at += len(word)
    return found
