"""Settings of generation: which backend answers, and the bounds of each."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

Backend = Literal["extractive", "openai", "llama"]
ENGINE_TOKENIZER = "engine"
BUNDLE = "bundle:"
"""Begins the name of a vocabulary that the extra ``vocabularies`` carries."""


class ExtractiveSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How sentences are chosen and when there is no answer."""

    max_quotes: Annotated[
        int,
        Meta(
            description="Most quotations in one answer; a list that is asked for counts as one.",
            ge=1,
            le=10,
        ),
    ] = 3
    max_quote_characters: Annotated[
        int, Meta(description="Most quoted characters in one answer.", ge=80)
    ] = 900
    strictness: Annotated[
        float,
        Meta(
            description="Added to the log-odds an answer needs; above 0 refuses more: of 50 "
            "questions up to 1 changed none, 2 changed one, 5 refused two fifths of those that "
            "can be answered, 20 all."
        ),
    ] = 0.0
    plain_from: Annotated[
        float,
        Meta(
            description="Log-odds from which what is quoted is given as the answer; less, and it "
            "is told that nothing answers plainly and that this comes nearest; 0: never so."
        ),
    ] = 0.7
    scores_are_shares: Annotated[
        bool,
        Meta(description="Whether hit scores are comparable between questions, in 0..1."),
    ] = True
    cosine_deviation: Annotated[
        float,
        Meta(
            description="Standard deviation of unrelated cosines under the embedder in use.",
            gt=0.0,
        ),
    ] = 0.085
    cached_passages: Annotated[
        int, Meta(description="Analysed passages kept in memory.", ge=16)
    ] = 2048


class PoolSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Engine replicas with one purpose: any OpenAI-compatible endpoints serving one model."""

    name: Annotated[str, Meta(description="Name in figures and messages.", min_length=1)]
    base_urls: Annotated[
        tuple[str, ...], Meta(description="Roots of the replicas, ending in /v1.", min_length=1)
    ]
    model: Annotated[str, Meta(description="Model name the replicas know.", min_length=1)]
    api_key: Annotated[str, Meta(description="Bearer key; empty sends none.")] = ""
    api_key_env: Annotated[
        str,
        Meta(
            description="Environment variable that holds the bearer key, so that the file need not."
        ),
    ] = ""
    api_key_file: Annotated[
        str, Meta(description="File that holds the bearer key and nothing else, read at start.")
    ] = ""
    tokenizer: Annotated[
        str,
        Meta(
            description="How prompts are counted: empty estimates, engine asks the replica's "
            "/tokenize, bundle:NAME takes a vocabulary of the extra vocabularies, anything else is "
            "the path of the model's tokenizer.json."
        ),
    ] = ""
    max_input_tokens: Annotated[
        int, Meta(description="Longest prompt this pool takes, in tokens.", ge=1)
    ] = 4096
    max_output_tokens: Annotated[
        int, Meta(description="Longest answer this pool writes, in tokens.", ge=1)
    ] = 1024


class EngineSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Connections and time-outs towards engines; the request's deadline is kept besides."""

    connect_timeout_s: Annotated[
        float, Meta(description="Longest wait for a connection to a replica.", gt=0.0)
    ] = 3.0
    first_token_timeout_s: Annotated[
        float, Meta(description="Longest wait for the first token.", gt=0.0)
    ] = 60.0
    idle_timeout_s: Annotated[
        float, Meta(description="Longest silence between two pieces of a stream.", gt=0.0)
    ] = 20.0
    max_connections: Annotated[
        int, Meta(description="Connections to one replica at most.", ge=1, le=65_536)
    ] = 256
    min_connections: Annotated[
        int,
        Meta(
            description="Connections to one replica that stay open at least, once made; above "
            "that as many as the rates of late need.",
            ge=1,
            le=65_536,
        ),
    ] = 4
    acquire_timeout_s: Annotated[
        float,
        Meta(description="Longest wait for a connection when all are in use.", gt=0.0),
    ] = 5.0
    connection_idle_s: Annotated[
        float, Meta(description="Idle connections are closed after this.", gt=0.0)
    ] = 300.0
    max_waiting: Annotated[
        int, Meta(description="Requests in work at most, over all pools; more are refused.", ge=1)
    ] = 1024
    warm_timeout_s: Annotated[
        float,
        Meta(
            description="Longest wait for one token from every replica before ready; 0: none is "
            "asked.",
            ge=0.0,
        ),
    ] = 10.0
    warm_after_s: Annotated[
        float,
        Meta(
            description="A replica that wrote nothing for so long is asked for one token; "
            "0: never.",
            ge=0.0,
        ),
    ] = 600.0
    max_event_bytes: Annotated[
        int, Meta(description="Longest event accepted from an engine, in bytes.", ge=1024)
    ] = 1_048_576


class LlamaSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A local GGUF model (extra ``llama``)."""

    model_path: Annotated[str, Meta(description="Path of the GGUF file.")] = ""
    context_tokens: Annotated[
        int, Meta(description="Context window of one slot, in tokens.", ge=256)
    ] = 4096
    slots: Annotated[
        int, Meta(description="Requests generated side by side; others wait.", ge=1, le=64)
    ] = 1
    threads: Annotated[
        int,
        Meta(
            description="CPU threads of generation; 0: one less than there are cores.",
            ge=0,
            le=1024,
        ),
    ] = 0
    gpu_layers: Annotated[
        int, Meta(description="Layers put on a GPU; 0: none, -1: all.", ge=-1)
    ] = 0
    max_output_tokens: Annotated[int, Meta(description="Longest answer, in tokens.", ge=1)] = 512
    max_waiting: Annotated[
        int, Meta(description="Requests waiting for a slot at most; more are refused.", ge=0)
    ] = 64


class GenerationSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who writes answers."""

    backend: Annotated[
        Backend,
        Meta(description="extractive quotes passages; openai calls engines; llama runs a file."),
    ] = "extractive"
    pools: Annotated[
        tuple[PoolSettings, ...],
        Meta(description="Engine pools; the first whose max_input_tokens fits is taken."),
    ] = ()
    extractive: ExtractiveSettings = ExtractiveSettings()
    engine: EngineSettings = EngineSettings()
    llama: LlamaSettings = LlamaSettings()
