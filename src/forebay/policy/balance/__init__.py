"""Which replica of a pool takes a request, and which ones are left alone for a while."""

from forebay.policy.balance.choice import ReplicaLoad, choose
from forebay.policy.balance.health import EjectionSettings, ReplicaHealth

__all__ = ["EjectionSettings", "ReplicaHealth", "ReplicaLoad", "choose"]
