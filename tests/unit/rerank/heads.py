"""A small head for tests: states turned at random, both sides alike."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from forebay.kernel.stages import EmbedderSpec
from forebay.lab.distill.late import LateHead
from forebay.lab.distill.late_export import HeadDescription, write_late_head


def small_head(inputs: int, dimensions: int = 32) -> LateHead:
    """A random turn; query tokens weigh the same."""
    matrix = np.random.default_rng(4).standard_normal((inputs, dimensions)).astype(np.float32)
    offset = np.zeros(dimensions, np.float32)
    return LateHead(
        matrix, offset, matrix, offset, np.zeros(inputs, np.float32), np.zeros(1, np.float32)
    )


def write_small_head(folder: Path, spec: EmbedderSpec) -> Path:
    """The head as a file, for ``spec``'s states."""
    path = folder / "late.onnx"
    write_late_head(
        small_head(spec.dimensions), path, HeadDescription(spec.fingerprint, 0.6, 0.1, "nothing")
    )
    return path
