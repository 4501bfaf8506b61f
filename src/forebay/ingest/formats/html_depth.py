"""How deep a page nests, told from its tags before a parser sees it.

The HTML standard's tree construction looks up the stack of open elements at most block tags, so
a page of n nested elements costs n squared; real pages nest some dozens.
"""

from __future__ import annotations

import re
from collections import Counter

from forebay.kernel.errors import UnsupportedDocument

_PLAIN_DEPTH = 100
"""Elements open at once that cost nothing worth counting."""
_WORK_MAX = 500_000_000
"""Open elements beyond that, summed over all tags: about a second of parsing."""
_TABLES_MAX = 1_000
"""Tables inside one another: each is looked through for those inside it."""
_STEP_WORK = 100
"""What a step of the reckoning itself costs, in the same measure."""
_TAG = re.compile(r"<(/?)([A-Za-z][^\s/<>]*)[^<>]*?(/?)>")
_CLOSED_BY_THEMSELVES = frozenset(
    "area base br col embed hr img input link meta source track wbr "
    "html head body p li dt dd td th tr tbody thead tfoot colgroup caption "
    "option optgroup rb rt rtc rp a nobr button h1 h2 h3 h4 h5 h6".split()
)
"""Void elements, and those that the next of their kind closes."""
_OPEN_DESPITE_SLASH = frozenset(
    "address article aside b big blockquote center code details dialog dir div dl em fieldset "
    "figcaption figure font footer form header hgroup i main menu nav object ol pre s section "
    "small span strike strong summary table template tt u ul".split()
)
"""HTML ignores the slash of ``<div/>``; in the drawings and formulas of a page it counts."""
_BARRIERS = frozenset(("table", "template", "object", "marquee", "applet"))
"""An end tag closes nothing that was opened outside the innermost of these."""


def require_shallow(text: str) -> None:
    """Raise ``UnsupportedDocument`` (``too_deep``) for nesting that would take seconds to parse."""
    if text.count("<") <= _PLAIN_DEPTH:
        return
    stack: list[str] = []
    opened: Counter[str] = Counter()
    work = 0
    for match in _TAG.finditer(text):
        end, tag, slash = match.groups()
        work += max(0, len(stack) - _PLAIN_DEPTH)
        tag = tag.lower()
        if not end and tag not in _CLOSED_BY_THEMSELVES:
            if not slash or tag in _OPEN_DESPITE_SLASH:
                stack.append(tag)
                opened[tag] += 1
        elif end and opened[tag]:
            work += _STEP_WORK * _close(tag, stack, opened)
        if work > _WORK_MAX or opened["table"] > _TABLES_MAX:
            raise UnsupportedDocument(
                "The page nests its elements too deep to be read; save it as plain text.",
                code="too_deep",
            )


def _close(tag: str, stack: list[str], opened: Counter[str]) -> int:
    """Close the innermost ``tag`` and all inside it, unless a barrier stands between.

    Return how many elements were looked at in vain.
    """
    for place in range(len(stack) - 1, -1, -1):
        if stack[place] == tag:
            for each in stack[place:]:
                opened[each] -= 1
            del stack[place:]
            return 0
        if stack[place] in _BARRIERS:
            return len(stack) - place
    return len(stack)
