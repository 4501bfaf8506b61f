"""Which pool takes a request, by counted tokens, class and tenant; where it may go when it is full.

Short and long requests never share an engine unawares (F1.5): pools are tried from the smallest
bound up, and the first that fits takes it. A pool dedicated to
tenants (F0.8) goes before the others for them and is closed to everybody else; so does one for
priority classes. A request spills only to pools its own names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from forebay.kernel.context import Priority
from forebay.kernel.errors import ContextTooLong


class PoolRule(msgspec.Struct, frozen=True):
    """What one pool takes; ``spare``: it is kept for requests that name it."""

    name: str
    max_input_tokens: int
    max_output_tokens: int
    tenants: frozenset[str] = frozenset()
    spill_to: tuple[str, ...] = ()
    priorities: frozenset[Priority] = frozenset()
    spare: bool = False

    def admits(self, tenant: str, priority: Priority | None) -> bool:
        """Whether it is open to them; None: to any of the tenant's."""
        if self.tenants and tenant not in self.tenants:
            return False
        return priority is None or not self.priorities or priority in self.priorities

    def takes(self, tenant: str, input_tokens: int, priority: Priority | None = None) -> bool:
        """Whether such a request may go there."""
        return input_tokens <= self.max_input_tokens and self.admits(tenant, priority)

    def suits(self, output_tokens: int) -> bool:
        """Whether such an answer is of the size that the pool is for."""
        return output_tokens <= self.max_output_tokens


class _Open(NamedTuple):
    """The pools that a tenant's class may use, and the longest prompt they take."""

    rules: tuple[PoolRule, ...]
    longest: int


class PoolRules:
    """Every pool's rule."""

    def __init__(self, rules: Sequence[PoolRule]) -> None:
        self.by_name = {rule.name: rule for rule in rules}
        self._ordered = sorted(rules, key=_size)
        self._known: dict[tuple[str, Priority | None, str], _Open] = {}

    def longest(self, tenant: str, priority: Priority | None = None, pool: str = "") -> int:
        """The longest prompt that any pool, or ``pool``, takes of a tenant and class; 0: none."""
        return self._open(tenant, priority, pool).longest

    def choose(
        self,
        tenant: str,
        input_tokens: int,
        output_tokens: int | None,
        priority: Priority | None = None,
        pool: str = "",
    ) -> tuple[PoolRule, ...]:
        """The pool for a request, then those it may spill to; ``pool``: the only one, by name.

        ``output_tokens`` is what the client allows or is expected to get, None when unknown: long
        answers go where they fit, if anywhere they do; else the largest cuts them.
        ``ContextTooLong`` when no pool takes the input.
        """
        open_to = self._open(tenant, priority, pool).rules
        fitting = [rule for rule in open_to if input_tokens <= rule.max_input_tokens]
        if not fitting:
            most = self.longest(tenant, priority)
            raise ContextTooLong(
                f"The prompt has about {input_tokens} tokens, more than the {most} any engine "
                "pool takes.",
                param="messages",
            )
        own = [rule for rule in fitting if rule.tenants]
        among = own or fitting
        first = next(
            (rule for rule in among if rule.suits(output_tokens or 0)),
            max(among, key=lambda rule: _size(rule)[2:]),
        )
        spills = [self.by_name[name] for name in first.spill_to if name in self.by_name]
        helps = (one for one in spills if not one.spare)
        return (first, *(one for one in helps if one.takes(tenant, input_tokens, priority)))

    def _open(self, tenant: str, priority: Priority | None, pool: str) -> _Open:
        """The pools open to a tenant and class, in order; ``pool``: only that one's."""
        key = tenant, priority, pool
        known = self._known.get(key)
        if known is None:
            rules = tuple(
                rule
                for rule in self._ordered
                if rule.admits(tenant, priority) and (pool == rule.name if pool else not rule.spare)
            )
            longest = max((rule.max_input_tokens for rule in rules), default=0)
            known = self._known[key] = _Open(rules, longest)
        return known


def _size(rule: PoolRule) -> tuple[bool, bool, int, int]:
    """Pools for tenants first, then those for classes, then from the smallest up."""
    return (not rule.tenants, not rule.priorities, rule.max_input_tokens, rule.max_output_tokens)
