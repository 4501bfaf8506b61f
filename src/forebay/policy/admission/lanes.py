"""One way into a pool's engines, or two: long requests wait for one another, short ones not."""

from __future__ import annotations

import msgspec

from forebay.policy.admission.routing import PoolRule
from forebay.policy.admission.settings import PoolAdmission
from forebay.policy.gate import GateSettings
from forebay.policy.limit import LimitSettings
from forebay.policy.shed import ShedSettings

LONG = "-long"
_PATIENT = ShedSettings(target_s=5.0, interval_s=5.0, max_wait_s=30.0)


def lanes(rule: PoolRule, how: PoolAdmission) -> tuple[tuple[PoolRule, GateSettings], ...]:
    """The lanes of a pool with their gates; one where no request can be long.

    The long lane lets ``long_requests`` into each replica and is patient: what takes a minute to
    write may wait for some seconds.
    """
    gate = how.gate
    long_tokens = int(gate.long_tokens)
    if not how.long_requests or rule.max_input_tokens + rule.max_output_tokens <= long_tokens:
        return ((rule, gate),)
    few = LimitSettings(initial=how.long_requests, most=how.long_requests)
    long = msgspec.structs.replace(rule, name=rule.name + LONG, engines=rule.name)
    # The long ones hold the memory: fewer short ones would free little of it.
    unmoved = msgspec.structs.replace(gate.batch, enabled=False)
    short = msgspec.structs.replace(gate, batch=unmoved)
    return (
        (msgspec.structs.replace(rule, max_total_tokens=long_tokens), short),
        (long, msgspec.structs.replace(gate, limit=few, shed=_PATIENT)),
    )
