"""GET, PUT, DELETE /v1/admission: quotas in force, changed at run time by an admin key."""

from __future__ import annotations

from typing import Protocol

import msgspec

from forebay.gateway.exchange import Exchange
from forebay.gateway.identity import Identity
from forebay.kernel.context import Principal
from forebay.kernel.errors import ConfigError, InvalidRequest
from forebay.policy.admission import AdmissionOverrides, AdmissionSettings, DimensionLimits
from forebay.policy.admission.load_factor import Factors
from forebay.policy.admission.priorities import PriorityGrant
from forebay.policy.admission.settings import AccessRule
from forebay.policy.quota import QuotaWindow
from forebay.wire.decoding import JsonDecoder


class QuotaKeeper(Protocol):
    """Keeps what was changed at run time."""

    @property
    def overrides(self) -> AdmissionOverrides:
        """What is changed at present."""
        ...

    @property
    def effective(self) -> AdmissionSettings:
        """What is in force."""
        ...

    @property
    def factors(self) -> Factors:
        """What quotas are multiplied by at present."""
        ...

    async def put(self, overrides: AdmissionOverrides) -> None:
        """Put others in force, for this process and the others of the folder."""
        ...


class AdmissionBody(msgspec.Struct, frozen=True):
    """What is in force, and the part of it that was changed at run time."""

    limits: DimensionLimits
    rules: tuple[AccessRule, ...]
    priorities: tuple[PriorityGrant, ...]
    windows: tuple[QuotaWindow, ...]
    load_factor: float
    factors: Factors
    overrides: AdmissionOverrides


class AdmissionRoutes:
    """Shows and changes quotas."""

    def __init__(self, keeper: QuotaKeeper, identity: Identity) -> None:
        self._keeper = keeper
        self._identity = identity
        self._decoder = JsonDecoder(AdmissionOverrides)

    async def show(self, x: Exchange) -> None:
        """Answer GET."""
        effective = self._keeper.effective
        body = AdmissionBody(
            effective.limits,
            effective.rules,
            effective.priorities,
            effective.windows,
            effective.load_factor,
            self._keeper.factors,
            self._keeper.overrides,
        )
        await x.reply_json(body)

    async def change(self, x: Exchange) -> None:
        """Answer PUT: the body replaces what was changed before."""
        try:
            overrides = await x.json(self._decoder)
        except ConfigError as error:
            raise InvalidRequest(error.message, param=error.param) from error
        known = self._identity.table.tenants or (Principal().tenant,)
        for tenant in overrides.plans:
            if tenant not in known:
                raise InvalidRequest(f"there is no tenant {tenant!r}.", param="plans")
        await self._keeper.put(overrides)
        await self.show(x)

    async def reset(self, x: Exchange) -> None:
        """Answer DELETE: the configuration alone holds again."""
        await self._keeper.put(AdmissionOverrides())
        await self.show(x)
