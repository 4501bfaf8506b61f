"""One spelling for numbers and units, so that 5 GB is 5GB and 3.5万 is 35000 as well.

Only what is exact: trailing zeros stay (1.10 is no 1.1 among versions), and a number written in
several scales (3万5千) is left as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal

# What stands before a number is looked at after its first digit: so the engine skips to digits.
_NUMBER = r"[0-9](?<![0-9A-Za-z_.,].)(?<![百千万亿].)[0-9]{0,17}(?:,[0-9]{3}){0,6}(?:\.[0-9]{1,9})?"
_UNIT = (
    "(?:[kmgtp]i?b(?:ps|/s)?|[kmgt]?bps|bits?|bytes?|[kmgt]?hz|[kmgt]?wh?|[km]?v|kva|m?ah|[hkmg]?pa"
    "|bar|psi|km/h|[kcmnμ]?m[23]?|[kmμ]?g|[mc]?l|[mnμ]s|min|rpm|db|px|dpi|fps|kn|kj|kcal|mol|ppm)"
)
_SPACED = re.compile(rf"({_NUMBER})[ \u2009\u202f](?={_UNIT}(?![^\W_]))", re.IGNORECASE)
_GROUPED = re.compile(r"[\u2009\u202f'’](?<=[0-9].)(?=[0-9]{3}(?![0-9]))")
_COMMAS = re.compile(r",(?<=[0-9],)(?=[0-9]{3}(?![0-9]))")

_TEN_TO = {"百": 2, "千": 3, "万": 4, "百万": 6, "千万": 7, "亿": 8, "万亿": 12}
_TEN_TO |= {"thousand": 3, "million": 6, "billion": 9, "trillion": 12}
_SCALE = "|".join(sorted(_TEN_TO, key=len, reverse=True))
# After 千 a unit makes a unit (千克); after a scale more digits make another number.
_MORE = "a-z0-9零一二三四五六七八九十百千万亿克米瓦赫卡帕伏兆"
_SCALED = re.compile(rf"({_NUMBER}) ?({_SCALE})(?![{_MORE}])", re.IGNORECASE)


def joined(text: str) -> str:
    """Return ``text`` with numbers in one piece and units beside them; ``text`` is folded."""
    if "'" in text or not text.isascii():
        text = _GROUPED.sub("", text)
    return _SPACED.sub(r"\1", _COMMAS.sub("", text))


def scaled(text: str) -> Iterator[str]:
    """Yield the plain digits of numbers with a scale: 3.5万 and 0.035 million are 35000."""
    for number, scale in _SCALED.findall(text):
        value = Decimal(number.replace(",", "")).scaleb(_TEN_TO[scale.lower()])
        plain = f"{value:f}"
        yield plain.rstrip("0").rstrip(".") if "." in plain else plain
