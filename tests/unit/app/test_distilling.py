"""A student that is worse than no student at all is not praised."""

from __future__ import annotations

from forebay.app.distilling import Distilled, reservations
from forebay.lab.distill.light_data import Ordering


def test_a_model_that_is_surely_worse_than_the_search_is_told() -> None:
    worse = Ordering(70, 0.936, 0.919, -0.017, -0.037, -0.001)
    unsure = Ordering(70, 0.936, 0.932, -0.004, -0.025, 0.012)
    found = Distilled("light.onnx", 1, 70, {"ours": worse, "theirs": unsure}, {})
    [sentence] = reservations(found)
    assert "ours" in sentence and "do not serve it" in sentence
