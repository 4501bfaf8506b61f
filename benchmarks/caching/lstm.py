"""A small LSTM in numpy, for comparison only: embedding, one layer, softmax over what is next."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


class Lstm:
    """Trained by Adam on sequences of symbols 1..``symbols``; 0 is the beginning."""

    def __init__(self, symbols: int, width: int = 32, hidden: int = 64, seed: int = 1) -> None:
        chance = np.random.default_rng(seed)

        def weights(rows: int, columns: int) -> Floats:
            return (chance.standard_normal((rows, columns)) / np.sqrt(rows)).astype(np.float32)

        self.hidden = hidden
        self.p = {
            "e": weights(symbols + 1, width),
            "w": weights(width + hidden, 4 * hidden),
            "b": np.zeros(4 * hidden, np.float32),
            "o": weights(hidden, symbols + 1),
            "c": np.zeros(symbols + 1, np.float32),
        }
        self.p["b"][hidden : 2 * hidden] = 1.0  # remember, to begin with
        self._m = {name: np.zeros_like(value) for name, value in self.p.items()}
        self._v = {name: np.zeros_like(value) for name, value in self.p.items()}
        self._step = 0

    def probabilities(self, batch: NDArray[np.int64]) -> Floats:
        """Of each next symbol, for every place of every row."""
        return self._forward(batch)[0]

    def train(self, batch: NDArray[np.int64], targets: NDArray[np.int64], rate: float) -> float:
        """One step; targets of 0 do not count. The mean loss."""
        found, states = self._forward(batch)
        mask = targets > 0
        count = max(1, int(mask.sum()))
        rows, places = np.nonzero(mask)
        right = found[rows, places, targets[rows, places]]
        loss = float(-np.log(np.maximum(right, 1e-9)).mean())
        wrong = np.zeros_like(found)
        wrong[rows, places] = found[rows, places]
        wrong[rows, places, targets[rows, places]] -= 1.0
        self._adam(self._backward(batch, states, wrong / count), rate)
        return loss

    def _forward(self, batch: NDArray[np.int64]) -> tuple[Floats, list[tuple[Floats, ...]]]:
        p, n = self.p, self.hidden
        h = np.zeros((len(batch), n), np.float32)
        c = np.zeros_like(h)
        states, outs = [], []
        for place in range(batch.shape[1]):
            x = np.concatenate([p["e"][batch[:, place]], h], axis=1)
            z = x @ p["w"] + p["b"]
            i, f, o = (1 / (1 + np.exp(-z[:, at * n : (at + 1) * n])) for at in range(3))
            g = np.tanh(z[:, 3 * n :])
            before, c = c, f * c + i * g
            t = np.tanh(c)
            h = o * t
            states.append((x, i, f, o, g, before, t, h))
            logits = h @ p["o"] + p["c"]
            logits -= logits.max(axis=1, keepdims=True)
            exp = np.exp(logits)
            outs.append(exp / exp.sum(axis=1, keepdims=True))
        return np.stack(outs, axis=1), states

    def _backward(
        self, batch: NDArray[np.int64], states: list[tuple[Floats, ...]], wrong: Floats
    ) -> dict[str, Floats]:
        p, n, width = self.p, self.hidden, self.p["e"].shape[1]
        grads = {name: np.zeros_like(value) for name, value in p.items()}
        dh = np.zeros((len(batch), n), np.float32)
        dc = np.zeros_like(dh)
        for place in reversed(range(batch.shape[1])):
            x, i, f, o, g, before, t, h = states[place]
            dy = wrong[:, place]
            grads["o"] += h.T @ dy
            grads["c"] += dy.sum(axis=0)
            dh = dh + dy @ p["o"].T
            dc = dc + dh * o * (1 - t * t)
            dz = np.concatenate(
                [
                    dc * g * i * (1 - i),
                    dc * before * f * (1 - f),
                    dh * t * o * (1 - o),
                    dc * i * (1 - g * g),
                ],
                axis=1,
            )
            grads["w"] += x.T @ dz
            grads["b"] += dz.sum(axis=0)
            dx = dz @ p["w"].T
            np.add.at(grads["e"], batch[:, place], dx[:, :width])
            dh, dc = dx[:, width:], dc * f
        return grads

    def _adam(self, grads: dict[str, Floats], rate: float) -> None:
        self._step += 1
        norm = float(np.sqrt(sum(float((grad**2).sum()) for grad in grads.values())))
        for name, raw in grads.items():
            grad = raw * min(1.0, 5.0 / (norm + 1e-9))
            self._m[name] += 0.1 * (grad - self._m[name])
            self._v[name] += 0.001 * (grad**2 - self._v[name])
            m = self._m[name] / (1 - 0.9**self._step)
            v = self._v[name] / (1 - 0.999**self._step)
            self.p[name] -= rate * m / (np.sqrt(v) + 1e-8)


def fitted(
    sequences: Sequence[Sequence[int]], symbols: int, held_out: Sequence[Sequence[int]]
) -> Lstm:
    """Trained until it no longer gets better on what was held out, 30 rounds at most."""
    model = Lstm(symbols)
    chance = np.random.default_rng(1)
    batches = list(_batches(sequences, chance))
    best, best_loss, worse = {k: v.copy() for k, v in model.p.items()}, float("inf"), 0
    for _ in range(30):
        for at in chance.permutation(len(batches)):
            model.train(*batches[at], 3e-3)
        loss = _loss(model, held_out)
        worse = 0 if loss < best_loss else worse + 1
        if loss < best_loss:
            best, best_loss = {k: v.copy() for k, v in model.p.items()}, loss
        if worse == 3:
            break
    model.p = best
    return model


def padded(
    sequences: Sequence[Sequence[int]], most: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Inputs that begin with 0, and targets."""
    longest = min(most, max(map(len, sequences)))
    inputs = np.zeros((len(sequences), longest), np.int64)
    targets = np.zeros((len(sequences), longest), np.int64)
    for row, sequence in enumerate(sequences):
        cut = list(sequence[:longest])
        targets[row, : len(cut)] = cut
        inputs[row, 1 : len(cut)] = cut[:-1]
    return inputs, targets


def _batches(sequences: Sequence[Sequence[int]], chance: np.random.Generator):  # type: ignore[no-untyped-def]
    order = sorted(range(len(sequences)), key=lambda at: (len(sequences[at]), chance.random()))
    for at in range(0, len(order), 64):
        yield padded([sequences[one] for one in order[at : at + 64]], 24)


def _loss(model: Lstm, sequences: Sequence[Sequence[int]]) -> float:
    total, count = 0.0, 0
    for inputs, targets in _batches(sequences, np.random.default_rng(1)):
        found = model.probabilities(inputs)
        rows, places = np.nonzero(targets)
        right = found[rows, places, targets[rows, places]]
        total -= float(np.log(np.maximum(right, 1e-9)).sum())
        count += len(rows)
    return total / max(1, count)
