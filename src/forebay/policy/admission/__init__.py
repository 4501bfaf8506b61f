"""Admission: who is let in, at what cost, into which pool, and what is given back in the end."""

from forebay.policy.admission.admission import Admission, Ask, Permit
from forebay.policy.admission.claims import Claimant, ClaimBook
from forebay.policy.admission.routing import PoolRule, PoolRules
from forebay.policy.admission.settings import (
    AccessRule,
    AdmissionSettings,
    DimensionLimits,
    PoolAdmission,
)

__all__ = [
    "AccessRule",
    "Admission",
    "AdmissionSettings",
    "Ask",
    "ClaimBook",
    "Claimant",
    "DimensionLimits",
    "Permit",
    "PoolAdmission",
    "PoolRule",
    "PoolRules",
]
