"""Logs of questions with sequences in them, and how much of each log is real.

Real: when requests arrive, which belong to one conversation and how long they are (Mooncake's
production trace: a request belongs to the conversation of the one whose prompt it continues by
more than the common first block), and what people ask (banking77). Made, as no public log has both:
which intent a conversation begins with (Zipf 0.8), which follows (each intent has three usual
successors, taken with 60, 20 and 5 %; else any, as at the beginning), which wording of an intent is
used (Zipf 1). So conversations have an order as those of a support desk have, a sixth of it noise.
"""

from __future__ import annotations

import csv
import json
import math
import random
from bisect import bisect
from collections import defaultdict
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

SEED = 20260130
FOLLOWERS = (0.6, 0.2, 0.05)


class Request(NamedTuple):
    """``shape`` is the real class of the request: its lengths in and out, by powers of two."""

    at: float
    user: str
    shape: str
    intent: str
    text: str


class Zipf:
    def __init__(self, count: int, power: float) -> None:
        self._sums = list(accumulate(1 / rank**power for rank in range(1, count + 1)))

    def draw(self, chance: random.Random) -> int:
        return bisect(self._sums, chance.random() * self._sums[-1])


def conversations(file: Path) -> list[tuple[float, str, str]]:
    """Time in seconds, conversation, shape of every request of a Mooncake trace."""
    owners: dict[tuple[int, ...], str] = {}
    found = []
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines()):
        row = json.loads(line)
        blocks = tuple(row["hash_ids"])
        owner = f"c{number}"
        for length in range(len(blocks), 1, -1):
            if blocks[:length] in owners:
                owner = owners[blocks[:length]]
                break
        for length in range(2, len(blocks) + 1):
            owners.setdefault(blocks[:length], owner)
        lengths = (row["input_length"], row["output_length"])
        shape = "/".join(str(int(math.log2(max(1, value)))) for value in lengths)
        found.append((row["timestamp"] / 1000, owner, shape))
    return found


def questions(file: Path) -> dict[str, list[str]]:
    by_intent: dict[str, list[str]] = defaultdict(list)
    with file.open(encoding="utf-8", newline="") as source:
        for text, intent in list(csv.reader(source))[1:]:
            by_intent[intent].append(text)
    return by_intent


def log(data: Path) -> list[Request]:
    """The log described above."""
    chance = random.Random(SEED)
    asked = questions(data / "queries" / "banking77_train.csv")
    intents = sorted(asked)
    chance.shuffle(intents)
    usual = {intent: chance.sample(intents, len(FOLLOWERS)) for intent in intents}
    first = Zipf(len(intents), 0.8)
    wording = {intent: Zipf(len(texts), 1.0) for intent, texts in asked.items()}
    last: dict[str, str] = {}
    found = []
    for at, user, shape in conversations(data / "traces" / "mooncake_conversation.jsonl"):
        intent = intents[first.draw(chance)]
        if user in last:
            drawn = chance.random()
            for follower, share in zip(usual[last[user]], FOLLOWERS, strict=True):
                drawn -= share
                if drawn < 0:
                    intent = follower
                    break
        last[user] = intent
        text = asked[intent][wording[intent].draw(chance)]
        found.append(Request(at, user, shape, intent, text))
    return found


def shuffled(requests: Sequence[Request]) -> list[Request]:
    """The same arrivals, users and questions as often; who asks what, and when, by chance."""
    chance = random.Random(SEED + 1)
    what = [(one.shape, one.intent, one.text) for one in requests]
    chance.shuffle(what)
    return [Request(one.at, one.user, *each) for one, each in zip(requests, what, strict=True)]
