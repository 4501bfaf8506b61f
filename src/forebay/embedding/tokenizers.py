"""Text to token ids, in bounded time for any input."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any, Protocol

from sentencepiece import SentencePieceProcessor

from forebay.kernel.errors import ConfigError

CHARACTERS_PER_TOKEN = 8
"""Only this many characters per allowed token reach a tokenizer; the rest would be cut anyway."""

_LIST_BYTES = 65_536
"""Above this, ids come as an array: making a list of them would hold the interpreter lock."""


class Tokenizer(Protocol):
    """Turns a text into the ids one model wants."""

    @property
    def pad_id(self) -> int:
        """What fills a batch's shorter rows."""
        ...

    def encode(self, text: str, limit: int) -> list[int]:
        """Ids with the model's special tokens, at most ``limit`` of them."""
        ...


def leading_text(text: str, limit: int) -> str:
    """The part of ``text`` that ``limit`` tokens can hold, white space runs collapsed.

    White space is collapsed before the cut, so that a text that begins with a megabyte of blanks
    still has a meaning.
    """
    bound = limit * CHARACTERS_PER_TOKEN
    if len(text) <= bound:
        return text
    head = text.lstrip()[: 4 * bound]
    return " ".join(head.split())[:bound]


class SentencePieceTokenizer:
    """A SentencePiece model with XLM-R's ``<s> … </s>``; safe to call from several threads.

    The interpreter lock is free while it works. Words that spell a special token are text.
    """

    def __init__(self, path: Path) -> None:
        self._processor = SentencePieceProcessor()
        try:
            self._processor.LoadFromFile(str(path))
        except (RuntimeError, OSError) as error:
            raise ConfigError(f"the tokenizer model cannot be read: {path.name}") from error
        self._bos: int = self._processor.bos_id()
        self._eos: int = self._processor.eos_id()
        self._pad: int = self._processor.pad_id()

    @property
    def pad_id(self) -> int:
        """What fills a batch's shorter rows."""
        return self._pad

    def encode(self, text: str, limit: int) -> list[int]:
        """``<s>``, at most ``limit - 2`` pieces, ``</s>``."""
        cut = leading_text(text, limit).encode("utf-8", "replace")
        pieces: list[int] = self._processor.EncodeAsIds(cut)
        return [self._bos, *pieces[: limit - 2], self._eos]

    def count(self, text: str) -> int:
        """Pieces in ``text``, special tokens not included; time grows with the text."""
        data = text.encode("utf-8", "replace")
        if len(data) <= _LIST_BYTES:
            return len(self._processor.EncodeAsIds(data))
        return len(self._processor.EncodeAsNumpy(data))


class HuggingFaceTokenizer:
    """A ``tokenizer.json``; holds the interpreter lock while it works, so texts are cut first."""

    def __init__(self, path: Path, *, pad_id: int = 0) -> None:
        library: Any = importlib.import_module("tokenizers")
        try:
            self._tokenizer = library.Tokenizer.from_file(str(path))
        except Exception as error:
            # The library raises bare Exception for every unreadable file.
            raise ConfigError(f"the tokenizer cannot be read: {path.name}") from error
        padding = self._tokenizer.padding
        self._pad = int(padding["pad_id"]) if padding else pad_id
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._special = int(self._tokenizer.num_special_tokens_to_add(False))

    @property
    def pad_id(self) -> int:
        """What fills a batch's shorter rows."""
        return self._pad

    def encode(self, text: str, limit: int) -> list[int]:
        """Ids with special tokens where the tokenizer adds them, at most ``limit``."""
        cut = leading_text(text, limit).encode("utf-8", "replace").decode()
        encoding = self._tokenizer.encode(cut, add_special_tokens=False)
        encoding.truncate(limit - self._special)
        return list(self._tokenizer.post_process(encoding, None, True).ids)

    def count(self, text: str) -> int:
        """Tokens in ``text``, special tokens not included; time grows with the text."""
        cut = text.encode("utf-8", "replace").decode()
        return len(self._tokenizer.encode(cut, add_special_tokens=False).ids)
