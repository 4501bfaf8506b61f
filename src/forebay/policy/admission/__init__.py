"""Admission: who is let in, at what cost, into which pool, and what is given back in the end."""

from forebay.policy.admission.admission import Admission, Permit
from forebay.policy.admission.claims import Claimant, ClaimBook
from forebay.policy.admission.desk import Ask, Desk, Entry
from forebay.policy.admission.overrides import AdmissionOverrides
from forebay.policy.admission.plans import PlanChange
from forebay.policy.admission.priorities import PriorityBook, PriorityGrant
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
    "AdmissionOverrides",
    "AdmissionSettings",
    "Ask",
    "ClaimBook",
    "Claimant",
    "Desk",
    "DimensionLimits",
    "Entry",
    "Permit",
    "PlanChange",
    "PoolAdmission",
    "PoolRule",
    "PoolRules",
    "PriorityBook",
    "PriorityGrant",
]
