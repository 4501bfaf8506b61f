"""The one table of span and attribute names (F2.3; OpenTelemetry HTTP and GenAI conventions)."""

from __future__ import annotations

from typing import Literal

GenAiNames = Literal["current", "legacy", "both"]

ROOT_SPAN = "rag.request"
STAGE_SPANS = {
    "query.parse": "rag.query.parse",
    "query.rewrite": "rag.query.rewrite",
    "query.hyde": "rag.query.hyde",
    "embedding": "rag.query.embedding",
    "retrieval": "rag.query.retrieval",
    "search.lexical": "rag.search.lexical",
    "search.vector": "rag.search.vector",
    "fusion": "rag.search.fusion",
    "rerank": "rag.rerank.score",
    "postprocess": "rag.postprocess.rerank",
    "prompt": "rag.prompt.build",
    "generation": "rag.llm.generation",
}
"""Stage record name to span name; an unlisted stage is ``rag.stage.<name>``."""

STAGE_ATTRIBUTES = {
    "query_length": "rag.query.length",
    "language": "rag.query.language",
    "kind": "rag.query.kind",
    "rewritten": "rag.query.rewritten",
    "sub_questions": "rag.query.sub_questions",
    "vector_store": "rag.retrieval.vector_store",
    "top_k": "rag.retrieval.top_k",
    "retriever": "rag.retrieval.type",
    "hits": "rag.retrieval.hits",
    "reranker": "rag.rerank.model",
    "confidence": "rag.rerank.confidence",
}
"""Stage record attribute to span attribute; an unlisted one is ``rag.<name>``."""

WAITED = "rag.stage.waited_s"
OUTCOME = "rag.stage.outcome"
RETRIEVER_TYPE = "rag.retrieval.type"
REQUEST_ID = "forebay.request_id"
TENANT = "forebay.tenant"
KB = "forebay.kb"
KB_VERSION = "forebay.kb_version"
RUNG = "forebay.rung"
DEGRADED = "forebay.degraded"

HTTP_METHOD = "http.request.method"
HTTP_ROUTE = "http.route"
HTTP_STATUS = "http.response.status_code"
ERROR_TYPE = "error.type"
CLIENT = "client.address"

SERVICE_NAME = "service.name"
SERVICE_VERSION = "service.version"
ENVIRONMENT = "deployment.environment.name"
REGION = "cloud.region"

GENAI_OPERATION = "gen_ai.operation.name"
GENAI_REQUEST_MODEL = "gen_ai.request.model"
GENAI_RESPONSE_MODEL = "gen_ai.response.model"
GENAI_TTFT = "gen_ai.response.time_to_first_chunk"
GENAI_CURRENT = {
    "provider": "gen_ai.provider.name",
    "input_tokens": "gen_ai.usage.input_tokens",
    "output_tokens": "gen_ai.usage.output_tokens",
}
GENAI_LEGACY = {
    "provider": "gen_ai.system",
    "input_tokens": "gen_ai.usage.prompt_tokens",
    "output_tokens": "gen_ai.usage.completion_tokens",
}
"""What the conventions called the same things before they were renamed."""


def genai_names(generation: GenAiNames) -> tuple[dict[str, str], ...]:
    """The tables of one generation of names, or of both."""
    tables = {
        "current": (GENAI_CURRENT,),
        "legacy": (GENAI_LEGACY,),
        "both": (GENAI_CURRENT, GENAI_LEGACY),
    }
    return tables[generation]


def retriever_type(rung: str) -> str:
    """Dense, sparse or hybrid, by what the rung's name is made of."""
    legs = set(rung.split("+"))
    if "vector" in legs:
        return "hybrid" if len(legs) > 1 else "dense"
    return "sparse"
