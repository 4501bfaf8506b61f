"""Fakes and conformance suites: shipped, documented, never used in production."""
