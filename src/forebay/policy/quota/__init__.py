"""Token quotas: buckets, the ledger that charges several at once, windows of the day."""

from forebay.policy.quota.authority import LedgerAuthority
from forebay.policy.quota.bucket import Limit, TokenBucket
from forebay.policy.quota.leased import LeasedLedger
from forebay.policy.quota.ledger import (
    Claim,
    QuotaLedger,
    Quotas,
    Refusal,
    Reservation,
    largest,
)
from forebay.policy.quota.places import KeptPlaces, PlaceBook, Placing, SharedPlaces
from forebay.policy.quota.shared import SharedQuotas, SharingSettings
from forebay.policy.quota.windows import QuotaWindow, factor_at

__all__ = [
    "Claim",
    "KeptPlaces",
    "LeasedLedger",
    "LedgerAuthority",
    "Limit",
    "PlaceBook",
    "Placing",
    "QuotaLedger",
    "QuotaWindow",
    "Quotas",
    "Refusal",
    "Reservation",
    "SharedPlaces",
    "SharedQuotas",
    "SharingSettings",
    "TokenBucket",
    "factor_at",
    "largest",
]
