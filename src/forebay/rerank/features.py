"""What the light reranker sees of a query's candidates: numbers from their words and scores.

All follow from the candidates alone, whatever else the index holds: worth of words, means and
maxima are taken over them. So the order of a set of candidates changes only with the set. Every
number speaks for a candidate the more the larger it is. Nothing tells a chunk's length or form:
what one corpus favours there does not carry over to others. A chunk in another language than the
query cannot hold its words, so their absence is no evidence: it is credited with as many as the
favourites in the query's language hold; where all are in another language, words count for nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from forebay.kernel.documents import Hit
from forebay.kernel.stages import HitVectors
from forebay.rerank.places import (
    FIRST_HAN,
    NAME_MIN,
    SPREAD,
    Found,
    Texts,
    folded,
)

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Mask = NDArray[np.bool_]

FEATURES_VERSION = 3
"""Raise it whenever a feature may come out otherwise: models say which they were trained on."""

FEATURES = (
    "fused", "favoured", "cosine", "cosine_foreign", "window", "adjacent", "numbers", "early",
    "linked", "nearest", "read", "across",
)  # fmt: skip
"""One column each, as ``candidates_of`` makes them: the fused score first; the last two, the same
for all candidates, whether vectors of their sentences were read, and the share of them in another
language than the query."""

_OF_WORDS = slice(FEATURES.index("window"), FEATURES.index("early") + 1)
_LINKED, _NEAREST, _READ = (FEATURES.index(name) for name in ("linked", "nearest", "read"))
_SHARED_SCRIPT = [FEATURES.index(name) for name in ("window", "adjacent", "early")]
_UNITS_MAX = 48
_EARLY_CHARACTERS = 300
_HAN_WINDOW, _LATIN_WINDOW = 60, 160
_HAN_STEP, _LATIN_STEP = 3, 20
_FAVOURED = 20.0
"""How sharply candidates are weighed by fused score where some stand for all."""
_RUN = re.compile(r"[0-9a-z][0-9a-z.,%'\-]*[0-9a-z%]|[0-9a-z]|[\u3400-\u9fff\uf900-\ufaff]+")
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


def candidates_of(query: str, hits: Sequence[Hit], vectors: HitVectors) -> Candidates:
    """Return what a model takes of ``hits``."""
    texts = Texts([hit.chunk for hit in hits])
    foreign = _foreign(query, hits)
    features = np.zeros((len(hits), len(FEATURES)))
    _scores(features, hits, foreign, vectors.nearest)
    features[:, _OF_WORDS] = _words(query, texts)
    features[:, _LINKED] = _linked(features[:, 1], texts) * ~foreign
    features[:, -1] = foreign.mean()
    _credit_foreign(features, foreign)
    return Candidates(
        features.astype(np.float32),
        np.frombuffer(vectors.query, "<f4"),
        np.frombuffer(vectors.hits, "<f4").reshape(len(hits), vectors.dimensions),
    )


def query_units(query: str) -> tuple[str, ...]:
    """Return what is looked for in texts: Latin words cut to their stems, Han pairs."""
    units: list[str] = []
    for run in _RUN.findall(folded(query)):
        if run[0] >= FIRST_HAN:
            units += [run[i : i + 2] for i in range(len(run) - 1)] or [run]
        elif run not in _COMMON:
            units.append(_stem(run))
    return tuple(dict.fromkeys(units))[:_UNITS_MAX]


def _scores(columns: Doubles, hits: Sequence[Hit], foreign: Mask, nearest: Sequence[float]) -> None:
    """The columns up to ``cosine_foreign``, what the search said, and ``nearest`` and ``read``."""
    fused = np.array([hit.score for hit in hits])
    cosine = np.array([np.nan if hit.cosine is None else hit.cosine for hit in hits])
    unknown = np.isnan(cosine)
    if unknown.any():
        cosine[unknown] = 0.0 if unknown.all() else cosine[~unknown].min()
    spread = _spread(cosine)
    columns[:, 0] = fused
    columns[:, 1] = np.exp(_FAVOURED * (fused - fused.max()))
    columns[:, 2] = spread
    columns[:, 3] = spread * foreign
    if nearest:
        told = np.array(nearest)
        # What has no sentences is one piece itself.
        columns[:, _NEAREST] = _spread(np.where(np.isnan(told), cosine, told))
        columns[:, _READ] = 1.0


def _spread(cosines: Doubles) -> Doubles:
    """Cosines by how far they are from their middle, as one query's are spread."""
    spread: Doubles = (cosines - cosines.mean()) / max(float(cosines.std()), 1e-3) / 3.0
    return spread


def _foreign(query: str, hits: Sequence[Hit]) -> Mask:
    asked = _is_han(query)
    found = [
        (hit.chunk.language.startswith("zh") if hit.chunk.language else _is_han(hit.chunk.text))
        for hit in hits
    ]
    return np.array([han != asked for han in found], np.bool_)


def _credit_foreign(features: Doubles, foreign: Mask) -> None:
    if not foreign.any():
        return
    if foreign.all():
        # The few words that two languages share say little, and digits are the same in both.
        features[:, _SHARED_SCRIPT] = 0.0
        return
    favour = features[:, 1] * ~foreign
    held = features[:, _OF_WORDS]
    earned = favour @ held / max(float(favour.sum()), 1e-12)
    features[:, _OF_WORDS] = np.where(foreign[:, None], np.maximum(held, earned), held)


def _words(query: str, texts: Texts) -> Doubles:
    """The columns from ``window`` to ``early``: where the query's words are in each candidate."""
    rows = len(texts.named)
    columns = np.zeros((rows, 4))
    units = query_units(query)
    if not units:
        return columns
    found = texts.find(units)
    held = np.zeros((rows, len(units)), np.bool_)
    held[found.row, found.unit] = True
    many = held.sum(axis=0)
    worth = np.log1p((rows - many + 0.5) / (many + 0.5)) * (many > 0)
    total = float(worth.sum())
    if total <= 0.0:
        return columns
    han = sum(unit[0] >= FIRST_HAN for unit in units) * 2 > len(units)
    columns[:, 0] = _windows(found, worth, rows, _HAN_WINDOW if han else _LATIN_WINDOW)
    columns[:, 1] = _adjacent(found, units, worth, rows)
    numbers = np.array([any(map(str.isdigit, unit)) for unit in units])
    if numbers.any():
        columns[:, 2] = held[:, numbers].mean(axis=1) - 0.5
    begins = found.at % SPREAD < _EARLY_CHARACTERS
    early = np.zeros_like(held)
    early[found.row[begins], found.unit[begins]] = True
    columns[:, 3] = early @ worth
    columns[:, [0, 3]] /= total
    return columns


def _windows(found: Found, worth: Doubles, rows: int, span: int) -> Doubles:
    """The most worth of words that stand within ``span`` characters, per row."""
    last = np.full((len(found.at), len(worth)), -SPREAD, np.int32)
    last[np.arange(len(found.at)), found.unit] = found.at
    np.maximum.accumulate(last, axis=0, out=last)
    inside = (last >= (found.at - span)[:, None]) @ worth
    best = np.zeros(rows)
    np.maximum.at(best, found.row, inside)
    return best


def _adjacent(found: Found, units: Sequence[str], worth: Doubles, rows: int) -> Doubles:
    """The share, by worth, of the query's neighbouring words that are neighbours in a text."""
    pairs = worth[:-1] + worth[1:]
    most = float(pairs.sum())
    if most <= 0.0:
        return np.zeros(rows)
    steps = np.array([_HAN_STEP if unit[0] >= FIRST_HAN else _LATIN_STEP for unit in units])
    by_unit = np.argsort(found.unit.astype(np.uint8), kind="stable")
    apart = rows * SPREAD
    keys = found.unit[by_unit] * apart + found.at[by_unit]
    unit, row, at = found.unit[by_unit], found.row[by_unit], keys + apart
    after = np.append(keys, np.iinfo(np.int64).max)[keys.searchsorted(at, side="right")]
    near = (after - at <= steps[unit]) & (unit < len(pairs))
    got = np.zeros((rows, len(units)), np.bool_)
    got[row[near], unit[near]] = True
    shares: Doubles = got[:, :-1] @ pairs / most
    return shares


def _linked(favoured: Doubles, texts: Texts) -> Doubles:
    """How well-placed those are that name a candidate's title, per candidate."""
    linked = np.zeros(len(texts.named))
    rows: dict[str, list[int]] = {}
    for row, one in enumerate(texts.named):
        if len(one.name) >= NAME_MIN:
            rows.setdefault(one.name, []).append(row)
    titles = [one.title for one in texts.named]
    if not rows or len(set(titles)) < 2:
        return linked
    favour = favoured**0.25
    for name, naming in texts.naming(list(rows)):
        for row in rows[name]:
            if titles[row] != titles[naming]:
                linked[row] = max(linked[row], favour[naming])
    return linked


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
