"""API keys from files, so that no process list shows them."""

from __future__ import annotations

from pathlib import Path

from forebay.kernel.errors import ConfigError

_MAX_BYTES = 4096


def read_key(path: Path | None) -> str:
    """The key that a file holds; empty without a file, ``ConfigError`` for anything else."""
    if path is None:
        return ""
    try:
        with path.open("rb") as file:
            key = file.read(_MAX_BYTES).decode("ascii").strip()
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is no key file: it must hold one key.") from error
    if len(key.split()) != 1:
        raise ConfigError(f"{path} is no key file: it must hold one key and nothing else.")
    return key
