"""What foretells the next request better: counts that back off, or a small LSTM.

Run from the repository's root: python benchmarks/caching/foretelling.py --data ../shared/data
Learned from the first three quarters of each log, asked about the last: for every request that is
not the first of its user, the symbol that comes. Classes are real (Mooncake's lengths in real
conversations); intents and questions follow a made order (see sequences.py). ``sure`` are
predictions with a confidence of .85 and more: those that prewarming acts on.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from pathlib import Path

from lstm import fitted, padded
from sequences import Request, log, shuffled

from forebay.cache.prewarm import BackOff

Symbols = list[tuple[str, str]]
SURE = 0.85


def symbols(requests: Sequence[Request], field: str) -> Symbols:
    return [(one.user, str(getattr(one, field))) for one in requests]


def contexts(history: Sequence[str]) -> list[Hashable]:
    found: list[Hashable] = [()]
    if history:
        found.append(("1", history[-1]))
    if len(history) > 1:
        found.append(("2", *history[-2:]))
    return found


def score(told: Iterator[tuple[list[tuple[str, float]], str]]) -> dict[str, float]:
    asked = right = among = sure = sure_right = 0
    for found, actual in told:
        asked += 1
        right += bool(found) and found[0][0] == actual
        among += any(symbol == actual for symbol, _ in found)
        if found and found[0][1] >= SURE:
            sure += 1
            sure_right += found[0][0] == actual
    return {
        "predictions": asked,
        "first_right": round(right / max(1, asked), 4),
        "among_five": round(among / max(1, asked), 4),
        "sure_share": round(sure / max(1, asked), 4),
        "sure_right": round(sure_right / max(1, sure), 4),
    }


def by_counts(
    train: Symbols, test: Symbols, *, online: bool
) -> Iterator[tuple[list[tuple[str, float]], str]]:
    model: BackOff[str] = BackOff()
    histories: dict[str, list[str]] = defaultdict(list)
    for user, symbol in train:
        model.learn(contexts(histories[user]), symbol)
        histories[user] = [*histories[user], symbol][-2:]
    for user, symbol in test:
        before = contexts(histories[user])
        if histories[user]:
            yield model.foretell(before, 5), symbol
        if online:
            model.learn(before, symbol)
        histories[user] = [*histories[user], symbol][-2:]


def by_lstm(train: Symbols, test: Symbols) -> Iterator[tuple[list[tuple[str, float]], str]]:
    numbers: dict[str, int] = {}
    walks: dict[str, list[int]] = defaultdict(list)
    for user, symbol in train:
        walks[user].append(numbers.setdefault(symbol, len(numbers) + 1))
    names = {number: symbol for symbol, number in numbers.items()}
    sequences = [walk[-24:] for walk in walks.values()]
    held = sequences[::10]
    kept = [one for at, one in enumerate(sequences) if at % 10]
    model = fitted(kept, len(numbers), held)
    for user, symbol in test:
        walk = walks[user][-23:]
        if walk:
            inputs, _ = padded([[*walk, 1]], 24)
            found = model.probabilities(inputs)[0, len(walk)]
            best = found.argsort()[::-1][:6]
            told = [(names[int(at)], float(found[at])) for at in best if at][:5]
            yield told, symbol
        walks[user].append(numbers.get(symbol, 0) or 1)


def timed(work: Callable[[], dict[str, float]]) -> dict[str, float]:
    began = time.perf_counter()
    return {**work(), "seconds": round(time.perf_counter() - began, 1)}


def compared(line: Symbols) -> dict[str, object]:
    cut = len(line) * 3 // 4
    train, test = line[:cut], line[cut:]
    return {
        "symbols": len({symbol for _, symbol in train}),
        "counts": timed(lambda: score(by_counts(train, test, online=False))),
        "counts_online": timed(lambda: score(by_counts(train, test, online=True))),
        "lstm": timed(lambda: score(by_lstm(train, test))),
    }


def measure(data: Path) -> dict[str, object]:
    real = log(data)
    found: dict[str, object] = {}
    for name, requests in (("sequences", real), ("shuffled", shuffled(real))):
        for field in ("shape", "intent", "text"):
            found[f"{name}/{field}"] = compared(symbols(requests, field))
            print(name, field, json.dumps(found[f"{name}/{field}"]), flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/caching/foretelling.json"))
    arguments = parser.parse_args()
    result = measure(arguments.data)
    arguments.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
