"""How many tokens engines count where one is estimated.

The estimate is good for one vocabulary; another may take twice as many for Chinese. Whatever must
fit before an engine can count it, as parts of a long text, goes by what was counted lately.
"""

from __future__ import annotations

_FADES = 1 / 16


class Density:
    """Tokens counted for each that was estimated, by the language of prompts; 1 at the least."""

    def __init__(self) -> None:
        self._known: dict[str, float] = {}

    def learn(self, language: str, estimated: int, counted: int) -> None:
        """Note one prompt. What is denser counts at once: it would not have fitted."""
        ratio = counted / max(1, estimated)
        known = self._known.get(language, 1.0)
        self._known[language] = ratio if ratio > known else known + _FADES * (ratio - known)

    def most(self) -> float:
        """Of whatever language."""
        return max((1.0, *self._known.values()))

    def of(self, language: str) -> float:
        """What to divide room by before anything is estimated to fit."""
        return max(1.0, self._known.get(language, 1.0))
