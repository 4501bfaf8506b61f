"""The whole configuration as one frozen value, and how it is loaded."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from forebay.app.configuration import (
    Configuration,
    Layer,
    build,
    environment_layer,
    file_layer,
    flags_layer,
    merge,
)
from forebay.cache.settings import CacheSettings
from forebay.context import ContextSettings
from forebay.coordination.settings import CoordinationSettings
from forebay.embedding.settings import EmbeddingSettings
from forebay.gateway.identity import build_table, check_group_names
from forebay.gateway.peers import PeerRules
from forebay.gateway.settings import ServerSettings, TenantSettings
from forebay.generation.settings import GenerationSettings
from forebay.ingest.pool import PoolSettings
from forebay.ingest.settings import ChunkSettings, IngestLimits
from forebay.kernel.errors import ConfigError
from forebay.pipeline.embedding import BackgroundEmbeddingSettings
from forebay.pipeline.folders import FolderSettings
from forebay.pipeline.knowledge import KB_NAME
from forebay.pipeline.meaning import MeaningSettings
from forebay.pipeline.reranking import RerankingSettings
from forebay.pipeline.sentences import SentenceSettings
from forebay.pipeline.writer import WriterSettings
from forebay.policy.admission import AdmissionSettings
from forebay.policy.cascade import CascadeSettings
from forebay.policy.engine_ladder import EngineLadderSettings
from forebay.policy.fragility import FragilitySettings
from forebay.policy.ladder import LadderSettings
from forebay.policy.splitting import SplittingSettings
from forebay.query.settings import QuerySettings
from forebay.rerank.settings import DearSettings, LightSettings
from forebay.retrieval.settings import RetrievalSettings
from forebay.store.settings import StoreSettings as RecordSettings
from forebay.telemetry.settings import TelemetrySettings

DEFAULT_FILE = Path("forebay.toml")


class StoreSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where everything is kept."""

    path: Annotated[
        str, msgspec.Meta(description="Store folder; one writer process at a time.")
    ] = "var/forebay"
    model_cache: Annotated[
        str,
        msgspec.Meta(
            description="Folder for the rebuilt embedding model; empty: the user's cache folder."
        ),
    ] = ""
    reader_threads: Annotated[
        int, msgspec.Meta(ge=1, le=256, description="Threads that search and read the record.")
    ] = 4
    poll_ms: Annotated[
        int,
        msgspec.Meta(ge=10, le=500, description="How often a reader process looks for a version."),
    ] = 100
    maintenance_s: Annotated[
        float, msgspec.Meta(gt=0, description="How often background merges are looked for.")
    ] = 5.0
    reserve_bytes: Annotated[
        int,
        msgspec.Meta(
            ge=0, description="Additions are refused when the store's disk has less than this."
        ),
    ] = 32_000_000
    record: RecordSettings = RecordSettings()


class KnowledgeSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One knowledge base, served as model ``forebay/<name>``."""

    paths: Annotated[
        tuple[str, ...], msgspec.Meta(description="Folders and files it is made of.")
    ] = ()
    tags: Annotated[
        tuple[str, ...], msgspec.Meta(description="Tags of documents that declare none.")
    ] = ()
    groups: Annotated[
        tuple[str, ...],
        msgspec.Meta(description="Groups that may read documents that declare none; empty: all."),
    ] = ()
    watch: Annotated[
        bool, msgspec.Meta(description="Follow changes of the paths while serving.")
    ] = False
    shared: Annotated[
        bool,
        msgspec.Meta(
            description="Several machines answer from it and keep caches together: its versions "
            "are agreed on in coordination.redis_url."
        ),
    ] = False


class IngestSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How files become documents."""

    chunks: ChunkSettings = ChunkSettings()
    limits: IngestLimits = IngestLimits()
    pool: PoolSettings = PoolSettings()
    meaning: MeaningSettings = MeaningSettings()
    folders: FolderSettings = FolderSettings()
    writer: WriterSettings = WriterSettings()
    vectors: BackgroundEmbeddingSettings = BackgroundEmbeddingSettings()
    sentences: SentenceSettings = SentenceSettings()


class AnsweringSettings(GenerationSettings, frozen=True, forbid_unknown_fields=True):
    """Who writes answers, what answers when they do not, and how a text is answered that no engine
    can read at once.
    """

    splitting: SplittingSettings = SplittingSettings()
    ladder: EngineLadderSettings = EngineLadderSettings()


class SearchingSettings(RetrievalSettings, frozen=True, forbid_unknown_fields=True):
    """How one process retrieves, and what it does without when something fails."""

    ladder: LadderSettings = LadderSettings()


class RerankSettings(RerankingSettings, frozen=True, forbid_unknown_fields=True):
    """Who orders what the search found."""

    backend: Annotated[
        Literal["auto", "off", "light", "cascade"],
        msgspec.Meta(
            description="`auto`: the light reranker where one ships for the embedder; `light`; "
            "`cascade`: the dear one too, where the light one is unsure; `off`."
        ),
    ] = "off"
    light: LightSettings = LightSettings()
    cascade: CascadeSettings = CascadeSettings()
    dear: DearSettings = DearSettings()


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Everything ``forebay.toml`` may say."""

    server: ServerSettings = ServerSettings()
    store: StoreSettings = StoreSettings()
    knowledge: dict[str, KnowledgeSettings] = {}
    ingest: IngestSettings = IngestSettings()
    embedding: EmbeddingSettings = EmbeddingSettings()
    query: QuerySettings = QuerySettings()
    retrieval: SearchingSettings = SearchingSettings()
    rerank: RerankSettings = RerankSettings()
    context: ContextSettings = ContextSettings()
    generation: AnsweringSettings = AnsweringSettings()
    admission: AdmissionSettings = AdmissionSettings()
    fragility: FragilitySettings = FragilitySettings()
    cache: CacheSettings = CacheSettings()
    coordination: CoordinationSettings = CoordinationSettings()
    telemetry: TelemetrySettings = TelemetrySettings()
    tenants: tuple[TenantSettings, ...] = ()


def environment() -> Mapping[str, str]:
    """What the process was started with; nothing else in the package reads it."""
    return os.environ


def load_settings(
    file: Path | None,
    flags: Mapping[str, Any],
    environ: Mapping[str, str] | None = None,
) -> tuple[Settings, Configuration]:
    """Defaults < file < environment < flags; ``ConfigError`` says what is wrong and where."""
    layers: list[Layer] = []
    if file is not None:
        layers.append(file_layer(file))
    elif DEFAULT_FILE.is_file():
        layers.append(file_layer(DEFAULT_FILE))
    environ = environment() if environ is None else environ
    layers.append(environment_layer(environ, Settings.__struct_fields__))
    layers.append(flags_layer(flags))
    configuration = merge(layers, Settings)
    settings = build(configuration, Settings)
    _check(settings)
    return settings, configuration


def _check(settings: Settings) -> None:
    for name in settings.knowledge:
        if KB_NAME.fullmatch(name) is None:
            raise ConfigError(
                f"knowledge.{name} is no name for a knowledge base; use ASCII letters, digits, "
                "dots, dashes and underscores."
            )
        names = [Path(path).resolve().name for path in settings.knowledge[name].paths]
        twice = sorted({each for each in names if names.count(each) > 1})
        if twice:
            raise ConfigError(
                f"knowledge.{name}.paths has two entries named {twice[0]}; document ids begin with "
                "that name, so rename one."
            )
        if settings.knowledge[name].shared and not settings.coordination.redis_url:
            raise ConfigError(
                f"knowledge.{name}.shared needs coordination.redis_url: the processes of one "
                "folder see every change without it.",
                param=f"knowledge.{name}.shared",
            )
        check_group_names(
            settings.knowledge[name].groups, f"knowledge.{name}", f"knowledge.{name}.groups"
        )
    _check_query(settings)
    _check_server(settings.server)
    _check_tenants(settings.tenants)


def _check_query(settings: Settings) -> None:
    query = settings.query
    asked = [name for name in ("engine_rewriting", "hyde") if getattr(query, name)]
    if asked and settings.generation.backend == "extractive":
        raise ConfigError(
            f"query.{asked[0]} needs an engine that writes; set generation.backend to openai or "
            "llama.",
            param=f"query.{asked[0]}",
        )
    for name in ("related_percentile", "unrelated_percentile"):
        if query.lone_percentile > getattr(query, name):
            raise ConfigError(
                f"query.lone_percentile is above query.{name}; lower the one or raise the other.",
                param="query.lone_percentile",
            )


def _check_server(server: ServerSettings) -> None:
    PeerRules(server.trusted_proxies, server.allowed_hosts, server.cors.origins)
    _check_kb_name(server.default_kb, "server.default_kb")
    deadlines = server.deadlines
    for name in ("answer_ms", "search_ms", "change_ms"):
        if getattr(deadlines, name) > deadlines.max_ms:
            raise ConfigError(
                f"server.deadlines.{name} is above server.deadlines.max_ms; lower the one or "
                "raise the other.",
                param=f"server.deadlines.{name}",
            )


def _check_tenants(tenants: tuple[TenantSettings, ...]) -> None:
    for tenant in tenants:
        if tenant.knowledge != "*":
            for kb in tenant.knowledge:
                _check_kb_name(kb or " ", f"tenant {tenant.name}: knowledge")
        _check_kb_name(tenant.default_kb, f"tenant {tenant.name}: default_kb")
    build_table(tenants)


def _check_kb_name(name: str, where: str) -> None:
    if name and KB_NAME.fullmatch(name) is None:
        raise ConfigError(f"{where} has {name!r}, which is no name for a knowledge base.")


def model_cache(settings: Settings) -> Path:
    """Where the rebuilt embedding model is kept."""
    if settings.store.model_cache:
        return Path(settings.store.model_cache)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "forebay"
