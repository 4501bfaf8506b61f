"""Which replica of a pool takes a request, and which ones are left alone for a while."""

from forebay.policy.balance.choice import KV_FULL, ReplicaLoad, choose
from forebay.policy.balance.health import EjectionSettings, ReplicaHealth

__all__ = ["KV_FULL", "EjectionSettings", "ReplicaHealth", "ReplicaLoad", "choose"]
