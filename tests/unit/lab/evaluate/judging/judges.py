"""A scripted judge behind a real endpoint: it reads the prompt it is sent and knows the truth."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from typing import Any

_PASSAGE = re.compile(r'(?:Passage|段落) \d+[:：]\n"""(.*?)"""', re.DOTALL)
_QUESTION = re.compile(r"(?:Question|问题): (.*)")
Truth = Callable[[str, str], float]
"""From question and passage to how good it is, 0..1."""


def completion(text: str) -> dict[str, Any]:
    return {
        "choices": [{"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 10},
    }


class ScriptedJudge:
    """Scores by ``truth``, plus what ends and length lend a passage, plus noise."""

    def __init__(
        self, truth: Truth, *, ends: float = 0.0, length: float = 0.0, noise: float = 0.0
    ) -> None:
        self._truth = truth
        self._ends, self._length, self._noise = ends, length, noise
        self._chance = random.Random(3)
        self.asked: list[str] = []

    def __call__(self, _path: str, body: dict[str, Any]) -> Any:
        text = body["messages"][1]["content"]
        self.asked.append(text)
        scores = self._scores(text)
        if '"order"' in text:
            ranked = sorted(range(len(scores)), key=lambda at: -scores[at])
            return completion(json.dumps({"order": [at + 1 for at in ranked]}))
        if '"consistent"' in text:
            return completion('{"consistent": true}')
        rows = {
            number: {
                "relevance": round(10 * value),
                "information": round(10 * value),
                "redundancy": 0,
            }
            for number, value in enumerate(scores, 1)
        }
        return completion("Here you are:\n```json\n" + json.dumps({"scores": rows}) + "\n```")

    def _scores(self, text: str) -> list[float]:
        found = _QUESTION.search(text)
        assert found is not None
        passages = _PASSAGE.findall(text)
        last = max(1, len(passages) - 1)
        scores = [
            self._truth(found[1], passage)
            + self._ends * abs(2 * at / last - 1)
            + self._length * len(passage.split()) / 100
            + self._chance.gauss(0, self._noise)
            for at, passage in enumerate(passages)
        ]
        return [min(1.0, max(0.0, score)) for score in scores]
