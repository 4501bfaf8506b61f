"""The ``[cache]`` section: three tiers, and the rules by which answers may be kept."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from forebay.cache.carrying import CarryingSettings
from forebay.cache.heat import HeatSettings
from forebay.cache.near import NearSettings
from forebay.cache.prewarm import PrewarmSettings
from forebay.cache.prompts import PromptTierSettings
from forebay.cache.rewarming import RewarmingSettings
from forebay.cache.sessions import SessionTierSettings
from forebay.cache.shared_settings import SharedValuesSettings

Route = Literal["chat", "mcp"]


class EmbeddingTierSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """L1: vectors of queries; they never grow old, only unasked."""

    enabled: Annotated[bool, Meta(description="L1: keep the vectors of queries.")] = True
    max_bytes: Annotated[
        int, Meta(description="Memory of the kept vectors in each process.", ge=65_536)
    ] = 32_000_000
    life_s: Annotated[
        float, Meta(description="A vector is kept so long after it was made.", gt=0.0)
    ] = 86_400.0


class RetrievalTierSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """L2: what was found for a query, carried over changes that cannot alter it."""

    enabled: Annotated[bool, Meta(description="L2: keep what was found for a query.")] = True
    max_bytes: Annotated[
        int, Meta(description="Memory of what was found in each process.", ge=65_536)
    ] = 128_000_000
    life_s: Annotated[
        float,
        Meta(description="Results are kept so long at most; changes end them before.", gt=0.0),
    ] = 3600.0
    empty_life_s: Annotated[
        float, Meta(description="Finding nothing is kept so long at most (F2.9).", gt=0.0)
    ] = 300.0
    carrying: CarryingSettings = CarryingSettings()


class AnswerRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What may be answered with what was answered before; every part that is given must hold."""

    name: Annotated[str, Meta(description="What figures and explanations call it.", min_length=1)]
    knowledge: Annotated[
        tuple[str, ...], Meta(description="Only these knowledge bases; empty: all.")
    ] = ()
    tenants: Annotated[tuple[str, ...], Meta(description="Only these tenants; empty: all.")] = ()
    routes: Annotated[
        tuple[Route, ...], Meta(description="Only these ways of asking; empty: all.")
    ] = ()
    tags: Annotated[
        tuple[str, ...],
        Meta(
            description="Only answers that rest on documents with one of these tags alone; empty: "
            "on any."
        ),
    ] = ()
    questions: Annotated[
        tuple[str, ...],
        Meta(
            description="Only these questions, whatever their case, width, spaces and last "
            "punctuation; empty: all."
        ),
    ] = ()
    min_ms: Annotated[
        float,
        Meta(description="Only answers that took so long to make (F0.13).", ge=0.0),
    ] = 0.0
    near: Annotated[
        bool,
        Meta(description="Answer from these also what says the same (cache.answers.near)."),
    ] = False
    life_s: Annotated[
        float,
        Meta(
            description="Answers are kept so long at most; changes end them before.",
            gt=0.0,
            le=86_400.0,
        ),
    ] = 300.0


class AnswerTierSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """L3: whole answers, off unless a rule allows one."""

    rules: Annotated[
        tuple[AnswerRule, ...],
        Meta(description="L3: the first rule that fits decides; none: no answer is kept."),
    ] = ()
    max_bytes: Annotated[
        int, Meta(description="Memory of the kept answers in each process.", ge=65_536)
    ] = 64_000_000
    max_unsupported: Annotated[
        float,
        Meta(
            description="Share of statements without a passage that holds them, above which an "
            "answer is not kept (F0.2).",
            ge=0.0,
            le=1.0,
        ),
    ] = 0.05
    replays_max_bytes: Annotated[
        int,
        Meta(
            description="Memory of requests that are answered again without being read again; 0: "
            "none.",
            ge=0,
        ),
    ] = 16_000_000
    near: NearSettings = NearSettings()


class CacheSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is kept of earlier requests."""

    embedding: EmbeddingTierSettings = EmbeddingTierSettings()
    retrieval: RetrievalTierSettings = RetrievalTierSettings()
    answers: AnswerTierSettings = AnswerTierSettings()
    prompts: PromptTierSettings = PromptTierSettings()
    chunks: HeatSettings = HeatSettings()
    warming: RewarmingSettings = RewarmingSettings()
    sessions: SessionTierSettings = SessionTierSettings()
    prewarm: PrewarmSettings = PrewarmSettings()
    shared: Annotated[
        bool,
        Meta(description="Share tiers between processes through coordination.redis_url."),
    ] = True
    store: SharedValuesSettings = SharedValuesSettings()
