"""From bytes to text: BOM, declared charset, UTF-8, UTF-16/32 without BOM, detector, fallback.

Nothing is ever decoded with replacement marks: bytes that do not fit are left out and reported,
and when there are many of them the file is refused.
"""

from __future__ import annotations

import codecs
import re
from typing import NamedTuple

from forebay.ingest.settings import IngestLimits
from forebay.ingest.source import Source
from forebay.kernel.errors import UnsupportedDocument

_SAMPLE_BYTES = 64 * 1024
_LOW_CONFIDENCE = 0.1
# Under this many non-ASCII bytes several encodings fit almost any text (design: tiny texts).
_FEW_BYTES = 24
_BOMS = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
# Names that promise a subset of what the files really hold (WHATWG Encoding Standard's labels).
# Python's own transports of text, which no document is written in.
_NOT_CHARSETS = frozenset(
    {"idna", "punycode", "unicode-escape", "raw-unicode-escape", "unicode_internal", "undefined"}
)
_SUPERSETS = {
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "big5": "cp950",
    "big5hkscs": "cp950",
    "shift_jis": "cp932",
    "shift_jis_2004": "cp932",
    "euc_kr": "cp949",
    "iso8859-1": "cp1252",
    "iso8859-9": "cp1254",
    "ascii": "cp1252",
    "tis-620": "cp874",
}
_SECOND_TRY = {"cp950": "big5hkscs", "cp932": "shift_jis_2004", "euc_jp": "euc_jis_2004"}
_CANDIDATES = (
    "gb18030 big5 big5hkscs cp932 euc_jis_2004 euc_kr cp949 cp1250 cp1251 cp1252 cp1253 cp1254 "
    "cp1255 cp1256 cp1257 cp1258 iso8859-2 iso8859-7 koi8-r koi8-u cp874"
).split()
_DECLARED = re.compile(
    rb"<\?xml[^>]{0,100}?\bencoding\s*=\s*[\"']([\w.:-]{2,40})"
    rb"|<meta[^>]{0,200}?\bcharset\s*=\s*[\"']?\s*([\w.:-]{2,40})"
    rb"|^[ \t]*(?:#|//|/\*)[^\n]{0,40}?coding[:=][ \t]*([\w.-]{2,40})"
    rb"|^@charset\s+[\"']([\w.-]{2,40})",
    re.IGNORECASE | re.MULTILINE,
)
_CONTROLS = re.compile("[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f-\x84\x86-\x9f]")
_CONTROL_BYTES = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")
_EBCDIC_TEXT = re.compile(r"[A-Za-z0-9 \t\n\r\x85.,;:()'\"/&+*=<>%$#@?!_-]")
_NON_ASCII = re.compile(rb"[\x80-\xff]")


class Decoded(NamedTuple):
    """Text, the encoding it was in, and what a person should know about the guess."""

    text: str
    encoding: str
    warnings: tuple[str, ...] = ()


def decode_source(source: Source, limits: IngestLimits) -> Decoded:
    """Return the text of ``source``; raise ``UnsupportedDocument`` for bytes that are none."""
    return decode(source.data, limits, charset=source.charset)


def decode(data: bytes, limits: IngestLimits, *, charset: str | None = None) -> Decoded:
    """Decode ``data``; ``charset`` is what an envelope (HTTP, MIME) declared.

    Errors: ``UnsupportedDocument`` with code ``empty``, ``not_text`` or ``undecodable``.
    """
    if not data.strip(b" \t\r\n\x0b\x0c\x00"):
        raise UnsupportedDocument("The document is empty: it holds no text.", code="empty")
    decoded = (
        _by_bom(data)
        or _by_declaration(data, charset)
        or _by_escape(data)
        or _by_nuls(data)
        or _as_utf8(data)
        or _as_bare_utf16(data)
        or _by_detector(data)
        or _by_fallback(data, limits)
    )
    if decoded is None:
        raise UnsupportedDocument(
            "The bytes fit no known text encoding; convert the file to UTF-8.", code="undecodable"
        )
    _require_text(decoded.text)
    return decoded


def _by_bom(data: bytes) -> Decoded | None:
    for bom, name in _BOMS:
        if data.startswith(bom):
            return _tolerant(data[len(bom) :], name, offset=len(bom), most=0.02)
    return None


def _by_declaration(data: bytes, charset: str | None) -> Decoded | None:
    names = [charset] if charset else []
    match = _DECLARED.search(data, 0, 4096)
    if match is not None:
        names.append(next(group for group in match.groups() if group).decode("ascii"))
    for declared in names:
        name = _codec(declared)
        if name is None or name == "utf-8" or (name.startswith("utf-") and b"\x00" not in data):
            continue
        if name.startswith(("cp125", "iso8859")) and _strict(data, "utf-8") is not None:
            continue  # every byte fits such a charset: valid UTF-8 is the stronger sign
        text = _strict(data, name)
        if text is not None:
            return Decoded(text, name)
        tolerant = _tolerant(data, name, most=0.005)
        if tolerant is not None:
            return tolerant
    return None


def _by_escape(data: bytes) -> Decoded | None:
    """ISO-2022-JP is seven-bit and would pass as ASCII."""
    if b"\x1b$" in data[:_SAMPLE_BYTES]:
        text = _strict(data, "iso2022_jp_2")
        if text is not None:
            return Decoded(text, "iso2022_jp_2")
    return None


def _by_nuls(data: bytes) -> Decoded | None:
    """UTF-32 and UTF-16 by where the NUL bytes stand."""
    sample = data[:4096]
    if b"\x00" not in sample:
        return None
    if len(data) % 4 == 0:
        for name, top in (("utf-32-le", 3), ("utf-32-be", 0)):
            planes = sample[(1 if top == 0 else 2) :: 4]
            if not any(sample[top::4]) and max(planes, default=0) <= 0x10:
                text = _strict(data, name)
                if text is not None:
                    return Decoded(text, name)
    best = _best_utf16(data)
    if best is not None and best[0] >= 0.6:
        return _tolerant(data[: len(data) // 2 * 2], best[1], most=0.02)
    return None


def _as_utf8(data: bytes) -> Decoded | None:
    text = _strict(data, "utf-8")
    if text is not None:
        return Decoded(text, "utf-8")
    text = data.decode("utf-8", errors="ignore")
    bad = data.decode("utf-8", errors="replace").count("\ufffd") - text.count("\ufffd")
    kept = len(_NON_ASCII.findall(text.encode("utf-8"))) // 3
    if bad and kept >= 4 * bad:
        return Decoded(text, "utf-8", (_lost(bad, "UTF-8", _first_error(data, "utf-8")),))
    return None


def _as_bare_utf16(data: bytes) -> Decoded | None:
    """UTF-16 without BOM and without NUL bytes: Chinese or Japanese that holds no ASCII."""
    if len(data) % 2 or len(data) < 8:
        return None
    best = _best_utf16(data)
    if best is None or best[0] < 0.8:
        return None
    text = _strict(data, best[1])
    few = ("The encoding was guessed as UTF-16 from a short text.",) if len(data) < 40 else ()
    return None if text is None else Decoded(text, best[1], few)


def _by_detector(data: bytes) -> Decoded | None:
    if _looks_ebcdic(data[:4096]):
        raise UnsupportedDocument(
            "The file looks like EBCDIC text; convert it to UTF-8.", code="undecodable"
        )
    sample = data[:_SAMPLE_BYTES]
    if _too_many(len(_CONTROL_BYTES.findall(sample)), len(sample)):
        raise _not_text()
    import chardet

    sample = _interesting(data)
    high = len(_NON_ASCII.findall(sample))
    found = chardet.detect(
        sample, include_encodings=_CANDIDATES, no_match_encoding="cp1252", compat_names=False
    )
    name = _codec(found["encoding"] or "")
    if name is None:
        return None
    if name.startswith(("cp125", "iso8859")) and _same(sample, name, "cp1252"):
        name = "cp1252"
    text = _strict(data, name)
    if text is None and name in _SECOND_TRY:
        other = _SECOND_TRY[name]
        text = _strict(data, other)
        name = name if text is None else other
    decoded = _tolerant(data, name, most=0.005) if text is None else Decoded(text, name)
    if decoded is None or not (found["confidence"] < _LOW_CONFIDENCE or high < _FEW_BYTES):
        return decoded
    note = f"The encoding was guessed as {name} with low confidence; save the file as UTF-8."
    return decoded._replace(warnings=(*decoded.warnings, note))


def _by_fallback(data: bytes, limits: IngestLimits) -> Decoded | None:
    if not limits.fallback_encoding:
        return None
    text = _strict(data, limits.fallback_encoding)
    if text is None:
        return None
    note = (
        f"The encoding could not be told; the configured {limits.fallback_encoding} was used. "
        "Save the file as UTF-8."
    )
    return Decoded(text, limits.fallback_encoding, (note,))


def _strict(data: bytes, name: str) -> str | None:
    try:
        return data.decode(name)
    except UnicodeError:
        return None


def _tolerant(data: bytes, name: str, *, most: float, offset: int = 0) -> Decoded | None:
    """Decode without the bytes that do not fit, if they are at most ``most`` of the text."""
    text = _strict(data, name)
    if text is not None:
        return Decoded(text, name)
    text = data.decode(name, errors="ignore")
    bad = data.decode(name, errors="replace").count("\ufffd") - text.count("\ufffd")
    if bad > max(1.0, most * len(text)):
        return None
    return Decoded(text, name, (_lost(bad, name, offset + _first_error(data, name)),))


def _first_error(data: bytes, name: str) -> int:
    try:
        data.decode(name)
    except UnicodeDecodeError as error:
        return error.start
    return 0


def _lost(count: int, name: str, offset: int) -> str:
    places = "1 place" if count == 1 else f"{count} places"
    return f"Bytes that are not {name} were left out in {places}, the first at byte {offset}."


def _codec(declared: str) -> str | None:
    """The Python name of a declared charset that decodes to text, its superset where one is."""
    try:
        name = codecs.lookup(declared.strip()).name
        b"a".decode(name)
    except (LookupError, ValueError):
        return None
    if name in _NOT_CHARSETS:
        return None
    return _SUPERSETS.get(name, name)


def _same(data: bytes, one: str, other: str) -> bool:
    text = _strict(data, one)
    return text is not None and text == _strict(data, other)


def _interesting(data: bytes) -> bytes:
    """A slice around the first non-ASCII byte, cut at line ends where there are any."""
    match = _NON_ASCII.search(data)
    first = match.start() if match else 0
    start = data.rfind(b"\n", max(0, first - 2000), first) + 1
    if start == 0 and first > 2000:
        start = first
    sample = data[start : start + _SAMPLE_BYTES]
    if start + _SAMPLE_BYTES < len(data):
        end = sample.rfind(b"\n")
        sample = sample[: end + 1] if end > len(sample) // 2 else sample
    return sample


def _looks_ebcdic(sample: bytes) -> bool:
    if len(sample) < 64 or sample.count(0x40) < len(sample) // 25:
        return False
    if sample.count(0x20) * 20 > sample.count(0x40):
        return False
    return len(_EBCDIC_TEXT.findall(sample.decode("cp037"))) >= 0.9 * len(sample)


def _best_utf16(data: bytes) -> tuple[float, str] | None:
    sample = data[: 4096 if len(data) >= 4096 else len(data) // 2 * 2]
    scores = []
    for name in ("utf-16-le", "utf-16-be"):
        text = sample.decode(name, errors="replace")
        scores.append((sum(map(_plausible, text)) / max(1, len(text)), name))
    return max(scores, default=None)


def _plausible(char: str) -> float:
    """How much a character speaks for its code units having been read in the right order."""
    if " " <= char <= "~" or char in "\n\r\t":
        return 1.0
    if "\u4e00" <= char <= "\u9fa5":
        return (
            1.0
            if _is_everyday(char, "gb2312", 0xB0, 0xD7) or _is_everyday(char, "big5", 0xA4, 0xC6)
            else -1.0
        )
    if "\uac00" <= char <= "\ud7a3":
        return 0.9 if _is_everyday(char, "euc_kr", 0xB0, 0xC8) else -1.0
    if "\u00a0" <= char <= "\u024f" or "\u3001" <= char <= "\u30ff" or "\uff01" <= char <= "\uff5e":
        return 1.0
    if "\u0370" <= char <= "\u06ff" or "\u2010" <= char <= "\u2033" or "\ud800" <= char <= "\udfff":
        return 0.9
    return -2.0


def _is_everyday(char: str, charset: str, first: int, last: int) -> bool:
    """Whether a national standard lists the character in its first, everyday level.

    The standards order their levels by use, so the lead byte tells: nearly all characters of a
    real text are in level one, about a third of what a wrong byte order makes.
    """
    try:
        return first <= char.encode(charset)[0] <= last
    except UnicodeEncodeError:
        return False


def _require_text(text: str) -> None:
    """Refuse what decodes but is no text: many control characters."""
    sample = text[:_SAMPLE_BYTES]
    if _too_many(len(_CONTROLS.findall(sample)), len(sample)):
        raise _not_text()


def _too_many(controls: int, size: int) -> bool:
    """Whether so many of ``size`` are control characters that this is no text.

    A long text may hold one in fifty, any text a stray few; but a few bytes of which several are
    controls are a binary file that happens to be short.
    """
    return controls * 50 > size and (controls > 4 or controls * 10 > size)


def _not_text() -> UnsupportedDocument:
    return UnsupportedDocument(
        "The file is not text; only text and document formats are indexed.", code="not_text"
    )
