"""Prompts as tokens: their number, the hashes of their full blocks, a number of their own."""

from __future__ import annotations

import re
import zlib

import msgspec

from forebay.lab.workload.text import mixed
from forebay.lab.workload.tokens import count_tokens, split_tokens

_SLICE_CHARS = 65_536
_SQUEEZED_FROM = 4096
_PASSAGE = re.compile(
    r"^\[1\](?: ?[(（][^\n]*[)）])?\n(.*?)(?=^\[2\]|^=====)", re.MULTILINE | re.DOTALL
)


class Prompt(msgspec.Struct, frozen=True, gc=False):
    """A prompt of ``tokens`` laboratory tokens.

    Hashes are equal in one process only; ``number`` is equal for equal texts everywhere.
    """

    tokens: int
    block_hashes: tuple[int, ...]
    number: int
    chinese: bool
    passage: str = ""
    """Its first numbered passage, where answers are to quote it."""


def read_prompt(text: str, block_tokens: int | None, *, quoting: bool = False) -> Prompt:
    """Tokens and blocks of a text; without ``block_tokens`` no hashes are made."""
    data = text.encode("utf-8", "surrogatepass")
    number = mixed(zlib.crc32(data) << 32 | len(data) & 0xFFFFFFFF)
    found = _PASSAGE.search(text) if quoting else None
    passage = found[1].strip() if found is not None else ""
    text = squeezed(text)
    if block_tokens is None:
        return Prompt(count_tokens(text), (), number, _chinese(text), passage)
    pieces = split_tokens(text)
    whole = len(pieces) - len(pieces) % block_tokens
    hashes = tuple(
        hash(tuple(pieces[start : start + block_tokens])) for start in range(0, whole, block_tokens)
    )
    return Prompt(len(pieces), hashes, number, _chinese(text), passage)


def surely_longer(text: str, tokens: int) -> bool:
    """Whether ``text`` has more than ``tokens`` tokens, found out without reading all of it.

    False for texts that have to be counted to the end: a cut may split a token in two, so each
    slice counts for one less.
    """
    if len(text) <= tokens:
        return False
    found = 0
    for start in range(0, len(text), _SLICE_CHARS):
        found += count_tokens(squeezed(text[start : start + _SLICE_CHARS])) - 1
        if found > tokens:
            return True
    return False


def squeezed(text: str) -> str:
    """``text`` with the same tokens and no more than one character of white space between them.

    A pattern looks at each of four million blanks, for a tenth of a second and more; to split at
    them takes a millisecond.
    """
    return " ".join(text.split()) if len(text) > _SQUEEZED_FROM else text


def _chinese(text: str) -> bool:
    """Whether the end of the prompt, where the question stands, is written in Chinese."""
    return any("\u4e00" <= character <= "\u9fff" for character in text[-64:])
