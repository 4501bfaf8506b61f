"""The one place where the gateway's routes are listed and put together."""

from __future__ import annotations

from forebay.gateway.app import GatewayApp
from forebay.gateway.chat import ChatRoute
from forebay.gateway.directory import KbDirectory
from forebay.gateway.health import Health, HealthRoutes, ReadyAnswer
from forebay.gateway.models import ModelRoutes
from forebay.gateway.parts import GatewayParts
from forebay.gateway.routes import RouteSpec, RouteTable
from forebay.gateway.search import SearchRoute
from forebay.wire.chat import ChatCompletion, ChatRequest
from forebay.wire.knowledge import ModelCard, ModelList
from forebay.wire.search import SearchAnswer, SearchBody


class _Drain:
    """Lets routes ask about an application that is built after them."""

    app: GatewayApp | None = None

    def __call__(self) -> bool:
        return self.app is not None and self.app.draining


def build_app(parts: GatewayParts) -> GatewayApp:
    """Put the ASGI application together."""
    drain = _Drain()
    directory = KbDirectory(parts.knowledge, parts.clock, parts.settings.default_kb)
    specs = (
        *_answering(parts, directory),
        *_models(directory),
        *_health(HealthRoutes(parts, drain)),
    )
    app = GatewayApp(parts, RouteTable(specs))
    drain.app = app
    return app


def _answering(parts: GatewayParts, directory: KbDirectory) -> tuple[RouteSpec, ...]:
    return (
        RouteSpec(
            method="POST",
            path="/v1/chat/completions",
            name="chat",
            summary="Answer a conversation from a knowledge base, with citations.",
            handler=ChatRoute(parts, directory),
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
