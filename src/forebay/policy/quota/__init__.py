"""Token quotas: buckets, the ledger that charges several at once, windows of the day."""

from forebay.policy.quota.bucket import Limit, TokenBucket
from forebay.policy.quota.ledger import Claim, QuotaLedger, Refusal, Reservation
from forebay.policy.quota.windows import QuotaWindow, factor_at

__all__ = [
    "Claim",
    "Limit",
    "QuotaLedger",
    "QuotaWindow",
    "Refusal",
    "Reservation",
    "TokenBucket",
    "factor_at",
]
