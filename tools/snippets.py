"""Finds the code blocks of a page that are marked as tested.

A block counts when a line ``<!-- tested: NAME -->`` stands before its fence. CI takes the test
command from README.md this way, so the page and CI cannot drift apart. Standard library only:
it runs before anything is installed. ``python3 tools/snippets.py README.md test`` prints a block.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

_MARK = re.compile(r"^\s*<!--\s*tested:\s*(?P<name>[a-z0-9-]+)\s*-->\s*$")
_FENCE = re.compile(r"^\s*(?P<fence>`{3,}|~{3,})")


def marked_blocks(text: str) -> dict[str, str]:
    """The marked blocks by name, in the page's order.

    Raises ValueError when a mark has no block after it or a name is used twice.
    """
    blocks: dict[str, str] = {}
    lines = iter(text.splitlines())
    for line in lines:
        mark = _MARK.match(line)
        if mark is None:
            continue
        name = mark["name"]
        if name in blocks:
            raise ValueError(f"two blocks are marked as tested: {name}")
        opening = next((later for later in lines if later.strip()), "")
        fence = _FENCE.match(opening)
        if fence is None:
            raise ValueError(f"no code block follows the mark tested: {name}")
        body: list[str] = []
        for inner in lines:
            if inner.strip() == fence["fence"]:
                break
            body.append(inner)
        blocks[name] = "\n".join(body) + "\n"
    return blocks


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
