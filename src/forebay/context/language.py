"""Which language a question's answer is framed in."""

from __future__ import annotations

import re
from typing import Literal

_HAN = re.compile(r"[\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003134f]")
_KANA_OR_HANGUL = re.compile(r"[\u3040-\u30ff\u31f0-\u31ff\uac00-\ud7af]")
_LATIN_WORD = re.compile(r"[A-Za-z]{2,}")


def language_of(text: str) -> Literal["zh", "en"]:
    """``zh`` when Han characters carry the text, else ``en`` (Japanese and Korean too).

    One Han character says about as much as one Latin word, so counts of these are compared;
    "VPN 怎么连" is Chinese although most of its letters are Latin.
    """
    head = text[:4096]
    han = len(_HAN.findall(head))
    if not han or len(_KANA_OR_HANGUL.findall(head)) * 4 > han:
        return "en"
    return "zh" if han >= len(_LATIN_WORD.findall(head)) else "en"
