"""Judges of passages: a model behind an endpoint, its biases, a small one that learns from it."""
