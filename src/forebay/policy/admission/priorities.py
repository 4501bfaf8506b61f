"""Priority, as an operator grants it to keys, users and routes (F1.4).

The highest grant that applies wins: the key's own, its user's, its route's. A grant of a route
may ``cap`` instead, then nobody goes above it there. The tenant's plan bounds what comes out, and
a client may ask for less, never for more.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal, get_args

import msgspec
from msgspec import Meta

from forebay.kernel.context import Priority
from forebay.kernel.errors import ConfigError

PRIORITIES: tuple[Priority, ...] = ("low", "normal", "high")
Queued = Literal["chat", "search", "retrieval", "mcp"]
"""Routes whose requests may wait in a line."""


class PriorityGrant(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A priority for one key, user or route."""

    dimension: Annotated[Literal["key", "user", "route"], Meta(description="key, user or route.")]
    name: Annotated[
        str,
        Meta(
            description="Whom it is for: a key's name, a user, each also as tenant/name; or chat, "
            "search, retrieval, mcp.",
            min_length=1,
        ),
    ]
    priority: Annotated[Priority, Meta(description="What is granted.")]
    cap: Annotated[
        bool, Meta(description="For routes: nobody goes above it there, instead of up to it.")
    ] = False

    def __post_init__(self) -> None:
        routes = get_args(Queued)
        if self.dimension == "route" and self.name not in routes:
            raise ConfigError(
                f"no requests of a route {self.name!r} wait in a line; use {', '.join(routes)}.",
                param="admission.priorities",
            )
        if self.cap and self.dimension != "route":
            raise ConfigError(
                f"the priority of {self.dimension} {self.name} cannot cap; only a route's can.",
                param="admission.priorities",
            )


class PriorityBook:
    """The grants in force, and the tuple they were made of."""

    def __init__(self, grants: tuple[PriorityGrant, ...] = ()) -> None:
        self.grants = grants
        self._caps = {one.name: one.priority for one in grants if one.cap}
        self._granted = {
            f"{one.dimension} {one.name}": one.priority for one in grants if not one.cap
        }

    def priority(
        self, own: Iterable[Priority], *, tenant: str, key: str, user: str | None, route: str
    ) -> Priority:
        """What one request has before its plan and its client lower it; normal without a grant.

        ``own`` are grants of the tenant's configuration.
        """
        found = list(own)
        if self._granted:
            names = [f"key {key}", f"key {tenant}/{key}", f"route {route}"]
            if user is not None:
                names += [f"user {user}", f"user {tenant}/{user}"]
            found += [self._granted[name] for name in names if name in self._granted]
        usual: Priority = "normal"
        granted = max(found, key=PRIORITIES.index, default=usual)
        return lowest((granted, self._caps.get(route, "high")))


def lowest(priorities: Iterable[Priority]) -> Priority:
    """The one that goes last."""
    return min(priorities, key=PRIORITIES.index)
