"""Finds the code blocks of a page that are marked as tested.

A block counts when a line ``<!-- tested: NAME -->`` stands before its fence. CI takes the test
command from README.md this way, so the page and CI cannot drift apart. Standard library only:
it runs before anything is installed. ``python3 tools/snippets.py README.md test`` prints a block.

A name stands once on a page, except for the names of languages (``sh``, ``python``, ``toml``),
which say how a block is tested and may be repeated; ``language_blocks`` finds those.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

LANGUAGES = frozenset({"sh", "python", "toml"})
_MARK = re.compile(r"^\s*<!--\s*tested:\s*(?P<name>[a-z0-9-]+)\s*-->\s*$")
_FENCE = re.compile(r"^\s*(?P<fence>`{3,}|~{3,})")


class Block(NamedTuple):
    """A marked block: its name, the line of its mark (1-based), what is inside the fence."""

    name: str
    line: int
    text: str


def blocks(text: str) -> Iterator[Block]:
    """Yield every marked block in the page's order.

    Raises ValueError when a mark has no block after it.
    """
    lines = iter(enumerate(text.splitlines(), 1))
    for number, line in lines:
        mark = _MARK.match(line)
        if mark is None:
            continue
        name = mark["name"]
        opening = next((later for _, later in lines if later.strip()), "")
        fence = _FENCE.match(opening)
        if fence is None:
            raise ValueError(f"no code block follows the mark tested: {name}")
        body: list[str] = []
        for _, inner in lines:
            if inner.strip() == fence["fence"]:
                break
            body.append(inner)
        yield Block(name, number, "\n".join(body) + "\n")


def marked_blocks(text: str) -> dict[str, str]:
    """The marked blocks by name, in the page's order, without those named after a language.

    Raises ValueError when a mark has no block after it or a name is used twice.
    """
    named: dict[str, str] = {}
    for block in blocks(text):
        if block.name in LANGUAGES:
            continue
        if block.name in named:
            raise ValueError(f"two blocks are marked as tested: {block.name}")
        named[block.name] = block.text
    return named


def language_blocks(text: str) -> list[Block]:
    """The blocks marked with the name of a language, in the page's order."""
    return [block for block in blocks(text) if block.name in LANGUAGES]


def main(arguments: list[str]) -> int:
    """Print one block of one page."""
    if len(arguments) != 2:
        print("usage: snippets.py PAGE NAME", file=sys.stderr)
        return 2
    page, name = arguments
    block = marked_blocks(Path(page).read_text(encoding="utf-8")).get(name)
    if block is None:
        print(f"{page} has no code block marked tested: {name}", file=sys.stderr)
        return 1
    print(block, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
