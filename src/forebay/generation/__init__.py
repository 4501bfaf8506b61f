"""Generators behind one protocol: extractive, OpenAI-compatible engines, local models."""
