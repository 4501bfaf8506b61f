"""The ``[embedding]`` section: which embedder, where it is, how hard it may work."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec


class EmbeddingSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Everything that chooses and sizes the embedder."""

    backend: Annotated[
        Literal["e5", "onnx", "openai", "none"],
        msgspec.Meta(
            description="e5: built in; onnx: a model folder; openai: a remote endpoint; "
            "none: lexical search only."
        ),
    ] = "e5"
    path: Annotated[
        str, msgspec.Meta(description="Folder of an ONNX model with tokenizer.json (backend onnx).")
    ] = ""
    model_file: Annotated[
        str, msgspec.Meta(description="ONNX file inside path; empty: model.onnx or the only one.")
    ] = ""
    base_url: Annotated[
        str, msgspec.Meta(description="Root of the endpoint, ending in /v1 (backend openai).")
    ] = ""
    model: Annotated[
        str, msgspec.Meta(description="Model name the endpoint knows (backend openai).")
    ] = ""
    api_key: Annotated[
        str, msgspec.Meta(description="Bearer key for the endpoint; empty sends none.")
    ] = ""
    api_key_env: Annotated[
        str,
        msgspec.Meta(
            description="Environment variable that holds the bearer key, so that the file need not."
        ),
    ] = ""
    api_key_file: Annotated[
        str,
        msgspec.Meta(description="File that holds the bearer key and nothing else, read at start."),
    ] = ""
    dimensions: Annotated[
        int,
        msgspec.Meta(ge=0, description="Vector size to ask the endpoint for; 0: the model's own."),
    ] = 0
    encoding: Annotated[
        Literal["base64", "float"],
        msgspec.Meta(description="How the endpoint writes vectors (backend openai)."),
    ] = "base64"
    query_prefix: Annotated[
        str | None,
        msgspec.Meta(description="Put before queries; unset: what the model family wants."),
    ] = None
    passage_prefix: Annotated[
        str | None,
        msgspec.Meta(description="Put before passages; unset: what the model family wants."),
    ] = None
    center_languages: Annotated[
        bool,
        msgspec.Meta(
            description="Take each language's mean off the built-in model's vectors, so that "
            "questions find answers in the other language (backend e5)."
        ),
    ] = True
    max_tokens: Annotated[
        int, msgspec.Meta(ge=0, description="Longest input in tokens; 0: as the model says.")
    ] = 0
    workers: Annotated[
        int, msgspec.Meta(ge=1, le=64, description="Threads that run the local model.")
    ] = 2
    query_workers: Annotated[
        int,
        msgspec.Meta(ge=0, le=64, description="Further threads that run queries only."),
    ] = 1
    passage_niceness: Annotated[
        int,
        msgspec.Meta(
            ge=0, le=19, description="How far passage threads step back for queries (Linux)."
        ),
    ] = 5
    intra_op_threads: Annotated[
        int, msgspec.Meta(ge=1, le=64, description="Threads inside one run of the local model.")
    ] = 1
    batch_size: Annotated[
        int,
        msgspec.Meta(
            ge=0, le=2048, description="Texts in one run or request; 0: 1 locally, 64 remotely."
        ),
    ] = 0
    max_waiting_queries: Annotated[
        int, msgspec.Meta(ge=1, description="Queries that may wait before new ones are refused.")
    ] = 256
    max_waiting_passages: Annotated[
        int, msgspec.Meta(ge=1, description="Passage batches that may wait before refusal.")
    ] = 1024
    max_concurrent_requests: Annotated[
        int, msgspec.Meta(ge=1, le=256, description="Requests to the endpoint at once.")
    ] = 8
    timeout_s: Annotated[
        float, msgspec.Meta(gt=0, description="Longest wait for one run or request.")
    ] = 60.0
