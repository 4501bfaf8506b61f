"""Admission as configured: a gate and a rule for every pool of the chosen backend."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from forebay.app.overriding import Overriding
from forebay.app.scale_out import ScaleOutHook
from forebay.app.settings import Settings
from forebay.generation.signals import EngineEye, look_at_all
from forebay.kernel.clock import Clock, WallClock
from forebay.kernel.errors import ConfigError
from forebay.policy.admission import Admission, Desk, PoolAdmission, PoolRule
from forebay.policy.admission.priorities import PRIORITIES
from forebay.policy.balance import EjectionSettings
from forebay.policy.engine_gate import EngineGate
from forebay.policy.gate import GateSettings, PoolGate
from forebay.policy.hedge import Hedger
from forebay.policy.limit import LimitSettings
from forebay.policy.open_gate import OpenGate
from forebay.policy.quota import KeptPlaces, QuotaLedger, SharedQuotas
from forebay.policy.shed import ShedSettings
from forebay.policy.tail import TailChange, TailSettings

log = logging.getLogger("forebay.admission")
S = TypeVar("S", bound=msgspec.Struct)
PRICED = ("chat", "search", "embeddings", "rerank")
"""Routes that quotas are charged for; others go through one of them."""
UNBOUNDED_TOKENS = 2**31 - 1
FRAME_TOKENS = 200
TICK_S = 0.05
FOLLOW_S = 1.0
SHARE_S = 0.25
"""How often the limits of engines are shared anew among the processes present."""
# There is no other replica to turn to, and times follow caches and searches, not tokens: neither
# silence nor a long tail says that anything is wrong.
_ALONE = GateSettings(
    ejection=EjectionSettings(failures=1_000_000, stalled_s=1e9),
    tail=TailSettings(warn_ratio=1e6, severe_ratio=1e9, warn_long_share=0.999, severe_long_share=1),
)
# A few people at one machine make a line that never empties: it may stand for what they notice, and
# two dozen are let be, as in front of retrieval.
_LOCAL = msgspec.structs.replace(
    _ALONE,
    limit=LimitSettings(initial=16, most=256),
    shed=ShedSettings(
        target_s=1.0, interval_s=1.0, max_wait_s=5.0, few_waiting=24, few_wait_s=10.0
    ),
    least_s=0.001,
)
# A processor writes some tokens a second: who waits for a slot waits for whole answers.
_LLAMA_SHED = ShedSettings(target_s=20.0, interval_s=20.0, max_wait_s=60.0)


@asynccontextmanager
async def open_admission(
    settings: Settings,
    clock: Clock,
    folder: Path,
    shared: SharedQuotas | None = None,
) -> AsyncIterator[tuple[Admission, Overriding]]:
    """Admission in front of the configured pools, looked after while the block runs.

    Quotas changed at run time are kept in ``folder``; ``shared`` are charged instead of this
    process's own, and then the limits of engines are those of all processes together.
    """
    check_names(settings)
    rules, gates = {}, {}
    kind: type[PoolGate] = OpenGate
    if settings.admission.enabled:
        kind = EngineGate if settings.generation.backend == "openai" else PoolGate
    for rule, replicas, gate in pools_of(settings):
        rules[rule.name] = rule
        gates[rule.name] = kind(gate, replicas)
    _check_classes(settings, rules.values())
    own = QuotaLedger(settings.admission.max_buckets)
    ledger = own if shared is None else shared.ledger
    desk = Desk(settings.admission, tuple(rules.values()), gates, clock, WallClock(), ledger)
    async with asyncio.TaskGroup() as group:
        hook = ScaleOutHook(settings.admission.scale_out, clock)

        def told(pool: str, change: TailChange) -> None:
            hook.told(pool, change, actions(gates[pool], change))

        desk.load.told = _tell_load
        hedgers = _hedgers(settings, gates)
        places = KeptPlaces(own.places, clock) if shared is None else shared.places
        admission = Admission(desk, told, shared, hedgers, places)
        quotas = Overriding(folder, admission, settings.admission)
        quotas.look()
        engines = gates.values() if settings.generation.backend == "openai" else ()

        def share() -> None:
            count = desk.load.processes = ledger.present(clock.now())
            for gate in engines:
                gate.limit.share(count)

        share()
        tasks = [
            group.create_task(_every(TICK_S, admission.tick)),
            group.create_task(_every(SHARE_S, share)),
            group.create_task(_every(FOLLOW_S, quotas.look)),
            group.create_task(hook.run()),
            *(group.create_task(_watch(watched, clock)) for watched in _watched(settings, gates)),
        ]
        try:
            yield admission, quotas
        finally:
            for task in tasks:
                task.cancel()


def _tell_load(factor: float, load: str) -> None:
    log.info("quotas are refilled at %.2f of their rates (load: %s)", factor, load)


def actions(gate: PoolGate, change: TailChange) -> tuple[str, ...]:
    """What the tail watch did to a gate, or undid, in sentences."""
    if change.level != "severe":
        undone = "whatever was held back is let in again"
        return (undone,) if change.was == "severe" else ()
    done = [f"{gate.hold:.0%} of its room is withheld"] if gate.hold else []
    if gate.min_priority != "low":
        done.append("low priority is sent away while others wait")
    return tuple(done)


def _hedgers(settings: Settings, gates: Mapping[str, PoolGate]) -> dict[str, Hedger]:
    """Second attempts where they are wanted and there is a second replica."""
    found = {}
    for name, gate in gates.items():
        how = settings.admission.pools.get(name)
        if how is not None and how.hedge.enabled and len(gate.loads) > 1:
            found[name] = Hedger(gate, how.hedge)
    return found


async def _every(seconds: float, look: Callable[[], None]) -> None:
    """Time passes also when nobody comes or goes."""
    while True:
        await asyncio.sleep(seconds)
        look()


class _Watched(NamedTuple):
    """Engines that are looked at, and the gate in front of them."""

    urls: tuple[str, ...]
    every_s: float
    gate: PoolGate


def _watched(settings: Settings, gates: Mapping[str, PoolGate]) -> list[_Watched]:
    if settings.generation.backend != "openai":
        return []
    found = []
    for pool in settings.generation.pools:
        every_s = settings.admission.pools.get(pool.name, PoolAdmission()).look_s
        if every_s:
            found.append(_Watched(pool.base_urls, every_s, gates[pool.name]))
    return found


async def _watch(watched: _Watched, clock: Clock) -> None:
    """Tell the gates what the engines show: dead ones are left alone, full ones get less."""
    eye = EngineEye(max(1.0, watched.every_s))
    try:
        while True:
            await asyncio.sleep(watched.every_s)
            seen = await look_at_all(eye, watched.urls)
            now = clock.now()
            for replica, signal in enumerate(seen):
                watched.gate.health[replica].probed(now, ok=signal.alive)
                watched.gate.signals(replica, waiting=signal.waiting, kv_use=signal.kv_use)
    finally:
        await eye.close()


def pools_of(settings: Settings) -> list[tuple[PoolRule, tuple[str, ...], GateSettings]]:
    """Each pool's rule, the names of its replicas, its gate; ``ConfigError`` for unknown names."""
    generation, extra = settings.generation, settings.admission.pools
    if generation.backend == "openai":
        found = []
        for pool in generation.pools:
            how = extra.get(pool.name, PoolAdmission())
            rule = _rule(pool.name, pool.max_input_tokens, pool.max_output_tokens, extra)
            rule = msgspec.structs.replace(rule, spare=pool.name == small_pool(settings))
            most = generation.engine.max_connections
            found.append((rule, pool.base_urls, _connected(how.gate, most)))
    elif generation.backend == "llama":
        llama = generation.llama
        slots = LimitSettings(initial=llama.slots, least=llama.slots, most=llama.slots)
        usual = msgspec.structs.replace(_ALONE, limit=slots, shed=_LLAMA_SHED)
        gate = _gate("llama", extra, usual)
        rule = _rule("llama", llama.context_tokens, llama.max_output_tokens, extra)
        found = [(rule, ("local",), gate)]
    else:
        gate = _gate("extractive", extra, _LOCAL)
        quoted = generation.extractive.max_quote_characters
        # A character is a token at most; the rest is the frame around the quotations.
        rule = _rule("extractive", UNBOUNDED_TOKENS, quoted + FRAME_TOKENS, extra)
        found = [(rule, ("local",), gate)]
    names = {rule.name for rule, _, _ in found}
    for name, scene in settings.admission.scenes.items():
        if scene.pool and scene.pool not in names:
            raise ConfigError(
                f"admission.scenes.{name} names the pool {scene.pool}, which there is not; "
                f"use {', '.join(sorted(names))}.",
                param="admission.scenes",
            )
    for name, entered in extra.items():
        for wanted in (name, *entered.spill_to):
            if wanted not in names:
                raise ConfigError(
                    f"admission.pools names {wanted}, which is no pool of the backend "
                    f"{generation.backend}; there {'is' if len(names) == 1 else 'are'} "
                    f"{', '.join(sorted(names))}.",
                    param="admission.pools",
                )
    return found


def small_pool(settings: Settings) -> str:
    """The pool that is kept for when the others do not answer; empty: there is none."""
    ladder = settings.generation.ladder
    if not ladder.enabled or settings.generation.backend != "openai" or not ladder.small_pool:
        return ""
    names = {pool.name for pool in settings.generation.pools}
    if ladder.small_pool not in names or len(names) < 2:
        raise ConfigError(
            f"generation.ladder.small_pool is {ladder.small_pool}; it must be the name of one of "
            "several [[generation.pools]], which is then kept for when the others fail.",
            param="generation.ladder.small_pool",
        )
    return ladder.small_pool


def _connected(gate: GateSettings, most: int) -> GateSettings:
    """The gate lets no more into a replica than there may be connections to it."""
    limit = gate.limit
    if limit.most <= most:
        return gate
    bounded = msgspec.structs.replace(
        limit, initial=min(limit.initial, most), least=min(limit.least, most), most=most
    )
    return msgspec.structs.replace(gate, limit=bounded)


def _gate(name: str, extra: Mapping[str, PoolAdmission], usual: GateSettings) -> GateSettings:
    """The gate as configured; ``usual`` where the configuration is silent."""
    return _over(extra.get(name, PoolAdmission()).gate, GateSettings(), usual)


def _over(said: S, silent: S, usual: S) -> S:
    """``usual`` with what differs from ``silent`` in ``said``, setting by setting."""
    changes: dict[str, Any] = {}
    for name in said.__struct_fields__:
        value, default = getattr(said, name), getattr(silent, name)
        if isinstance(value, msgspec.Struct):
            changes[name] = _over(value, default, getattr(usual, name))
        elif value != default:
            changes[name] = value
    return msgspec.structs.replace(usual, **changes)


def _rule(
    name: str, max_input: int, max_output: int, extra: Mapping[str, PoolAdmission]
) -> PoolRule:
    pool = extra.get(name, PoolAdmission())
    return PoolRule(
        name,
        max_input,
        max_output,
        frozenset(pool.tenants),
        pool.spill_to,
        priorities=frozenset(pool.priorities),
    )


def _check_classes(settings: Settings, rules: Iterable[PoolRule]) -> None:
    """Every class of every tenant needs a pool, and nothing spills where it is not let in."""
    by_name = {rule.name: rule for rule in rules}
    usual = [rule for rule in by_name.values() if not rule.spare]
    for tenant in _tenants(settings):
        for priority in PRIORITIES:
            if not any(rule.admits(tenant, priority) for rule in usual):
                raise ConfigError(
                    f"no pool takes requests of priority {priority} of the tenant {tenant}; name "
                    "it in admission.pools.NAME.priorities, or leave that out for one pool.",
                    param="admission.pools",
                )
    for name, pool in settings.admission.pools.items():
        for other in pool.spill_to:
            open_to = by_name[other].priorities
            if pool.priorities and open_to and not open_to & set(pool.priorities):
                raise ConfigError(
                    f"admission.pools.{name} spills to {other}, which takes none of its "
                    "priorities.",
                    param="admission.pools",
                )


def _tenants(settings: Settings) -> set[str]:
    return {tenant.name for tenant in settings.tenants} or {"default"}


def check_names(settings: Settings) -> None:
    """``ConfigError`` for tenants and routes that admission names and nobody knows."""
    known = _tenants(settings)
    for route in settings.admission.route_profiles:
        if route not in PRICED:
            raise ConfigError(
                f"admission.route_profiles names {route}, where nothing is charged; there are "
                f"{', '.join(PRICED)}.",
                param="admission.route_profiles",
            )
    for tenant in settings.admission.tenant_profiles:
        if tenant not in known:
            raise ConfigError(
                f"admission.tenant_profiles names {tenant}, who is none of the tenants.",
                param="admission.tenant_profiles",
            )
    for rule in settings.admission.scene_rules:
        for tenant in rule.tenants:
            if tenant not in known:
                raise ConfigError(
                    f"admission.scene_rules names {tenant}, who is none of the tenants.",
                    param="admission.scene_rules",
                )
    most_ms = settings.server.deadlines.max_ms
    for name, scene in settings.admission.scenes.items():
        if (scene.deadline_ms or 0) > most_ms:
            raise ConfigError(
                f"admission.scenes.{name}.deadline_ms is above server.deadlines.max_ms; lower the "
                "one or raise the other.",
                param="admission.scenes",
            )
    for name, pool in settings.admission.pools.items():
        for tenant in pool.tenants:
            if tenant not in known:
                raise ConfigError(
                    f"admission.pools.{name} is kept for {tenant}, who is none of the tenants.",
                    param="admission.pools",
                )
