"""Characters of Traditional Chinese folded to their Simplified ones, to find either by the other.

Character by character and the same for documents and questions: words that OpenCC tells apart by
their neighbours (乾隆, 餅乾) meet in one spelling on both sides, and no position moves.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import opencc

_RANGES = ((0x3400, 0x4DC0), (0x4E00, 0xA000), (0xF900, 0xFB00), (0x20000, 0x30000))
_STEP = 4_096
_REGIONAL = dict(zip("衞敍衹着粧糭枱簷痺睪鯰麪綫裏", "卫叙只著妆粽台檐痹睾鲶面线里", strict=True))
"""Spellings of Hong Kong and Taiwan that the common table leaves alone.

着 goes to 著, not the reverse: the dictionary of words knows 著名 and 显著, and hardly any with 着.
"""


def simplified(text: str) -> str:
    """``text`` in Simplified characters, of the same length; itself where it has no others."""
    if text.isascii():
        return text
    table, others = _table()
    # Looking is five times faster than translating.
    return text if others.isdisjoint(text) else text.translate(table)


@cache
def _table() -> tuple[dict[int, str], frozenset[str]]:
    """What each Traditional or regional character is folded to, and these characters.

    Some 5,000 from OpenCC's tables; a tenth of a second and 7 MB, once a process.
    """
    table = {**_REGIONAL, **dict(_common())}
    folded = {ord(old): _followed(table, new) for old, new in table.items()}
    return folded, frozenset(table)


def _common() -> Iterator[tuple[str, str]]:
    convert = opencc.OpenCC("t2s").convert
    for first, end in _RANGES:
        for start in range(first, end, _STEP):
            characters = [chr(code) for code in range(start, min(start + _STEP, end))]
            # A line a character: no neighbour decides.
            lines = convert("\n".join(characters)).split("\n")
            for old, new in zip(characters, lines, strict=True):
                if new != old and len(new) == 1:
                    yield old, new


def _followed(table: dict[str, str], character: str) -> str:
    """The end of the chain that ``character`` begins, so that folding twice changes nothing."""
    seen = {character}
    while (following := table.get(character, character)) not in seen:
        seen.add(character := following)
    return character
