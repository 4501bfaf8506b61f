"""The words' features said plainly, text by text: what the quick ones are held to."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from forebay.kernel.documents import ChunkRow
from forebay.rerank.features import query_units
from forebay.rerank.places import folded

_HAN = re.compile("[\u3400-\u9fff\uf900-\ufaff]")


def words(query: str, chunks: Sequence[ChunkRow]) -> np.ndarray:
    """Columns window, adjacent, numbers, early (n x 4)."""
    units = query_units(query)
    texts = [_text(chunk) for chunk in chunks]
    if not units:
        return np.zeros((len(texts), 4))
    places = [[_places(unit, text) for unit in units] for text in texts]
    held = [sum(bool(row[at]) for row in places) for at in range(len(units))]
    worth = [np.log1p((len(texts) - n + 0.5) / (n + 0.5)) if n else 0.0 for n in held]
    columns = np.zeros((len(texts), 4))
    if not sum(worth):
        return columns
    han = sum(unit[0] >= "\u3400" for unit in units) * 2 > len(units)
    numbers = [at for at, unit in enumerate(units) if any(map(str.isdigit, unit))]
    for row, found in enumerate(places):
        columns[row, 0] = _window(found, worth, 60 if han else 160) / sum(worth)
        columns[row, 1] = _adjacent(units, found, worth)
        if numbers:
            columns[row, 2] = np.mean([bool(found[at]) for at in numbers]) - 0.5
        early = (w for w, at in zip(worth, found, strict=True) if at and at[0] < 300)
        columns[row, 3] = sum(early) / sum(worth)
    return columns


def linked(fused: Sequence[float], chunks: Sequence[ChunkRow]) -> np.ndarray:
    """How well-placed the best candidate is that names each one's title."""
    texts = [_text(chunk) for chunk in chunks]
    titles = [folded(chunk.title) for chunk in chunks]
    found = np.zeros(len(chunks))
    for row, title in enumerate(titles):
        name = re.sub(r"^[\W_]+", "", re.sub(r"\s*\(.*?\)\s*$", "", title))
        for other, text in enumerate(texts):
            if len(name) >= 4 and titles[other] != title and _begun(name, text):
                found[row] = max(found[row], np.exp(5 * (fused[other] - max(fused))))
    return found


def _text(chunk: ChunkRow) -> str:
    said = f"{chunk.context}\n{chunk.text}" if chunk.context else chunk.text
    heads = [folded(chunk.title), *map(folded, chunk.heading_path)]
    return "\n".join([*heads, folded(said[:4000])])


def _begun(word: str, text: str) -> list[int]:
    """Where ``word`` begins a word of ``text``, or stands at all if it begins in Han."""
    at = [m.start() for m in re.finditer(f"(?={re.escape(word)})", text)]
    if _HAN.match(word):
        return at
    return [a for a in at if a == 0 or not text[a - 1].isalnum() or _HAN.match(text[a - 1])]


def _places(unit: str, text: str) -> list[int]:
    return _begun(unit, text)[:8]


def _window(found: Sequence[list[int]], worth: Sequence[float], span: int) -> float:
    ends = [at for places in found for at in places]
    inside = [
        sum(
            w
            for w, places in zip(worth, found, strict=True)
            if any(end - span <= at <= end for at in places)
        )
        for end in ends
    ]
    return max(inside, default=0.0)


def _adjacent(units: Sequence[str], found: Sequence[list[int]], worth: Sequence[float]) -> float:
    got = most = 0.0
    for left in range(len(units) - 1):
        step = 3 if units[left][0] >= "\u3400" else 20
        most += worth[left] + worth[left + 1]
        if any(0 < b - a <= step for a in found[left] for b in found[left + 1]):
            got += worth[left] + worth[left + 1]
    return got / most if most else 0.0
