"""What rerankers did and failed to do: counts, and which of them keeps failing."""

from __future__ import annotations

from typing import Literal

Model = Literal["light", "dear"]
MODELS: tuple[Model, ...] = ("light", "dear")
FAILING_AFTER = 3
"""Failures in a row from which a reranker is said to fail."""
_INSTEAD = {"light": "the search's order stands", "dear": "the light one's order stands"}


class RerankTally:
    """Counts of one process; the event loop alone writes them."""

    def __init__(self) -> None:
        self._counts = dict.fromkeys(
            (
                "by_dear", "by_light", "by_search", "busy", "texts_asked", "texts_spared",
                "light_failures", "dear_failures",
            ),
            0,
        )  # fmt: skip
        self._in_a_row: dict[Model, int] = dict.fromkeys(MODELS, 0)
        self._reason: dict[Model, str] = dict.fromkeys(MODELS, "")

    def ordered(self, by: Literal["dear", "light", "search"]) -> None:
        """Count one search by whose order it got."""
        self._counts[f"by_{by}"] += 1

    def busy(self) -> None:
        """Count one search that found every place taken."""
        self._counts["busy"] += 1

    def texts(self, asked: int, of: int) -> None:
        """Count the texts that the dear model was given of those it could have been given."""
        self._counts["texts_asked"] += asked
        self._counts["texts_spared"] += of - asked

    def worked(self, model: Model) -> None:
        """Count a call that came to an order: the model does not keep failing."""
        self._in_a_row[model] = 0

    def failed(self, model: Model, reason: str, *, had_its_time: bool = True) -> None:
        """Count a failure; one by a request's own short deadline says nothing of the model."""
        self._counts[f"{model}_failures"] += 1
        if had_its_time:
            self._in_a_row[model] += 1
            self._reason[model] = reason

    def statistics(self) -> dict[str, float]:
        """Searches by who ordered them, texts asked and spared, failures; who keeps failing."""
        failing = {
            f"{model}_failing": float(self._in_a_row[model] >= FAILING_AFTER) for model in MODELS
        }
        return {**self._counts, **failing}

    def shortcomings(self) -> tuple[str, ...]:
        """Rerankers that keep failing, in sentences."""
        return tuple(
            f"the {model} reranker failed {count} times in a row, last with "
            f"{self._reason[model]}; {_INSTEAD[model]}."
            for model, count in self._in_a_row.items()
            if count >= FAILING_AFTER
        )
