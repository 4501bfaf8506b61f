"""A tenant's plan, changed at run time."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from forebay.kernel.context import Plan, Priority
from forebay.kernel.errors import ConfigError


class PlanChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is different in one tenant's plan; what is left out stays as it is configured."""

    tokens_per_minute: Annotated[int, Meta(ge=1, description="Token quota.")] | None = None
    burst_tokens: (
        Annotated[int, Meta(ge=1, description="Tokens that may be used at once.")] | None
    ) = None
    weight: (
        Annotated[float, Meta(gt=0, description="Its share where tenants wait for one another.")]
        | None
    ) = None
    max_in_flight: Annotated[int, Meta(ge=1, description="Requests at once.")] | None = None
    priority_ceiling: (
        Annotated[Priority, Meta(description="No request of the tenant goes above it.")] | None
    ) = None

    def __post_init__(self) -> None:
        if not any(getattr(self, name) is not None for name in self.__struct_fields__):
            raise ConfigError("a changed plan must say what changes.", param="plans")

    def over(self, plan: Plan) -> Plan:
        """The plan with what is different."""
        said: dict[str, Any] = {
            name: value
            for name in Plan.__struct_fields__
            if (value := getattr(self, name)) is not None
        }
        return msgspec.structs.replace(plan, **said)
