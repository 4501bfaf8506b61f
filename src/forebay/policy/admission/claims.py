"""From who asks to the buckets the request is charged to."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

import msgspec

from forebay.kernel.errors import PermissionDenied
from forebay.policy.admission.load_factor import STEADY, Pacing
from forebay.policy.admission.settings import (
    DIMENSIONS,
    AccessRule,
    AdmissionSettings,
    Dimension,
    address_of,
)
from forebay.policy.quota import Claim, Limit, factor_at

REMEMBERED = 4096
"""Callers whose claims are kept ready."""


class Claimant(msgspec.Struct, frozen=True):
    """Who asks, by every dimension; an empty name has no bucket there.

    ``tenant_limit`` is what the tenant's plan says; it goes before the general one.
    ``max_in_flight`` bounds the tenant's requests in work; None: unbounded.
    """

    key: str = ""
    user: str = ""
    tenant: str = ""
    line: str = ""
    ip: str = ""
    tenant_limit: Limit | None = None
    max_in_flight: int | None = None

    def name(self, dimension: Dimension) -> str:
        """Its name there; the whole service has one for all."""
        if dimension == "all":
            return "all"
        name = getattr(self, dimension)
        # Keys and users of two tenants may be called alike.
        return f"{self.tenant}/{name}" if name and dimension in ("key", "user", "line") else name


class ClaimBook:
    """The limits in force; made again when settings change, since it remembers scaled limits."""

    def __init__(self, settings: AdmissionSettings) -> None:
        self._settings = settings
        self._rules: Mapping[tuple[str, str], AccessRule] = {
            (rule.dimension, _name(rule)): rule for rule in settings.rules
        }
        self.denies = any(rule.deny for rule in settings.rules)
        self._scaled: dict[tuple[Limit, float, Pacing], Limit] = {}
        self._known: dict[tuple[Claimant, float, Pacing], tuple[Claim, ...]] = {}

    def claims(self, who: Claimant, wall_s: float, load: Pacing = STEADY) -> tuple[Claim, ...]:
        """The buckets of a request at a time (Unix); ``PermissionDenied`` for who is denied.

        ``load`` changes every refill but that of the whole service.
        """
        factor = self._settings.load_factor * self.window(wall_s)
        known = self._known.get((who, factor, load))
        if known is None:
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            known = self._known[who, factor, load] = self._find(who, factor, load)
        return known

    def window(self, wall_s: float) -> float:
        """The factor of the hours at a time (Unix)."""
        windows = self._settings.windows
        if not windows:
            return 1.0
        return factor_at(windows, datetime.fromtimestamp(wall_s, UTC).astimezone())

    def _find(self, who: Claimant, factor: float, load: Pacing) -> tuple[Claim, ...]:
        found = []
        for dimension in DIMENSIONS:
            name = who.name(dimension)
            if not name:
                continue
            limit = self._limit(dimension, name, who)
            if limit is not None:
                found.append(
                    Claim(
                        dimension,
                        name,
                        self._scale(limit, factor, STEADY if dimension == "all" else load),
                    )
                )
        return tuple(found)

    def _limit(self, dimension: Dimension, name: str, who: Claimant) -> Limit | None:
        if self._rules:
            plain = name if dimension == "all" else getattr(who, dimension)
            rule = self._rules.get((dimension, name)) or self._rules.get((dimension, plain))
            if rule is not None:
                if rule.deny:
                    raise PermissionDenied("This caller is on the deny list of this service.")
                return rule.limit if self._settings.enabled else None
        if not self._settings.enabled:
            return None
        if dimension == "tenant" and who.tenant_limit is not None:
            return who.tenant_limit
        limit: Limit | None = getattr(self._settings.limits, dimension)
        return limit

    def _scale(self, limit: Limit, factor: float, load: Pacing) -> Limit:
        if factor == load.factor == 1.0:
            return limit
        scaled = self._scaled.get((limit, factor, load))
        if scaled is None:
            if len(self._scaled) >= REMEMBERED:
                self._scaled.clear()
            scaled = self._scaled[limit, factor, load] = _paced(limit.scaled(factor), load)
        return scaled


def _paced(limit: Limit, load: Pacing) -> Limit:
    return limit.paced(load.of(limit.rate_per_s))


def _name(rule: AccessRule) -> str:
    return address_of(rule.name) or rule.name if rule.dimension == "ip" else rule.name
