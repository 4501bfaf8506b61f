"""Names of things with an inner structure: split, and in the other ways they are written.

getUserName and get_user_name, AB-1234 and AB1234, v3.11.7 and 3.11: each finds the other by terms
they share, and each is still a term as it stands.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

_PIECE = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_PIECES_MAX = 4
_ORDINAL = re.compile(r"[0-9]+(?:st|nd|rd|th|s)", re.IGNORECASE)
_COMPOUND = re.compile(r"[^\W_]{1,20}(?:[-_][^\W_]{1,20}){1,4}")
_MARKED = re.compile(r"[0-9_]")
_RELEASE = re.compile(r"v?([0-9]{1,6}(?:\.[0-9]{1,6}){1,4})")
_HYPHENED_WORD = re.compile(r"[A-Za-z]{1,20}(?:-[A-Za-z]{1,20}){1,3}")
DECIMAL = re.compile(r"[0-9]+\.[0-9]+")
"""A number with a fraction, which no part of it stands for."""


def pieces(part: str) -> list[str]:
    """Return a run of letters and digits, and what its capitals and digits divide it into."""
    if not part.isascii() or part.isdigit():
        return [part]
    divided = _PIECE.findall(part)
    if part.isalpha():
        return [part] if part.islower() or part.isupper() or part.istitle() else divided
    # More pieces make no code that anybody would write apart, but a hash.
    if len(divided) > _PIECES_MAX or _ORDINAL.fullmatch(part):
        return [part]
    return [part, *divided]


def spellings(whole: str) -> Iterator[str]:
    """Yield the other ways to write an identifier: without its hyphens, its v, its last numbers."""
    if _COMPOUND.fullmatch(whole) and _MARKED.search(whole):
        bare = whole.replace("-", "").replace("_", "")
        if not bare.isdigit():
            yield bare
    release = _RELEASE.fullmatch(whole)
    if release is not None:
        numbers = release[1].split(".")
        yield from (".".join(numbers[:count]) for count in range(2, len(numbers) + 1))


def unhyphened(runs: Iterable[str]) -> list[str]:
    """Return the hyphened words among ``runs`` in one, lower case: Wi-Fi as wifi.

    For documents only: in a question they would count a thing twice (SciFact, MRR -.009).
    """
    hyphened = (run for run in runs if "-" in run)
    return [run.replace("-", "").lower() for run in hyphened if _HYPHENED_WORD.fullmatch(run)]
