"""Whether what an engine wrote about a question may be searched for.

Small models answer a follow-up, repeat what was said, or tell of something else. A question that
stands for another keeps what that asks by name, adds to it, and names little that nobody has
named before; a passage that might answer names most of what is asked. What does neither is left
out: the rules' question is searched as if no engine had been asked.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from forebay.folding import simplified

LEAST_KEPT = 0.75
"""Of what a follow-up names, by the question that stands for it."""
LEAST_NAMED = 0.6
"""Of what that question names, by the conversation before it."""
LEAST_TOLD = 0.5
"""Of what a question names, by a passage that might answer it."""
_LEAST_STEM = 4
_STEM_SHARE = 0.6

_TERM = re.compile(r"[a-z0-9][\w.+#-]*|[\u3400-\u9fff]+")
_CITED = re.compile(r"\[\d+\]")
_FILLER = re.compile(
    r"\b(?:a|about|also|an|and|any|are|as|at|be|been|but|by|can|could|did|do|does|explain|for|"
    r"from|get|gets|had|has|have|he|her|him|his|how|i|if|in|is|it|its|long|many|may|me|much|must|"
    r"my|need|needs|of|often|on|one|or|our|please|same|shall|she|should|so|some|soon|take|takes|"
    r"tell|that|the|their|them|then|there|these|they|this|those|to|until|us|was|we|were|what|when|where|"
    r"whether|which|who|whom|whose|why|will|with|would|you|your)\b"
    r"|为什么|什么时候|什么|怎么样|怎么|怎样|如何|多少|多久|多长时间|多长|几天|几个|哪些|哪个|哪里|"
    r"哪|谁|是否|需要|可以|应该|能够|这个|那个|这些|那些|他们|她们|它们|请问|告诉我|以及|还是|时候|"
    r"[的了吗呢吧呀啊是有在和与或及那这它他她我你您请能会要由对于为被把将就都也还几]",
)


def may_stand_for(alone: str, asked: str, before: Sequence[str]) -> bool:
    """Whether ``alone`` may be searched in place of ``asked``, which came after ``before``."""
    if _CITED.search(alone) or alone.strip() in {one.strip() for one in before}:
        return False
    wanted, found = _names(asked), _names(alone)
    said = _names("\n".join((*before, asked)))
    # What adds nothing leaves out the same as the follow-up does.
    adds = _share(found, wanted) < 1.0 if found else False
    return adds and _share(wanted, found) >= LEAST_KEPT and _share(found, said) >= LEAST_NAMED


def may_answer(passage: str, question: str) -> bool:
    """Whether a passage is about the ``question``, and not about anything else."""
    return _share(_names(question), _names(passage)) >= LEAST_TOLD


def _names(text: str) -> frozenset[str]:
    """Words that name something, folded; of Han runs the pairs of characters."""
    found: set[str] = set()
    for term in _TERM.findall(_FILLER.sub(" ", simplified(text).casefold())):
        if term.isascii() or len(term) < 2:
            found.add(term)
        else:
            found.update(a + b for a, b in pairwise(term))
    return frozenset(found)


def _share(wanted: frozenset[str], there: frozenset[str]) -> float:
    """How many of ``wanted`` are there, inflected or not; 1 where nothing is wanted."""
    if not wanted:
        return 1.0
    return sum(any(_alike(one, other) for other in there) for one in wanted) / len(wanted)


def _alike(one: str, other: str) -> bool:
    if one == other:
        return True
    same = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        same += 1
    return same >= max(_LEAST_STEM, _STEM_SHARE * max(len(one), len(other)))
