"""Scenes: what a request is for, and the cost profile, pool, time and output that gives it.

The first rule that holds says it, else what the text was read as. A client may name another, which
counts where it only lowers: no token cheaper, no more time, no more output, the same pool.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from forebay.kernel.context import Scene
from forebay.kernel.errors import ConfigError, InvalidRequest
from forebay.policy.cost import CostWeights

HEADER = "x-forebay-scene"
SCENE_PROFILES: Mapping[str, str] = {
    "faq": "tokens",
    "report": "summary",
    "code": "code",
    "document": "document",
}
"""The scenes that are told apart by text, and their cost profiles (F0.5)."""
PATTERN_CHARACTERS = 2000
"""Of a text's beginning that patterns are looked for in."""


class SceneSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What requests of one scene get."""

    profile: Annotated[
        str,
        Meta(
            description="Cost factors that its requests are charged by; empty: the scene's own "
            "where admission.profile is scene, else those of its route."
        ),
    ] = ""
    pool: Annotated[
        str,
        Meta(description="Pool that its requests go to where their prompts fit; empty: any."),
    ] = ""
    deadline_ms: (
        Annotated[
            int,
            Meta(
                description="Default deadline, up to server.deadlines.max_ms; unset: "
                "server.deadlines.answer_ms.",
                ge=1,
            ),
        ]
        | None
    ) = None
    max_output_tokens: (
        Annotated[
            int,
            Meta(description="Output cap, reserved and held; unset: the pool's.", ge=1),
        ]
        | None
    ) = None


class SceneRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Requests whose scene an operator knows; every part that is given must hold."""

    scene: Annotated[str, Meta(description="faq, report, code, document, or one of scenes.")]
    routes: Annotated[
        tuple[Literal["chat", "mcp"], ...],
        Meta(description="Only these ways of asking; empty: all."),
    ] = ()
    tenants: Annotated[tuple[str, ...], Meta(description="Only these tenants; empty: all.")] = ()
    keys: Annotated[tuple[str, ...], Meta(description="Only keys so named; empty: all.")] = ()
    knowledge: Annotated[
        tuple[str, ...], Meta(description="Only these knowledge bases; empty: all.")
    ] = ()
    pattern: Annotated[
        str,
        Meta(
            description="Regular expression found in the first 2000 characters of the question, "
            "whatever their case; empty: any text."
        ),
    ] = ""
    min_characters: Annotated[
        int, Meta(description="Only questions of at least so many characters.", ge=0)
    ] = 0

    def __post_init__(self) -> None:
        try:
            re.compile(self.pattern)
        except re.error as error:
            raise ConfigError(
                f"the pattern of a rule for the scene {self.scene} is no regular expression: "
                f"{error}.",
                param="admission.scene_rules",
            ) from error


class SceneAsked(msgspec.Struct, frozen=True):
    """What rules look at; ``text`` is the last message."""

    route: str
    tenant: str
    key: str
    knowledge: str
    text: str


class SceneBook:
    """The scenes in force; ``answer_ms`` is the deadline of one that has no own."""

    def __init__(
        self,
        scenes: Mapping[str, SceneSettings],
        rules: tuple[SceneRule, ...],
        profiles: Mapping[str, CostWeights],
        answer_ms: int,
    ) -> None:
        self.scenes = {**dict.fromkeys(SCENE_PROFILES, SceneSettings()), **scenes}
        self._rules = [(rule, re.compile(rule.pattern, re.IGNORECASE)) for rule in rules]
        self._weights = {
            name: profiles[scene.profile or SCENE_PROFILES.get(name, "tokens")]
            for name, scene in self.scenes.items()
        }
        self._answer_ms = answer_ms

    def ruled(self, asked: SceneAsked) -> str | None:
        """The scene that a rule says; None where none does."""
        for rule, pattern in self._rules:
            if _holds(rule, asked) and (
                not rule.pattern or pattern.search(asked.text, 0, PATTERN_CHARACTERS)
            ):
                return rule.scene
        return None

    def entered(self, own: str, wanted: str | None) -> Scene:
        """What a request of the scene ``own`` gets; ``wanted`` is what its client asked for.

        ``InvalidRequest`` where that is none.
        """
        name = own
        if wanted is not None:
            name = self._named(wanted)
            if not self.lowers(own, name):
                name = own
        scene = self.scenes[name]
        return Scene(name, own, scene.pool, scene.max_output_tokens, scene.deadline_ms)

    def lowers(self, own: str, wanted: str) -> bool:
        """Whether ``wanted`` gives a request of ``own`` nothing that it has not.

        Neither a prompt token nor a written one is charged less, the time is not longer, the
        output is not more, the pool is the same. Charges are compared by the scenes' profiles, also
        where quotas do not go by them.
        """
        one, other = self.scenes[own], self.scenes[wanted]
        had, has = self._weights[own], self._weights[wanted]
        time_ms = [
            self._answer_ms if x.deadline_ms is None else x.deadline_ms for x in (one, other)
        ]
        return (
            has.input + has.context >= had.input + had.context
            and has.output + has.context >= had.output + had.context
            and time_ms[1] <= time_ms[0]
            and _cap(other) <= _cap(one)
            and other.pool == one.pool
        )

    def _named(self, wanted: str) -> str:
        name = wanted.strip().lower()
        if name not in self.scenes:
            raise InvalidRequest(f"{HEADER} is one of {', '.join(self.scenes)}.", param=HEADER)
        return name


def _cap(scene: SceneSettings) -> float:
    return float("inf") if scene.max_output_tokens is None else scene.max_output_tokens


def _holds(rule: SceneRule, asked: SceneAsked) -> bool:
    return (
        (not rule.routes or asked.route in rule.routes)
        and (not rule.tenants or asked.tenant in rule.tenants)
        and (not rule.keys or asked.key in rule.keys)
        and (not rule.knowledge or asked.knowledge in rule.knowledge)
        and len(asked.text) >= rule.min_characters
    )
