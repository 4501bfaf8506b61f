"""Embedders and token counters: local ONNX models, OpenAI-compatible endpoints, calibration."""
