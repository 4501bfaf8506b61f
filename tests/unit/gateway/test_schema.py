"""Requests generated from the API description: no 5xx, nothing undocumented."""

from __future__ import annotations

from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import Case
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from forebay.gateway.settings import ServerSettings
from forebay.testing.embedding import HashEmbedder
from tests.unit.gateway.fakes import World
from tests.unit.gateway.test_routes import ByLength

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
ROUTES = (
    "chat", "search", "embeddings", "rerank", "rerank_alias", "retrieval", "models", "model",
    "kbs", "kb", "documents", "document", "put_document", "delete_document", "healthz", "readyz",
    "metrics",
)  # fmt: skip


def made_world() -> World:
    return World(
        settings=ServerSettings(default_kb="handbook", allowed_hosts=("testserver",)),
        embedder=HashEmbedder(8),
        reranker=ByLength(),
    )


@pytest.fixture(scope="module")
def world() -> World:
    return made_world()


@pytest.fixture(scope="module")
def schema(world: World) -> Any:
    return schemathesis.openapi.from_asgi("/openapi.json", world.app)


def exercise(schema: Any, world: World, name: str, examples: int) -> None:
    [spec] = [spec for spec in world.app.routes.specs if spec.name == name]
    operation = schema[spec.path.replace(":path}", "}")][spec.method]

    @given(case=operation.as_strategy())
    @settings(
        max_examples=examples, deadline=None, database=None, derandomize=examples < 50,
        suppress_health_check=list(HealthCheck), phases=(Phase.explicit, Phase.generate),
    )  # fmt: skip
    def check(case: Case[Any]) -> None:
        case.call_and_validate(checks=CHECKS)

    check()


def test_the_list_is_complete(world: World) -> None:
    described = {spec.name for spec in world.app.routes.specs} - {"openapi", "mcp"}
    assert described == set(ROUTES)


@pytest.mark.parametrize("name", ROUTES)
def test_every_operation(schema: Any, world: World, name: str) -> None:
    exercise(schema, world, name, 20)


@pytest.mark.slow
@pytest.mark.parametrize("name", ROUTES)
def test_every_operation_at_length(schema: Any, world: World, name: str) -> None:
    exercise(schema, world, name, 150)
