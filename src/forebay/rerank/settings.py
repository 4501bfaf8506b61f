"""Settings of rerankers: the light model, endpoints, folders with cross-encoders."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from forebay.rerank.late import LateSettings
from forebay.rerank.sentences import SentenceSettings

DearBackend = Literal["sentences", "late", "endpoint", "onnx"]


class LightSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The model that orders hits by their words and stored vectors."""

    path: Annotated[
        str,
        Meta(description="A model of `forebay distill`; empty: the one for the built-in embedder."),
    ] = ""


class EndpointSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A rerank endpoint in the shape that Jina and Cohere share."""

    base_url: Annotated[
        str, Meta(description="Root of the endpoint; `/rerank` is added, as in https://host/v1.")
    ] = ""
    model: Annotated[str, Meta(description="Model name the endpoint knows.")] = ""
    api_key: Annotated[str, Meta(description="Bearer key; empty sends none.")] = ""
    api_key_env: Annotated[
        str, Meta(description="Environment variable that holds the bearer key.")
    ] = ""
    api_key_file: Annotated[str, Meta(description="File that holds the bearer key.")] = ""
    logits: Annotated[
        bool, Meta(description="Scores are logits, to be turned into relevances in 0..1.")
    ] = False
    max_characters: Annotated[
        int, Meta(ge=64, description="Characters of a text that are sent.")
    ] = 8000
    max_concurrent_requests: Annotated[
        int, Meta(ge=1, le=256, description="Requests at once; more wait their turn.")
    ] = 8
    max_waiting_calls: Annotated[
        int, Meta(ge=1, description="Calls that may be under way before refusal.")
    ] = 64
    timeout_s: Annotated[
        float, Meta(gt=0, description="Longest wait for one request, queueing included.")
    ] = 10.0


class CrossEncoderSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A cross-encoder: a folder with an ONNX model and its `tokenizer.json`."""

    path: Annotated[str, Meta(description="The folder.")] = ""
    model_file: Annotated[
        str, Meta(description="ONNX file in the folder; empty: model.onnx, there or in onnx/.")
    ] = ""
    max_tokens: Annotated[
        int, Meta(ge=16, le=8192, description="Tokens of query and text together; more are cut.")
    ] = 512
    batch_size: Annotated[int, Meta(ge=1, le=256, description="Texts in one run of the model.")] = 4
    workers: Annotated[int, Meta(ge=1, le=64, description="Threads that run the model.")] = 1
    max_waiting: Annotated[
        int, Meta(ge=1, description="Runs that may wait before new texts are refused.")
    ] = 64
    timeout_s: Annotated[
        float, Meta(gt=0, description="Longest wait for one call, queueing included.")
    ] = 30.0


class DearSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The reranker that backend cascade asks where the light one is unsure."""

    backend: Annotated[
        DearBackend,
        Meta(
            description="`sentences`: the embedder reads every sentence of a text; `late`: token "
            "by token; `endpoint`, `onnx`: a cross-encoder elsewhere or in a folder."
        ),
    ] = "sentences"
    endpoint: EndpointSettings = EndpointSettings()
    onnx: CrossEncoderSettings = CrossEncoderSettings()
    sentences: SentenceSettings = SentenceSettings()
    late: LateSettings = LateSettings()
