"""The language of a text from its scripts and, for Latin letters, its commonest words."""

from __future__ import annotations

import re

_SAMPLE_CHARACTERS = 6_000
_SCRIPTS = (
    ("kana", re.compile("[\u3041-\u30ff\uff66-\uff9d]")),
    ("han", re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")),
    ("ko", re.compile("[\u1100-\u11ff\uac00-\ud7a3]")),
    ("ru", re.compile("[\u0400-\u04ff]")),
    ("ar", re.compile("[\u0600-\u06ff\u0750-\u077f\ufb50-\ufdff\ufe70-\ufefc]")),
    ("he", re.compile("[\u0590-\u05ff\ufb1d-\ufb4f]")),
    ("el", re.compile("[\u0370-\u03ff]")),
    ("th", re.compile("[\u0e00-\u0e7f]")),
    ("hi", re.compile("[\u0900-\u097f]")),
    ("latin", re.compile("[A-Za-z\u00c0-\u024f]")),
)
_WORD = re.compile("[a-zà-öø-ÿœß]+")
_COMMON = {
    "en": frozenset("the and of to in is that for it with as was on are this be by".split()),
    "de": frozenset("der die das und ist nicht ein eine mit den von zu auf für im dem".split()),
    "fr": frozenset("le la les des et est une dans que pour qui sur du au pas avec".split()),
    "es": frozenset("el los las y en que es una por con para del se como más al".split()),
    "it": frozenset("il di che è per una con non sono della gli nel più anche le".split()),
    "pt": frozenset("o os que é um uma para com não do da em mais dos como ao".split()),
    "nl": frozenset("de het een van en is dat op te zijn met voor niet aan er".split()),
}
_TAG = re.compile(r"[a-z]{2,3}$")
_NOT_LATIN = frozenset("zh ja ko ru ar he el th hi uk bg fa ur".split())


def detect_language(text: str, *, declared: str = "") -> str:
    """Return a two-letter language code, or "" for a text without letters.

    ``declared`` (front matter, an HTML ``lang``) wins where the script does not contradict it.
    """
    sample = _sample(text)
    counts = {name: len(pattern.findall(sample)) for name, pattern in _SCRIPTS}
    total = sum(counts.values())
    hint = primary_language(declared)
    if not total:
        return hint
    if counts["kana"] > 0.1 * (counts["han"] + counts["kana"]) and counts["kana"] > 0.1 * total:
        return "ja"
    # A Han character carries about as much as five Latin letters.
    if counts["han"] > 0.15 * total:
        return "ja" if hint == "ja" else "zh"
    name = max(counts, key=lambda key: counts[key])
    if name == "latin":
        return hint if hint and hint not in _NOT_LATIN else _latin(sample)
    if name == "kana":
        return "ja"
    if name == "han":
        return "zh"
    return (
        hint if {name, hint} in ({"ru", "uk"}, {"ru", "bg"}, {"ar", "fa"}, {"ar", "ur"}) else name
    )


def primary_language(tag: str) -> str:
    """The language of a tag such as ``zh-Hant-TW``, or "" for what is no tag."""
    primary = re.split("[-_]", tag.strip().lower())[0]
    return primary if _TAG.match(primary) else ""


def _sample(text: str) -> str:
    """A slice of the start and one of the middle, so that a foreign preface does not decide."""
    if len(text) <= _SAMPLE_CHARACTERS:
        return text
    half = _SAMPLE_CHARACTERS // 2
    middle = len(text) // 2
    return text[:half] + text[middle : middle + half]


def _latin(sample: str) -> str:
    words = _WORD.findall(sample.lower())
    scores = {
        language: sum(1 for word in words if word in common) for language, common in _COMMON.items()
    }
    best = max(scores, key=lambda key: scores[key])
    return best if scores[best] > 1.2 * scores["en"] else "en"
