"""Settings of admission: limits by dimension, lists, hours, costs."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from forebay.kernel.context import Priority
from forebay.kernel.errors import ConfigError
from forebay.policy.admission.load_factor import LoadSettings
from forebay.policy.admission.priorities import PriorityGrant
from forebay.policy.admission.scenes import SCENE_PROFILES, SceneRule, SceneSettings
from forebay.policy.bulkhead import RETRIEVAL_LINE
from forebay.policy.cost import COST_PROFILES, CostWeights
from forebay.policy.estimate import EstimateSettings
from forebay.policy.gate import GateSettings
from forebay.policy.hedge import HedgeSettings
from forebay.policy.line import LineSettings
from forebay.policy.pace import PaceSettings
from forebay.policy.quota import Limit, QuotaWindow

Dimension = Literal["key", "user", "tenant", "line", "ip", "all"]
DIMENSIONS: tuple[Dimension, ...] = ("key", "user", "tenant", "line", "ip", "all")


class DimensionLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A limit for every single key, user, tenant, business line, address, and for all together."""

    key: Annotated[Limit | None, Meta(description="For each API key; unset: none.")] = None
    user: Annotated[Limit | None, Meta(description="For each user; unset: none.")] = None
    tenant: Annotated[
        Limit | None, Meta(description="For each tenant whose plan says nothing; unset: none.")
    ] = None
    line: Annotated[Limit | None, Meta(description="For each business line; unset: none.")] = None
    ip: Annotated[Limit | None, Meta(description="For each address; unset: none.")] = None
    all: Annotated[Limit | None, Meta(description="For the whole service; unset: none.")] = None


class AccessRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Somebody who is denied, or allowed under a limit of their own."""

    dimension: Annotated[Dimension, Meta(description="key, user, tenant, line or ip.")]
    name: Annotated[
        str,
        Meta(
            description="Whom it is for; the key's name, for keys, and one address, for ip.",
            min_length=1,
        ),
    ]
    deny: Annotated[bool, Meta(description="Refuse all but what an operator changes.")] = False
    limit: Annotated[
        Limit | None, Meta(description="Replaces the dimension's limit; unset: no limit.")
    ] = None

    def __post_init__(self) -> None:
        if self.deny and self.limit is not None:
            raise ConfigError(f"the access rule for {self.name} both denies and sets a limit.")
        # A rule that no request can ever meet would look like protection.
        if self.dimension == "all" and self.name != "all":
            raise ConfigError(f"the access rule for {self.name}: one for all is named all.")
        if self.dimension == "ip" and address_of(self.name) is None:
            raise ConfigError(
                f"the access rule for {self.name[:60]}: an ip is one address, as 203.0.113.9."
            )


def address_of(text: str) -> str | None:
    """An address as every request of it is counted; None when it is none."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if address.version == 6 else None
    return str(mapped or address)


class PoolAdmission(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How one pool is entered."""

    gate: GateSettings = GateSettings()
    hedge: HedgeSettings = HedgeSettings()
    look_s: Annotated[
        float,
        Meta(
            description="Seconds between two looks at each engine's /health and /metrics; 0: none.",
            ge=0.0,
        ),
    ] = 1.0
    tenants: Annotated[
        tuple[str, ...], Meta(description="Only these tenants may use it; empty: all.")
    ] = ()
    priorities: Annotated[
        tuple[Priority, ...],
        Meta(description="Only these priority classes may use it; empty: all."),
    ] = ()
    spill_to: Annotated[
        tuple[str, ...], Meta(description="Pools with free room that help when it is full.")
    ] = ()


class ScaleOutSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whom to call when a pool's tail becomes severe."""

    command: Annotated[
        tuple[str, ...],
        Meta(description="Program and arguments; the event comes as JSON on standard input."),
    ] = ()
    webhook: Annotated[
        str, Meta(description="Address that gets the event as a JSON POST; empty: none.")
    ] = ""
    timeout_s: Annotated[float, Meta(description="Longest run of either.", gt=0.0)] = 10.0
    pause_s: Annotated[
        float, Meta(description="Seconds between two calls for one pool.", ge=0.0)
    ] = 60.0

    def __post_init__(self) -> None:
        if self.webhook and not self.webhook.startswith(("http://", "https://")):
            raise ConfigError(
                "admission.scale_out.webhook must begin with http:// or https://.",
                param="admission.scale_out.webhook",
            )


class AdmissionSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Token quotas and what a request is held to cost."""

    enabled: Annotated[
        bool,
        Meta(
            description="Off: every request goes to an engine at once and no quota is charged; "
            "the deny list and the line for retrieval hold."
        ),
    ] = True
    limits: DimensionLimits = DimensionLimits()
    rules: Annotated[
        tuple[AccessRule, ...], Meta(description="Exceptions: denied, or with their own limit.")
    ] = ()
    priorities: Annotated[
        tuple[PriorityGrant, ...], Meta(description="Priorities of keys, users and routes.")
    ] = ()
    windows: Annotated[
        tuple[QuotaWindow, ...], Meta(description="Hours in which every limit shrinks or grows.")
    ] = ()
    load_factor: Annotated[
        float, Meta(description="Multiplies every limit; changed at run time.", gt=0.0, le=100.0)
    ] = 1.0
    load: LoadSettings = LoadSettings()
    profile: Annotated[
        str,
        Meta(
            description="Cost factors: tokens, summary, code, document, one of profiles, or scene: "
            "those of the request's scene."
        ),
    ] = "tokens"
    profiles: Annotated[
        Mapping[str, CostWeights],
        Meta(description="Own cost factors by name; they go before the four that are known."),
    ] = {}
    route_profiles: Annotated[
        Mapping[str, str],
        Meta(description="Other cost factors by route: chat, search, embeddings, rerank."),
    ] = {}
    tenant_profiles: Annotated[
        Mapping[str, str],
        Meta(description="Other cost factors by tenant; they go before the route's."),
    ] = {}
    scenes: Annotated[
        Mapping[str, SceneSettings],
        Meta(description="What requests get by scene: faq, report, code, document, or your own."),
    ] = {}
    scene_rules: Annotated[
        tuple[SceneRule, ...],
        Meta(description="Which scene a request has; the first that holds, else its text says."),
    ] = ()
    pools: Annotated[
        Mapping[str, PoolAdmission],
        Meta(
            description="By the name of an engine pool, or extractive or llama for those backends."
        ),
    ] = {}
    retrieval: LineSettings = RETRIEVAL_LINE
    retrieval_per_core: Annotated[
        int,
        Meta(
            description="Retrievals at work for each usable core, in all processes of serve "
            "--workers, though in each never fewer than retrieval.limit.initial; without meaning "
            "where an endpoint embeds.",
            ge=1,
        ),
    ] = 4
    pace: PaceSettings = PaceSettings()
    scale_out: ScaleOutSettings = ScaleOutSettings()
    estimate: EstimateSettings = EstimateSettings()
    passage_tokens: Annotated[
        int, Meta(description="Planned tokens of one passage in the prompt.", ge=1)
    ] = 400
    prompt_tokens: Annotated[
        int, Meta(description="Planned tokens of the template around them.", ge=0)
    ] = 200
    max_buckets: Annotated[
        int, Meta(description="Keys, users, addresses … with a quota of their own at most.", ge=16)
    ] = 100_000

    def __post_init__(self) -> None:
        own = (scene.profile for scene in self.scenes.values() if scene.profile)
        named = (*self.route_profiles.values(), *self.tenant_profiles.values(), *own)
        known = dict.fromkeys((*COST_PROFILES, *self.profiles))
        scenes = {**SCENE_PROFILES, **self.scenes}
        for rule in self.scene_rules:
            if rule.scene not in scenes:
                raise ConfigError(
                    f"there is no scene {rule.scene!r}; use {', '.join(scenes)}, or make it as "
                    f"admission.scenes.{rule.scene}.",
                    param="admission.scene_rules",
                )
        for profile in (self.profile, *named):
            if profile not in known and (profile, self.profile) != ("scene", "scene"):
                raise ConfigError(
                    f"there is no cost profile {profile!r}; use {', '.join(known)}, or make it "
                    f"as admission.profiles.{profile}.",
                    param="admission.profile",
                )

    def weights(self, tenant: str, route: str, scene: str = "") -> CostWeights:
        """What a request of this tenant, route and scene is charged by."""
        named = self.tenant_profiles.get(tenant)
        if named is None and scene and (own := self.scenes.get(scene)) is not None:
            named = own.profile or None
        name = named or self.route_profiles.get(route) or self.profile
        if name == "scene" and name not in self.profiles:
            name = SCENE_PROFILES.get(scene, "tokens")
        return self.profiles.get(name) or COST_PROFILES[name]

    @property
    def all_profiles(self) -> Mapping[str, CostWeights]:
        """Every cost profile by name."""
        return {**COST_PROFILES, **self.profiles}
