"""Tokens of a piece of text, by a ``tokenizer.json`` or by a vocabulary that a package carries."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from forebay.kernel.errors import ConfigError

Counting = Callable[[str], int]
_PARAM = "generation.pools"
_LONG_WORD = "a" * 1024
"""Its first sight compiles a vocabulary's pattern, 30 to 100 ms of the interpreter's lock."""


def of_file(path: Path) -> Counting:
    """Counting by a ``tokenizer.json``; ``ConfigError`` where it cannot be read."""
    library: Any = importlib.import_module("tokenizers")
    try:
        tokenizer = library.Tokenizer.from_file(str(path))
    except Exception as error:
        # The library raises bare Exception for every unreadable file.
        raise ConfigError(
            f"generation.pools: the tokenizer {path} cannot be read.", param=_PARAM
        ) from error
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return lambda piece: len(tokenizer.encode(piece, add_special_tokens=False).ids)


def of_bundle(name: str) -> Counting:
    """Counting by a vocabulary of the package ``splintr-rs``; special tokens count as their text.

    ``ConfigError`` where the package is not installed or knows no such name.
    """
    try:
        library: Any = importlib.import_module("splintr")
    except ImportError as error:
        raise ConfigError(
            f'generation.pools: tokenizer = "bundle:{name}" needs the extra vocabularies: '
            "make setup-vocabularies, or pip install 'forebay[vocabularies]'.",
            param=_PARAM,
        ) from error
    try:
        encode = library.Tokenizer.from_pretrained(name).encode_ordinary
    except ValueError as error:
        # Its own sentence names what this version knows.
        raise ConfigError(
            f'generation.pools: tokenizer = "bundle:{name}" names no bundled vocabulary ({error}).',
            param=_PARAM,
        ) from error
    encode(_LONG_WORD)
    return lambda piece: len(encode(piece))
