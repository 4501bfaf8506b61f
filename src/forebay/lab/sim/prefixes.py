"""A plan's shared prefix as the block hashes of an engine."""

from __future__ import annotations

from math import gcd

from forebay.lab.workload.request import PlannedRequest


def block_hashes(plan: PlannedRequest, block_tokens: int) -> tuple[tuple[int, ...], int]:
    """Hashes for a ``Sequence``, and how many tokens each stands for.

    Where a block of the plan is no multiple of the engine's, so many of them are taken together
    as make one.
    """
    size = plan.prefix_block_tokens
    together = block_tokens // gcd(size, block_tokens)
    ids = plan.prefix
    if together == 1:
        return ids, size
    whole = len(ids) // together * together
    joined = (ids[first : first + together] for first in range(0, whole, together))
    return tuple(hash(part) for part in joined), size * together
