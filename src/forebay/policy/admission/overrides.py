"""What an operator changes at run time, over what the configuration says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import msgspec
from msgspec import Meta

from forebay.policy.admission.plans import PlanChange
from forebay.policy.admission.priorities import PriorityGrant
from forebay.policy.admission.settings import AccessRule, AdmissionSettings, DimensionLimits
from forebay.policy.quota import QuotaWindow


class AdmissionOverrides(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Parts of the admission settings that stand until they are taken back; None leaves a part.

    ``limits`` replace the limits they name and leave the others; ``rules`` and ``priorities`` go
    before the configured ones for the same caller or route; ``plans`` are looked up where callers
    are known (``gateway.identity``).
    """

    limits: Annotated[
        DimensionLimits | None, Meta(description="Limits that replace the configured ones.")
    ] = None
    rules: Annotated[
        tuple[AccessRule, ...], Meta(description="Callers denied, or with a limit of their own.")
    ] = ()
    priorities: Annotated[
        tuple[PriorityGrant, ...], Meta(description="Priorities of keys, users and routes.")
    ] = ()
    plans: Annotated[
        Mapping[str, PlanChange], Meta(description="What is different in the plans of tenants.")
    ] = {}
    windows: Annotated[
        tuple[QuotaWindow, ...] | None, Meta(description="Hours that replace the configured ones.")
    ] = None
    load_factor: Annotated[float, Meta(gt=0.0, le=100.0)] | None = None

    def over(self, settings: AdmissionSettings) -> AdmissionSettings:
        """The settings in force."""
        limits = settings.limits
        if self.limits is not None:
            named = {
                name: limit
                for name in DimensionLimits.__struct_fields__
                if (limit := getattr(self.limits, name)) is not None
            }
            limits = msgspec.structs.replace(limits, **named)
        mine = {(rule.dimension, rule.name) for rule in self.rules}
        kept = tuple(rule for rule in settings.rules if (rule.dimension, rule.name) not in mine)
        granted = {(one.dimension, one.name) for one in self.priorities}
        others = (one for one in settings.priorities if (one.dimension, one.name) not in granted)
        return msgspec.structs.replace(
            settings,
            limits=limits,
            rules=(*kept, *self.rules),
            priorities=(*others, *self.priorities),
            windows=settings.windows if self.windows is None else self.windows,
            load_factor=(settings.load_factor if self.load_factor is None else self.load_factor),
        )
