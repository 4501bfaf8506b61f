"""The one place where the gateway's routes are listed and put together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.gateway.admission import AdmissionBody, AdmissionRoutes, QuotaKeeper
from forebay.gateway.app import GatewayApp
from forebay.gateway.chat import ChatRoute
from forebay.gateway.dify import RetrievalRoute, dify_error
from forebay.gateway.directory import KbDirectory
from forebay.gateway.documents import KEYS, PAGING, KnowledgeRoutes
from forebay.gateway.health import Health, HealthRoutes, ReadyAnswer
from forebay.gateway.identity import Identity
from forebay.gateway.mcp_route import McpRoute
from forebay.gateway.models import ModelRoutes
from forebay.gateway.openapi import OpenApiRoute
from forebay.gateway.parts import GatewayParts
from forebay.gateway.replay import Replays
from forebay.gateway.rerank import RerankRoute
from forebay.gateway.routes import RouteSpec, RouteTable
from forebay.gateway.search import SearchRoute
from forebay.gateway.telling import Teller
from forebay.gateway.uploads import PARAMETERS
from forebay.gateway.vectors import EmbeddingsRoute
from forebay.policy.admission import AdmissionOverrides
from forebay.wire.chat import ChatCompletion, ChatRequest
from forebay.wire.dify import RetrievalAnswer, RetrievalRequest
from forebay.wire.embeddings import EmbeddingsAnswer, EmbeddingsRequest
from forebay.wire.knowledge import (
    ChangeAnswer,
    ChunkBody,
    DocumentList,
    DocumentWithText,
    KbBody,
    KbList,
    ModelCard,
    ModelList,
)
from forebay.wire.rerank import RerankAnswer, RerankRequest
from forebay.wire.search import SearchAnswer, SearchBody

if TYPE_CHECKING:
    from forebay.gateway.mcp import McpTools

_DOCUMENT = "/v1/kb/{kb}/documents/{id:path}"


class _Drain:
    """Lets routes ask about an application that is built after them."""

    app: GatewayApp | None = None

    def __call__(self) -> bool:
        return self.app is not None and self.app.draining


def build_app(parts: GatewayParts) -> GatewayApp:
    """Put the ASGI application together."""
    drain = _Drain()
    replays = _replays(parts)
    directory = KbDirectory(parts.knowledge, parts.clock, parts.settings.default_kb)
    knowledge = KnowledgeRoutes(parts, directory)
    specs = (
        *_answering(parts, directory, replays),
        *_stages(parts, directory),
        *_models(directory),
        *_knowledge(knowledge),
        *_changes(knowledge),
        *(_chunks(knowledge) if parts.chunks is not None else ()),
        *(_quotas(parts.quotas, parts.identity) if parts.quotas is not None else ()),
        *_health(HealthRoutes(parts, drain)),
    )
    specs = (*specs, _openapi(specs, parts.version))
    mcp = McpRoute(parts, directory)
    specs = (*specs, _mcp(mcp))
    teller = None if replays is None else Teller(parts, replays)
    app = GatewayApp(parts, RouteTable(specs), mcp.running, teller)
    drain.app = app
    return app


def build_mcp(parts: GatewayParts) -> McpTools:
    """The MCP tools alone, for standard input and output."""
    from forebay.gateway.mcp import McpTools

    return McpTools(parts, KbDirectory(parts.knowledge, parts.clock, parts.settings.default_kb))


def _replays(parts: GatewayParts) -> Replays | None:
    """Equal requests are remembered while the tables hold that their senders were found in."""
    if parts.recollecting is None or not parts.replays_max_bytes:
        return None
    identity, quotas = parts.identity, parts.quotas

    def tables() -> tuple[object, ...]:
        if quotas is None:
            return (identity.table,)
        return identity.table, quotas.effective, quotas.overrides.plans

    return Replays(parts.replays_max_bytes, tables)


def _answering(
    parts: GatewayParts, directory: KbDirectory, replays: Replays | None
) -> tuple[RouteSpec, ...]:
    return (
        RouteSpec(
            method="POST",
            path="/v1/chat/completions",
            name="chat",
            summary="Answer a conversation from a knowledge base, with citations.",
            handler=ChatRoute(parts, directory, replays),
            effort="answer",
            body=ChatRequest,
            reply=ChatCompletion,
            streams=True,
            errors=(404, 502),
        ),
        RouteSpec(
            method="POST",
            path="/v1/search",
            name="search",
            summary="Find passages.",
            handler=SearchRoute(parts, directory),
            body=SearchBody,
            reply=SearchAnswer,
            errors=(404,),
        ),
    )


def _stages(parts: GatewayParts, directory: KbDirectory) -> tuple[RouteSpec, ...]:
    rerank = RerankRoute(parts)
    return (
        RouteSpec(
            method="POST",
            path="/v1/embeddings",
            name="embeddings",
            summary="Embed texts.",
            handler=EmbeddingsRoute(parts, directory),
            body=EmbeddingsRequest,
            reply=EmbeddingsAnswer,
            errors=(404, 502),
        ),
        *(
            RouteSpec(
                method="POST",
                path=path,
                name=name,
                summary="Order documents by their relevance to a query.",
                handler=rerank,
                body=RerankRequest,
                reply=RerankAnswer,
                errors=(404, 502),
            )
            for path, name in (("/v1/rerank", "rerank"), ("/rerank", "rerank_alias"))
        ),
        RouteSpec(
            method="POST",
            path="/retrieval",
            name="retrieval",
            summary="Dify's external knowledge interface.",
            handler=RetrievalRoute(parts, directory),
            body=RetrievalRequest,
            reply=RetrievalAnswer,
            errors=(404,),
            render_error=dify_error,
        ),
    )


def _knowledge(routes: KnowledgeRoutes) -> tuple[RouteSpec, ...]:
    return (
        RouteSpec(
            method="GET",
            path="/v1/kb",
            name="kbs",
            summary="Knowledge bases.",
            handler=routes.kbs,
            reply=KbList,
        ),
        RouteSpec(
            method="GET",
            path="/v1/kb/{kb}",
            name="kb",
            summary="One knowledge base.",
            handler=routes.kb,
            reply=KbBody,
            errors=(404,),
        ),
        RouteSpec(
            method="GET",
            path="/v1/kb/{kb}/documents",
            name="documents",
            summary="Documents in id order.",
            handler=routes.documents,
            reply=DocumentList,
            query=PAGING,
            errors=(404,),
        ),
        RouteSpec(
            method="GET",
            path=_DOCUMENT,
            name="document",
            summary="One document with its text.",
            handler=routes.document,
            reply=DocumentWithText,
            query=KEYS,
            errors=(404,),
        ),
    )


def _chunks(routes: KnowledgeRoutes) -> tuple[RouteSpec, ...]:
    return (
        RouteSpec(
            method="GET",
            path="/v1/kb/{kb}/chunks/{key}",
            name="chunk",
            summary="One chunk by its key; 410 when it is gone, with where to look.",
            handler=routes.chunk,
            reply=ChunkBody,
            errors=(404, 410),
        ),
    )


def _changes(routes: KnowledgeRoutes) -> tuple[RouteSpec, ...]:
    return (
        RouteSpec(
            method="PUT",
            path=_DOCUMENT,
            name="put_document",
            summary="Add or replace a document.",
            handler=routes.put,
            access="change",
            effort="change",
            raw_body=("application/octet-stream", "multipart/form-data"),
            reply=ChangeAnswer,
            query=PARAMETERS,
            errors=(404, 409, 422, 507),
        ),
        RouteSpec(
            method="DELETE",
            path=_DOCUMENT,
            name="delete_document",
            summary="Remove a document.",
            handler=routes.delete,
            access="change",
            effort="change",
            reply=ChangeAnswer,
            errors=(404, 409, 507),
        ),
    )


def _models(directory: KbDirectory) -> tuple[RouteSpec, ...]:
    models = ModelRoutes(directory)
    return (
        RouteSpec(
            method="GET",
            path="/v1/models",
            name="models",
            summary="Knowledge bases as models.",
            handler=models.list,
            reply=ModelList,
        ),
        RouteSpec(
            method="GET",
            path="/v1/models/{id:path}",
            name="model",
            summary="One knowledge base as a model.",
            handler=models.one,
            reply=ModelCard,
            errors=(404,),
        ),
    )


def _quotas(keeper: QuotaKeeper, identity: Identity) -> tuple[RouteSpec, ...]:
    routes = AdmissionRoutes(keeper, identity)
    return (
        RouteSpec(
            method="GET",
            path="/v1/admission",
            name="admission",
            summary="Quotas in force.",
            handler=routes.show,
            access="operate",
            reply=AdmissionBody,
        ),
        RouteSpec(
            method="PUT",
            path="/v1/admission",
            name="put_admission",
            summary="Change quotas until they are taken back; restarts do not.",
            handler=routes.change,
            access="operate",
            body=AdmissionOverrides,
            reply=AdmissionBody,
            errors=(507,),
        ),
        RouteSpec(
            method="DELETE",
            path="/v1/admission",
            name="delete_admission",
            summary="Take back what was changed; the configuration holds again.",
            handler=routes.reset,
            access="operate",
            reply=AdmissionBody,
        ),
    )


def _health(health: HealthRoutes) -> tuple[RouteSpec, ...]:
    return (
        RouteSpec(
            method="GET",
            path="/healthz",
            name="healthz",
            summary="Whether the process lives.",
            handler=health.healthz,
            access="open",
            reply=Health,
        ),
        RouteSpec(
            method="GET",
            path="/readyz",
            name="readyz",
            summary="Whether requests can be served.",
            handler=health.readyz,
            access="open",
            reply=ReadyAnswer,
            errors=(503,),
        ),
        RouteSpec(
            method="GET",
            path="/metrics",
            name="metrics",
            summary="Figures in the Prometheus text format.",
            handler=health.figures,
            access="figures",
            reply_text="text/plain",
        ),
    )


def _openapi(specs: tuple[RouteSpec, ...], version: str) -> RouteSpec:
    return RouteSpec(
        method="GET",
        path="/openapi.json",
        name="openapi",
        summary="This description.",
        handler=OpenApiRoute(specs, version),
        access="open",
    )


def _mcp(mcp: McpRoute) -> RouteSpec:
    """Not part of the API description: MCP describes itself."""
    return RouteSpec(
        method="POST",
        path="/mcp",
        name="mcp",
        summary="Model Context Protocol over streamable HTTP.",
        handler=mcp,
        effort="answer",
    )
