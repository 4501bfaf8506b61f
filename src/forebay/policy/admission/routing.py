"""Which pool takes a request, by counted tokens and tenant; where it may go when that is full.

Short and long requests never share an engine (F1.5): pools are tried from the smallest input
bound up, and the first that fits takes it. A pool dedicated to tenants (F0.8) goes before the
others for them and is closed to everybody else. A request spills only to pools its own names.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from forebay.kernel.errors import ContextTooLong


class PoolRule(msgspec.Struct, frozen=True):
    """What one pool takes."""

    name: str
    max_input_tokens: int
    max_output_tokens: int
    tenants: frozenset[str] = frozenset()
    spill_to: tuple[str, ...] = ()

    def takes(self, tenant: str, input_tokens: int) -> bool:
        """Whether such a request may go there."""
        return input_tokens <= self.max_input_tokens and (
            not self.tenants or tenant in self.tenants
        )


class PoolRules:
    """Every pool's rule."""

    def __init__(self, rules: Sequence[PoolRule]) -> None:
        self.by_name = {rule.name: rule for rule in rules}
        self._ordered = sorted(rules, key=lambda rule: (not rule.tenants, rule.max_input_tokens))

    def choose(
        self, tenant: str, input_tokens: int, output_tokens: int | None
    ) -> tuple[PoolRule, ...]:
        """The pool for a request, then those it may spill to.

        Long answers asked for by name (``output_tokens``) go where they fit, if anywhere they do;
        else the largest cuts them. ``ContextTooLong`` when no pool takes the input.
        """
        fitting = [rule for rule in self._ordered if rule.takes(tenant, input_tokens)]
        if not fitting:
            open_to = [r for r in self._ordered if not r.tenants or tenant in r.tenants]
            most = max((rule.max_input_tokens for rule in open_to), default=0)
            raise ContextTooLong(
                f"The prompt has about {input_tokens} tokens, more than the {most} any engine "
                "pool takes.",
                param="messages",
            )
        own = [rule for rule in fitting if rule.tenants]
        among = own or fitting
        first = next(
            (rule for rule in among if (output_tokens or 0) <= rule.max_output_tokens),
            max(among, key=lambda rule: rule.max_output_tokens),
        )
        spills = [self.by_name[name] for name in first.spill_to if name in self.by_name]
        return (first, *(rule for rule in spills if rule.takes(tenant, input_tokens)))
