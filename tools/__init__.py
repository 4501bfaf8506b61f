"""Checks of the repository itself, run by `make lint` and the tests."""
