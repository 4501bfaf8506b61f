"""One spelling for texts that ask the same: width, case, spaces and the last punctuation.

Folding too little costs a hit, folding too much a wrong answer; where in doubt, texts stay apart:

- Width: only what Unicode calls wide or narrow, so NFKC's other foldings (m² to m2, ① to 1, ½ to
  1/2) do not happen. Canonical equivalents are one; quotes are straight; ℃ is °C.
- Case: folded (ligatures thus fall apart into letters), but ß stays (Maße, Masse), and so do units
  after a number whose case is their meaning (mW, MW; Mb, MB).
- Spaces: runs are one; next to Han none is needed. Lines stay lines, and keep their indentation.
- The end: sentence punctuation is dropped unless it is an operator, a factorial or a name.
"""

from __future__ import annotations

import re
import unicodedata

_INVISIBLE = "\u00ad\u200b\u2060\ufeff"
_QUOTES = {"‘": "'", "’": "'", "“": '"', "”": '"'}
_SIGNS = {"℃": "°C", "℉": "°F", "\N{OHM SIGN}": "Ω", "\N{MICRO SIGN}": "μ"}


def _width() -> dict[int, str]:
    found = {}
    for code in range(0x3000, 0x10000):
        kind, _, rest = unicodedata.decomposition(chr(code)).partition(" ")
        if kind in ("<wide>", "<narrow>"):
            found[code] = "".join(chr(int(part, 16)) for part in rest.split())
    return found


_FOLDED = str.maketrans(
    {
        **{chr(code): text for code, text in _width().items()},
        **dict.fromkeys(_INVISIBLE, ""),
        **_QUOTES,
        **_SIGNS,
    }
)

_HAN = "\u3005\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af"
_STOPS = "。、，！？；"
# Before or after Han a space separates nothing; a sign keeps its own (气温 -5).
_LOOSE = re.compile(
    rf"(?<=[{_HAN}]) (?=[{_HAN}{_STOPS}0-9a-zA-Z])"
    rf"|(?<=[0-9a-zA-Z{_STOPS},;!?]) (?=[{_HAN}])"
)

_UNITS = (
    "[mM](?:[wW][hH]?|[hH][zZ]|[vV]|[aA]|[pP][aA]|[jJ]|[gG]|[nNsStTfFlLmM]|[mM][oO][lL]|[eE][vV]"
    "|[bB][aA][rR]|[sS][vV]|[gG][yY]|[bB][qQ]|[iI][uU]|[oO][hH][mM]|Ω|ω)?|[nNuUμ][mM]"
)
_CASED = re.compile(
    rf"(?<=[0-9])( ?)({_UNITS}|[kKmMgGtTpP][iI]?[bB](?:[pP][sS]|/[sS]|[iI][tT][sS]?)?)"
    rf"(?!(?![{_HAN}])[^\W_]|[\u0300-\u036f])"
)
"""Units whose case decides, right after a number. Spelled alike they still meet."""

_MARKS = re.compile(r"[^\w\s\x00-\x7f]{32}")
"""No language has so many marks on a letter; to order them takes time with their square. Nor has
anybody asked with so many signs in a row that another spelling of them mattered."""
_ENDS = ".。!?;,、…؟।"
_FACTORIAL = re.compile(r"(\d|[)\]]|(?<![^\W_])[^\W\d_])!+$")
_CLOSERS = frozenset(")]}\"'」』》】〉〕%‰°′″")
_OPERATORS = re.compile(r"[^\W_][+#*-]+$|\d[^\w\s]$")
"""Signs that belong to what they follow, which may then be followed by a question mark: C++?"""


def canonical(text: str) -> str:
    """The spelling that stands for ``text`` in keys; applied again it changes nothing.

    Digits and letters keep their order and number but for case, width and canonical equivalence.
    """
    if not text.isascii():
        if _MARKS.search(text):
            return text
        text = text.translate(_FOLDED)
    text = _spaced(text)
    text = _lowered(text)
    if not text.isascii():
        text = unicodedata.normalize("NFC", text)
        text = _LOOSE.sub("", text)
    return _without_end(text)


def _spaced(text: str) -> str:
    lines = text.strip().splitlines()
    if len(lines) == 1:
        return " ".join(lines[0].split())
    return "\n".join(
        line[: len(line) - len(line.lstrip())] + " ".join(line.split())
        for line in lines
        if not line.isspace() and line
    )


def _lowered(text: str) -> str:
    parts: list[str] = []
    at = 0
    for unit in _CASED.finditer(text):
        parts += (_folded(text[at : unit.start(2)]), unit[2])
        at = unit.end(2)
    parts.append(_folded(text[at:]))
    return "".join(parts)


def _folded(text: str) -> str:
    if text.isascii():
        return text.lower()
    # Folding is stable on decomposed text only (Unicode, D145).
    text = unicodedata.normalize("NFD", text)
    return "ß".join(part.casefold() for part in text.replace("ẞ", "ß").split("ß"))


def _without_end(text: str) -> str:
    while text and text[-1] in _ENDS:
        rest = text.rstrip(_ENDS)
        ending = text[len(rest) :]
        if not rest or (rest[-1].isspace() and ending not in ("?", "。")):
            return text  # what is ??
        bare = rest.rstrip()
        if ending[0] == "!" and _FACTORIAL.search(bare + "!"):
            return rest + ending[: len(ending) - len(ending.lstrip("!"))]
        if not _ends_a_word(bare):
            return text  # what is $?
        text = bare
    return text


def _ends_a_word(text: str) -> bool:
    last = text[-1]
    return (
        last.isalnum()
        or last in _CLOSERS
        or unicodedata.category(last) in ("Mn", "Mc", "So")
        or _OPERATORS.search(text) is not None
    )
