"""Scenes: which rule says it, what a client may change, and what quotas and pools make of it."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from forebay.kernel.clock import VirtualClock, WallClock
from forebay.kernel.context import Scene
from forebay.kernel.errors import ConfigError, InvalidRequest
from forebay.policy.admission import AdmissionSettings, Ask, Claimant, Desk, PoolRule
from forebay.policy.admission.scenes import (
    SCENE_PROFILES,
    SceneAsked,
    SceneBook,
    SceneRule,
    SceneSettings,
)
from forebay.policy.cost import CostWeights
from forebay.policy.estimate import EstimateSettings
from forebay.policy.gate import GateSettings, PoolGate

WHO = Claimant(tenant="t")


def book(*rules: SceneRule, **scenes: SceneSettings) -> SceneBook:
    return SceneBook(scenes, rules, AdmissionSettings().all_profiles, 30_000)


def asked(text: str = "How long?", **more: str) -> SceneAsked:
    fields = {"route": "chat", "tenant": "t", "key": "k", "knowledge": "kb", "text": text, **more}
    return SceneAsked(**fields)


def desk(**settings: Any) -> Desk:
    rules = (PoolRule("short", 1000, 100), PoolRule("long", 8000, 800))
    gates = {rule.name: PoolGate(GateSettings(), ["a"]) for rule in rules}
    made = AdmissionSettings(**settings)
    return Desk(made, rules, gates, VirtualClock(), WallClock())


def ask(name: str = "", tokens: int = 100, cap: int | None = 50, **scene: Any) -> Ask:
    read_as = scene.pop("read_as", name)
    what = Scene(name, read_as, **scene)
    return Ask(WHO, "chat", "normal", 1e9, tokens, cap=cap, scene=what)


@pytest.mark.parametrize(
    ("rule", "holds"),
    [
        (SceneRule("code"), True),
        (SceneRule("code", routes=("mcp",)), False),
        (SceneRule("code", tenants=("t", "u"), keys=("k",)), True),
        (SceneRule("code", tenants=("t",), keys=("other",)), False),
        (SceneRule("code", knowledge=("kb",)), True),
        (SceneRule("code", pattern="^HOW"), True),
        (SceneRule("code", pattern="报告"), False),
        (SceneRule("code", min_characters=10), False),
    ],
)
def test_every_part_of_a_rule_that_is_given_must_hold(rule: SceneRule, holds: bool) -> None:
    assert book(rule, SceneRule("faq")).ruled(asked()) == ("code" if holds else "faq")
    assert book().ruled(asked()) is None


def test_a_pattern_is_looked_for_in_the_beginning_only() -> None:
    found = book(SceneRule("code", pattern="needle"))
    assert found.ruled(asked("x" * 1995 + " needle")) is None
    assert found.ruled(asked("x" * 1980 + " needle")) == "code"


def test_a_client_lowers_and_never_raises() -> None:
    usual = book()
    lowered = {
        (own, wanted)
        for own, wanted in product(SCENE_PROFILES, repeat=2)
        if own != wanted and usual.entered(own, wanted).name == wanted
    }
    # By price of a prompt token and a written one: faq 1, 1; report .9, 1.3; code 1.3, 1.8;
    # document 2.5, 2.7.
    assert lowered == {
        ("faq", "code"), ("faq", "document"), ("report", "code"), ("report", "document"),
        ("code", "document"),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("own", "wanted", "lowers"),
    [
        (SceneSettings(), SceneSettings(deadline_ms=30_000), True),
        (SceneSettings(), SceneSettings(deadline_ms=30_001), False),
        (SceneSettings(deadline_ms=10_000), SceneSettings(), False),
        (SceneSettings(deadline_ms=60_000), SceneSettings(), True),
        (SceneSettings(), SceneSettings(pool="long"), False),
        (SceneSettings(pool="long"), SceneSettings(), False),
        (SceneSettings(pool="long"), SceneSettings(pool="long"), True),
        (SceneSettings(), SceneSettings(max_output_tokens=10), True),
        (SceneSettings(max_output_tokens=10), SceneSettings(), False),
        (SceneSettings(max_output_tokens=10), SceneSettings(max_output_tokens=11), False),
    ],
)
def test_time_output_and_pool_are_not_gained_by_asking(
    own: SceneSettings, wanted: SceneSettings, lowers: bool
) -> None:
    found = book(faq=own, document=wanted)
    assert found.lowers("faq", "document") == lowers


def test_whatever_is_lowered_to_costs_no_less_for_any_request() -> None:
    weights = AdmissionSettings().all_profiles
    for own, wanted in product(SCENE_PROFILES, repeat=2):
        if book().lowers(own, wanted):
            had, has = weights[SCENE_PROFILES[own]], weights[SCENE_PROFILES[wanted]]
            for read, written in product((0, 1, 500, 8000), repeat=2):
                assert has.cost(read, written) >= had.cost(read, written)


def test_an_unknown_scene_is_refused_and_own_ones_are_known() -> None:
    with pytest.raises(InvalidRequest, match="faq, report, code, document"):
        book().entered("faq", "poem")
    made = book(legal=SceneSettings(profile="document", pool="long"))
    assert made.entered("legal", " Legal ").pool == "long"
    with pytest.raises(ConfigError, match="no scene 'legal'"):
        AdmissionSettings(scene_rules=(SceneRule("legal"),))
    with pytest.raises(ConfigError, match="regular expression"):
        SceneRule("faq", pattern="(")
    with pytest.raises(ConfigError, match="no cost profile 'dear'"):
        AdmissionSettings(scenes={"faq": SceneSettings(profile="dear")})


def test_quotas_go_by_scenes_where_an_operator_says_so() -> None:
    tokens, own = CostWeights(), CostWeights(2.0, 2.0, 0.0)
    usual = AdmissionSettings()
    assert usual.weights("t", "chat", "document") == tokens
    every = AdmissionSettings(profile="scene")
    assert every.weights("t", "chat", "document") == usual.all_profiles["document"]
    assert every.weights("t", "chat", "report") == usual.all_profiles["summary"]
    assert every.weights("t", "search") == tokens
    one = AdmissionSettings(
        scenes={"code": SceneSettings(profile="own"), "faq": SceneSettings(pool="short")},
        profiles={"own": own},
        route_profiles={"chat": "summary"},
        tenant_profiles={"bank": "document"},
    )
    assert one.weights("t", "chat", "code") == own
    assert one.weights("t", "chat", "faq") == usual.all_profiles["summary"]
    assert one.weights("bank", "chat", "code") == usual.all_profiles["document"]


def test_the_output_cap_of_a_scene_is_reserved_and_held() -> None:
    made = desk()
    entry = made.reserve(ask("faq", cap=90, max_output_tokens=20))
    made.enter(entry)
    assert (entry.cap, entry.ticket.output_tokens, entry.clamped) == (20, 20, True)
    free = made.reserve(ask("faq", cap=None, max_output_tokens=2000))
    assert free.cap == 100  # the pool's


def test_a_scenes_pool_takes_what_fits_it_and_nothing_fails_for_it() -> None:
    made = desk()
    there = made.reserve(ask("report", pool="long"))
    made.enter(there)
    assert there.pool == "long"
    too_long = made.reserve(ask("report", tokens=4000, pool="short"))
    made.enter(too_long)
    assert too_long.pool == "long"


def test_lengths_are_learned_by_scene_as_read_and_by_route_until_then() -> None:
    made = desk(estimate=EstimateSettings(learn_after=10))
    clock = made.clock
    assert isinstance(clock, VirtualClock)

    def answer(name: str, written: int, times: int, **scene: Any) -> None:
        for _ in range(times):
            entry = made.reserve(ask(name, **scene))
            made.enter(entry)
            clock.advance(0.1)
            entry.prompt_tokens, entry.completion_tokens = 100, written
            made.leave(entry, True)

    answer("faq", 5, 10)
    assert made.plan(ask("faq")).ticket.output_tokens <= 6
    assert made.plan(ask("report")).ticket.output_tokens <= 6  # the route's
    answer("report", 40, 10)
    assert made.plan(ask("report")).ticket.output_tokens >= 38
    assert made.plan(ask("faq")).ticket.output_tokens <= 6
    # Whoever names another scene is not taken for shorter than he was.
    assert made.plan(ask("faq", read_as="report")).ticket.output_tokens >= 38
