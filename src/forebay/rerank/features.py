"""What the light reranker sees of a query's candidates: numbers from their words and vectors.

All follow from the candidates alone, whatever else the index holds: worth of words, means and
maxima are taken over them. So the order of a set of candidates changes only with the set. Nothing
tells a chunk's length or form: what one corpus favours there does not carry over to others. A chunk
in another language than the query cannot hold its words, so their absence is no evidence: it is
credited with as many as the favourites in the query's language hold.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from forebay.kernel.documents import Hit
from forebay.kernel.stages import HitVectors

Floats = NDArray[np.float32]

FEATURES_VERSION = 1
"""Raise it whenever a feature may come out otherwise: models say which they were trained on."""

FEATURES = (
    "fused", "fused_below_best", "bm25_share", "cosine_below_best", "cosine_spread", "central",
    "near_favourites", "twin", "words", "word_counts", "window", "adjacent", "numbers", "title",
    "title_asked", "title_whole", "early", "rarest", "completes", "linked", "links",
)  # fmt: skip
"""One column each, as ``candidate_features`` makes them."""

_SCORES = FEATURES.index("words")
_OF_WORDS = [
    FEATURES.index(name)
    for name in ("bm25_share", "words", "word_counts", "window", "adjacent", "numbers", "early",
                 "rarest", "completes")
]  # fmt: skip
_CHARACTERS_MAX = 4000
_UNITS_MAX = 48
_OCCURRENCES_MAX = 8
_TITLE_CHARACTERS_MIN = 4
_EARLY_CHARACTERS = 300
_HAN_WINDOW, _LATIN_WINDOW = 60, 160
_HAN_STEP, _LATIN_STEP = 3, 20
_K1 = 1.2
_FAVOURED = 20.0
"""How sharply candidates are weighed by fused score where some stand for all."""
_FIRST_HAN = "\u3400"
_RUN = re.compile(r"[0-9a-z][0-9a-z.,%'\-]*[0-9a-z%]|[0-9a-z]|[\u3400-\u9fff\uf900-\ufaff]+")
_BRACKETS = re.compile(r"\s*\(.*?\)\s*$")
_ENDINGS = ("ing", "ies", "ed", "es", "s")
_STEM_MIN, _STEMMED_MIN = 3, 5
_COMMON = frozenset(
    "the a an of in on to is are was were what which who whom whose when where why how did do does "
    "for by with at from and or that this it its as be been has have had than into their "
    "they".split()
)


class Candidates(msgspec.Struct, frozen=True):
    """The candidates of one query as a model takes them.

    ``features`` is (n, len(FEATURES)); ``query`` (d) and ``vectors`` (n, d) are unit vectors.
    """

    features: Floats
    query: Floats
    vectors: Floats


class _Words(msgspec.Struct, frozen=True):
    """The query's units, their worth among the candidates, and where each is in each text."""

    units: tuple[str, ...]
    worth: NDArray[np.float64]
    places: list[list[list[int]]]
    counts: NDArray[np.float64]


def candidates_of(query: str, hits: Sequence[Hit], vectors: HitVectors) -> Candidates:
    """Return what a model takes of ``hits``; takes 1 to 3 ms for 30 of 1,000 characters."""
    rows = np.frombuffer(vectors.hits, "<f4").reshape(len(hits), vectors.dimensions)
    features = np.concatenate([_scores(hits, rows), _texts(query, hits)], axis=1)
    _credit_foreign(features, _foreign(query, hits))
    asked = np.frombuffer(vectors.query, "<f4")
    return Candidates(features.astype(np.float32), asked, rows)


def query_units(query: str) -> tuple[str, ...]:
    """Return what is looked for in texts: Latin words cut to their stems, Han pairs."""
    units: list[str] = []
    for run in _RUN.findall(_folded(query)):
        if run[0] >= _FIRST_HAN:
            units += [run[i : i + 2] for i in range(len(run) - 1)] or [run]
        elif run not in _COMMON:
            units.append(_stem(run))
    return tuple(dict.fromkeys(units))[:_UNITS_MAX]


def _scores(hits: Sequence[Hit], rows: Floats) -> NDArray[np.float64]:
    """The columns up to ``twin``: what the search said, and how candidates lie to each other."""
    fused = np.array([hit.score for hit in hits])
    bm25 = np.array([hit.bm25 or 0.0 for hit in hits])
    cosine = np.array([np.nan if hit.cosine is None else hit.cosine for hit in hits])
    known = cosine[~np.isnan(cosine)]
    cosine = np.nan_to_num(cosine, nan=float(known.min()) if len(known) else 0.0)
    near = (rows @ rows.T).astype(np.float64)
    favour = _favour(fused)
    favour /= favour.sum()
    alone = near - 2.0 * np.eye(len(hits))
    return np.stack(
        [
            fused,
            fused - fused.max(),
            bm25 / max(float(bm25.max()), 1e-9),
            cosine - cosine.max(),
            (cosine - cosine.mean()) / max(float(cosine.std()), 1e-3) / 3.0,
            near.mean(axis=1),
            near @ favour,
            alone.max(axis=1) if len(hits) > 1 else np.zeros(1),
        ],
        axis=1,
    )


def _favour(fused: NDArray[np.float64]) -> NDArray[np.float64]:
    """Weights of candidates, by fused score, where some stand for all."""
    favour: NDArray[np.float64] = np.exp(_FAVOURED * (fused - fused.max()))
    return favour


def _foreign(query: str, hits: Sequence[Hit]) -> NDArray[np.bool_]:
    asked = _is_han(query)
    found = [
        (hit.chunk.language.startswith("zh") if hit.chunk.language else _is_han(hit.chunk.text))
        for hit in hits
    ]
    return np.array([han != asked for han in found], np.bool_)


def _credit_foreign(features: NDArray[np.float64], foreign: NDArray[np.bool_]) -> None:
    if not foreign.any() or foreign.all():
        return
    favour = _favour(features[:, 0]) * ~foreign
    earned = favour @ features[:, _OF_WORDS] / max(float(favour.sum()), 1e-12)
    held = features[:, _OF_WORDS]
    features[:, _OF_WORDS] = np.where(foreign[:, None], np.maximum(held, earned), held)


def _texts(query: str, hits: Sequence[Hit]) -> NDArray[np.float64]:
    """The columns from ``words`` on: where the query's words are in each candidate."""
    columns = np.zeros((len(hits), len(FEATURES) - _SCORES))
    titles = [_folded(hit.chunk.title)[:_CHARACTERS_MAX] for hit in hits]
    texts = [
        "\n".join((title, *map(_folded, hit.chunk.heading_path), _head(hit)))
        for title, hit in zip(titles, hits, strict=True)
    ]
    words = _words(query, texts)
    _linked(columns, [hit.score for hit in hits], titles, texts)
    total = float(words.worth.sum())
    if total <= 0.0:
        return columns
    held = words.counts > 0
    columns[:, 0] = held @ words.worth / total
    columns[:, 1] = (words.counts / (words.counts + _K1)) @ words.worth / total
    numbers = np.array([any(map(str.isdigit, unit)) for unit in words.units])
    if numbers.any():
        columns[:, 4] = held[:, numbers].mean(axis=1) - 0.5
    rarest = np.argsort(-words.worth, kind="stable")[:3]
    columns[:, 9] = held[:, rarest].mean(axis=1)
    columns[:, 10] = held @ (words.worth * ~held[0]) / total
    han = sum(unit[0] >= _FIRST_HAN for unit in words.units) * 2 > len(words.units)
    asked = _folded(query)
    for row, places in enumerate(words.places):
        columns[row, 2] = _window(places, words.worth, _HAN_WINDOW if han else _LATIN_WINDOW)
        columns[row, 3] = _adjacent(places, words)
        early = [bool(found) and found[0] < _EARLY_CHARACTERS for found in places]
        columns[row, 8] = float(words.worth[early].sum())
        columns[row, 5:8] = _title(titles[row], asked, words)
    columns[:, [2, 8]] /= total
    return columns


def _words(query: str, texts: Sequence[str]) -> _Words:
    units = query_units(query)
    places = [[_places(unit, text) for unit in units] for text in texts]
    counts = np.array([[len(found) for found in row] for row in places], np.float64)
    counts = counts.reshape(len(texts), len(units))
    held = (counts > 0).sum(axis=0)
    worth = np.log1p((len(texts) - held + 0.5) / (held + 0.5)) * (held > 0)
    return _Words(units, worth, places, counts)


def _places(unit: str, text: str) -> list[int]:
    """Where ``unit`` begins a word of ``text``, or stands in Han text."""
    found: list[int] = []
    latin = unit[0] < _FIRST_HAN
    at = text.find(unit)
    while at >= 0 and len(found) < _OCCURRENCES_MAX:
        if not latin or at == 0 or not text[at - 1].isalnum():
            found.append(at)
        at = text.find(unit, at + 1)
    return found


def _window(places: list[list[int]], worth: NDArray[np.float64], span: int) -> float:
    """The most worth of words that stand within ``span`` characters."""
    events = sorted((at, unit) for unit, found in enumerate(places) for at in found)
    inside = [0] * len(places)
    worths = worth.tolist()
    best = now = 0.0
    first = 0
    for at, unit in events:
        if not inside[unit]:
            now += worths[unit]
        inside[unit] += 1
        while events[first][0] < at - span:
            left = events[first][1]
            inside[left] -= 1
            if not inside[left]:
                now -= worths[left]
            first += 1
        best = max(best, now)
    return best


def _adjacent(places: list[list[int]], words: _Words) -> float:
    """The share, by worth, of the query's neighbouring words that are neighbours in a text."""
    got = most = 0.0
    worths = words.worth.tolist()
    for left in range(len(words.units) - 1):
        worth = worths[left] + worths[left + 1]
        most += worth
        step = _HAN_STEP if words.units[left][0] >= _FIRST_HAN else _LATIN_STEP
        after = places[left + 1]
        if after and any(0 < b - a <= step for a in places[left] for b in after):
            got += worth
    return got / most if most > 0.0 else 0.0


def _title(title: str, asked: str, words: _Words) -> tuple[float, float, float]:
    """Worth of query words in the title, share of title words asked for, title asked whole."""
    if not title:
        return 0.0, 0.0, 0.0
    held = [unit in title for unit in words.units]
    own = query_units(title)
    known = sum(unit in asked for unit in own) / len(own) if own else 0.0
    whole = len(title) >= _TITLE_CHARACTERS_MIN and title in asked
    return float(words.worth[held].sum() / words.worth.sum()), known, float(whole)


def _linked(
    columns: NDArray[np.float64],
    fused: Sequence[float],
    titles: Sequence[str],
    texts: Sequence[str],
) -> None:
    """How well-placed those are that name a candidate's title, and those it names itself."""
    best = max(fused)
    favour = [float(np.exp(_FAVOURED / 4 * (score - best))) for score in fused]
    for named, whole in enumerate(titles):
        title = _BRACKETS.sub("", whole)
        if len(title) < _TITLE_CHARACTERS_MIN:
            continue
        for naming, text in enumerate(texts):
            if naming != named and titles[naming] != titles[named] and title in text:
                columns[named, 11] = max(columns[named, 11], favour[naming])
                columns[naming, 12] = max(columns[naming, 12], favour[named])


def _head(hit: Hit) -> str:
    chunk = hit.chunk
    text = f"{chunk.context}\n{chunk.text}" if chunk.context else chunk.text
    return _folded(text[:_CHARACTERS_MAX])


def _folded(text: str) -> str:
    return (text if text.isascii() else unicodedata.normalize("NFKC", text)).lower()


def _stem(word: str) -> str:
    if word.isalpha() and len(word) >= _STEMMED_MIN:
        for ending in _ENDINGS:
            if word.endswith(ending) and len(word) - len(ending) >= _STEM_MIN:
                return word[: -len(ending)]
    return word


def _is_han(text: str) -> bool:
    """Whether Han characters are a quarter of the letters, by the beginning."""
    text = text[:400]
    han = sum("\u3400" <= c <= "\u9fff" for c in text)
    return han > 0 and 4 * han >= sum(map(str.isalpha, text))
