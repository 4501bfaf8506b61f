"""GET /openapi.json: the route table and the wire types as OpenAPI 3.1."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Any

import msgspec

from forebay.gateway.exchange import JSON, Exchange
from forebay.gateway.routes import RouteSpec
from forebay.wire.chat import ChatChunk, StreamError
from forebay.wire.encoding import encode_json
from forebay.wire.errors import DifyError, ErrorBody

_REF = "#/components/schemas/{name}"
_COMMON = (400, 405, 413, 408, 415)
_GUARDED = (401, 403, 429, 500, 503, 504)
_ABOUT = """\
A RAG server: cited answers from your documents. Request headers read everywhere:
`x-request-id`, `traceparent`, `x-forebay-deadline-ms` (milliseconds, bounded),
`x-forebay-priority` (low, normal, high; can only lower), `x-forebay-groups` (comma-separated),
`x-forebay-user`, `x-forebay-no-cache`, `x-forebay-scene` (what the request is for; can only
lower). A stream that fails after its start ends with one
event that has the error body, without `[DONE]`.
"""
_HEADERS = {
    "x-request-id": "Names this request in logs.",
    "server-timing": "Milliseconds of each stage that ran.",
    "x-forebay-cache": "What each cache tier did.",
    "x-forebay-scene": "What the request was taken to be for.",
    "x-forebay-rung": "Which rung of the retrieval ladder answered.",
    "x-forebay-kb-version": "Version of the knowledge base that was read or made.",
}


class OpenApiRoute:
    """Serves the description, made once."""

    def __init__(self, specs: tuple[RouteSpec, ...], version: str) -> None:
        self._body = encode_json(describe(specs, version))

    async def __call__(self, x: Exchange) -> None:
        """Answer GET /openapi.json."""
        await x.reply(self._body)


def describe(specs: tuple[RouteSpec, ...], version: str) -> dict[str, Any]:
    """Return the OpenAPI document."""
    types: list[type] = [ErrorBody, DifyError, ChatChunk, StreamError]
    for spec in specs:
        types += [kind for kind in (spec.body, spec.reply) if kind is not None]
    types = list(dict.fromkeys(types))
    schemas, components = msgspec.json.schema_components(types, ref_template=_REF)
    named = dict(zip(types, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for spec in specs:
        path = spec.path.replace(":path}", "}")
        paths.setdefault(path, {})[spec.method.lower()] = _operation(spec, named)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Forebay",
            "version": version,
            "description": _ABOUT,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "headers": {
                name: {"description": text, "schema": {"type": "string"}}
                for name, text in _HEADERS.items()
            },
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(spec: RouteSpec, named: dict[Any, dict[str, Any]]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": spec.name,
        "summary": spec.summary,
        "parameters": [*_path_parameters(spec.path), *_query_parameters(spec)],
        "responses": _responses(spec, named),
        "security": [] if spec.access == "open" else [{"key": []}, {}],
    }
    if spec.body is not None:
        content = {JSON: {"schema": named[spec.body]}}
        operation["requestBody"] = {"required": True, "content": content}
    elif spec.raw_body:
        operation["requestBody"] = {
            "required": True,
            "content": {kind: _raw_content(kind) for kind in spec.raw_body},
        }
    return operation


def _raw_content(kind: str) -> dict[str, Any]:
    if not kind.startswith("multipart/"):
        return {}
    file = {"type": "string", "contentMediaType": "application/octet-stream"}
    return {"schema": {"type": "object", "properties": {"file": file}, "required": ["file"]}}


def _path_parameters(path: str) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": {"type": "string", "minLength": 1},
        }
        for name in re.findall(r"{(\w+)", path)
    ]


def _query_parameters(spec: RouteSpec) -> list[dict[str, Any]]:
    return [
        {"name": p.name, "in": "query", "description": p.description, "schema": p.schema}
        for p in spec.query
    ]


def _responses(spec: RouteSpec, named: dict[Any, dict[str, Any]]) -> dict[str, Any]:
    error = {JSON: {"schema": named[DifyError if spec.name == "retrieval" else ErrorBody]}}
    responses: dict[str, Any] = {"200": _good(spec, named)}
    statuses = {*_COMMON, *spec.errors}
    if spec.access != "open":
        statuses |= {*_GUARDED}
    for status in sorted(statuses):
        responses[str(status)] = {"description": _phrase(status), "content": error}
    if spec.name == "readyz":
        responses["503"] = responses["200"] | {"description": _phrase(503)}
    return responses


def _good(spec: RouteSpec, named: dict[Any, dict[str, Any]]) -> dict[str, Any]:
    content: dict[str, Any] = {}
    if spec.reply is not None:
        content[JSON] = {"schema": named[spec.reply]}
    if spec.reply_text is not None:
        content[spec.reply_text] = {"schema": {"type": "string"}}
    if spec.streams:
        content["text/event-stream"] = {"schema": _event(named)}
    headers = {name: {"$ref": f"#/components/headers/{name}"} for name in _HEADERS}
    return {"description": spec.summary, "headers": headers, "content": content}


def _event(named: dict[Any, dict[str, Any]]) -> dict[str, Any]:
    """Each event of a stream; the last one's data is ``[DONE]`` when all went well."""
    # Not contentSchema: the last event's data is no JSON.
    data = {"type": "string", "x-json-schema": {"anyOf": [named[ChatChunk], named[StreamError]]}}
    return {"type": "object", "properties": {"data": data}, "required": ["data"]}


def _phrase(status: int) -> str:
    return HTTPStatus(status).phrase
