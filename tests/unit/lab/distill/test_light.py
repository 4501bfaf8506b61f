"""The light reranker's training: exact gradients, teachers and labels, what is held."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from forebay.lab.distill.light import (
    LightExamples,
    LightTraining,
    Parameters,
    first_parameters,
    loss_and_gradients,
    score,
    shares_of,
    train,
)

SMALL = LightTraining(dimensions=8, epochs=60, batch=8, learning_rate=3e-2, margin=0.5, decay=0.0)


def examples(queries: int = 24, most: int = 6, seed: int = 3) -> LightExamples:
    """Candidates of which those with a large third feature are relevant."""
    chance = np.random.default_rng(seed)
    features = chance.standard_normal((queries, most, 6)).astype(np.float32)
    features[..., 0] *= 0.02
    features[..., -2] = chance.random((queries, 1)) < 0.5
    features[..., -1] = chance.random((queries, most)) < 0.5
    mask = np.arange(most) < chance.integers(2, most + 1, (queries, 1))
    vectors = chance.standard_normal((queries, most, 12)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=2, keepdims=True)
    asked = chance.standard_normal((queries, 12)).astype(np.float32)
    asked /= np.linalg.norm(asked, axis=1, keepdims=True)
    target = shares_of(4 * features[..., 2], mask)
    weight = chance.uniform(0.5, 1.5, queries).astype(np.float32)
    return LightExamples(features, asked, vectors, mask, target, weight)


def wide(parameters: Parameters) -> Parameters:
    """In double precision, so that differences are finite and not noise."""
    return {name: value.astype(np.float64) for name, value in parameters.items()}


def test_gradients_are_those_of_finite_differences() -> None:
    chance = np.random.default_rng(5)
    data = examples()
    parameters = first_parameters(data, SMALL)
    parameters["linear"] = chance.random(parameters["linear"].shape).astype(np.float32)
    exact = wide(parameters)
    data = msgspec.structs.replace(
        data,
        features=data.features.astype(np.float64),
        queries=data.queries.astype(np.float64),
        vectors=data.vectors.astype(np.float64),
    )
    _, gradients = loss_and_gradients(exact, data, SMALL)
    step = 1e-6
    for name, gradient in gradients.items():
        flat = exact[name].reshape(-1)
        for place in chance.choice(flat.size, min(8, flat.size), replace=False):
            kept = flat[place]
            flat[place] = kept + step
            more, _ = loss_and_gradients(exact, data, SMALL)
            flat[place] = kept - step
            less, _ = loss_and_gradients(exact, data, SMALL)
            flat[place] = kept
            told = gradient.reshape(-1)[place]
            assert told == pytest.approx((more - less) / (2 * step), rel=2e-3, abs=2e-6), name


def test_training_orders_candidates_as_the_teacher_does() -> None:
    data = examples(queries=64)
    losses: list[float] = []
    parameters = train(data, SMALL, lambda _, loss: losses.append(loss))
    assert losses[-1] < 0.3 * losses[0]
    best = np.where(data.mask, score(parameters, data), -np.inf).argmax(axis=1)
    fresh = examples(queries=64, seed=4)
    found = np.where(fresh.mask, score(parameters, fresh), -np.inf).argmax(axis=1)
    assert (best == data.target.argmax(axis=1)).mean() > 0.95
    assert (found == fresh.target.argmax(axis=1)).mean() > 0.9


def test_an_untrained_model_keeps_the_fused_order() -> None:
    data = examples()
    order = score(first_parameters(data, SMALL), data)
    assert np.array_equal(np.argsort(order), np.argsort(data.features[..., 0]))


def test_projections_are_held_where_they_began() -> None:
    data = examples()
    begun = first_parameters(data, SMALL)
    still = train(data, msgspec.structs.replace(SMALL, projection_rate=0.0))
    assert np.array_equal(still["query"], begun["query"])
    free = train(data, msgspec.structs.replace(SMALL, projection_rate=1e-2, hold=0.0))
    held = train(data, msgspec.structs.replace(SMALL, projection_rate=1e-2, hold=50.0))
    moved = [float(np.abs(p["query"] - begun["query"]).mean()) for p in (free, held)]
    assert moved[1] < 0.5 * moved[0]


def test_padding_has_no_share_and_changes_nothing() -> None:
    data = examples()
    noisy = msgspec.structs.replace(
        data, features=np.where(data.mask[..., None], data.features, 9.0).astype(np.float32)
    )
    assert not data.target[~data.mask].any()
    parameters = first_parameters(data, SMALL)
    parameters["linear"] = np.ones_like(parameters["linear"])
    one, two = (loss_and_gradients(parameters, each, SMALL) for each in (data, noisy))
    assert one[0] == pytest.approx(two[0])
    for name, gradient in one[1].items():
        assert gradient == pytest.approx(two[1][name], abs=1e-6)


def test_no_weight_works_against_a_feature() -> None:
    data = examples()
    against = msgspec.structs.replace(data, target=shares_of(-4 * data.features[..., 2], data.mask))
    learned = train(against, SMALL)["linear"]
    assert learned.min() == 0.0 == learned[2]
    assert train(data, SMALL)["linear"][2] > 0.5


def test_projections_are_heard_across_languages_alone() -> None:
    data = examples()
    features = data.features.copy()
    features[..., -1] = 0.0
    own = msgspec.structs.replace(data, features=features)
    parameters = first_parameters(data, SMALL)
    parameters["linear"][-1] = 1.0
    turned = {**parameters, "query": parameters["query"][:, ::-1].copy()}
    assert np.array_equal(score(parameters, own), score(turned, own))
    assert not np.array_equal(score(parameters, data), score(turned, data))
