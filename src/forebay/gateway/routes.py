"""The table of routes: path, method, who may, what goes in and out."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any, Literal

import msgspec
from starlette.routing import compile_path

from forebay.gateway.errors import Failure, MethodNotAllowed, openai_error
from forebay.gateway.exchange import Exchange
from forebay.kernel.errors import NotFound

Access = Literal["open", "read", "change", "figures", "operate"]
Effort = Literal["answer", "search", "change"]
Handler = Callable[[Exchange], Awaitable[None]]


class Parameter(msgspec.Struct, frozen=True):
    """A query parameter as the API description shows it."""

    name: str
    description: str
    schema: dict[str, Any]


class RouteSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One operation.

    ``access``: open to all; read needs a key where there are keys; change needs an admin key;
    figures needs an admin key from afar; operate needs an operator's key. ``body`` is the JSON
    type, or the media types of a raw body. ``errors`` are statuses beyond those that every
    operation of its access has.
    """

    method: Literal["GET", "POST", "PUT", "DELETE"]
    path: str
    name: str
    summary: str
    handler: Handler
    access: Access = "read"
    effort: Effort = "search"
    body: type | None = None
    raw_body: tuple[str, ...] = ()
    reply: type | None = None
    reply_text: str | None = None
    streams: bool = False
    query: tuple[Parameter, ...] = ()
    errors: tuple[int, ...] = ()
    render_error: Callable[[Failure], bytes] = openai_error


class RouteTable:
    """Finds the operation for a method and path."""

    def __init__(self, specs: tuple[RouteSpec, ...]) -> None:
        self.specs = specs
        self._fixed: dict[str, dict[str, RouteSpec]] = {}
        self._patterns: dict[str, tuple[Any, dict[str, RouteSpec]]] = {}
        for spec in specs:
            if "{" not in spec.path:
                self._fixed.setdefault(spec.path, {})[spec.method] = spec
                continue
            # An id may hold anything that a path can be decoded to; its own check judges it.
            pattern = re.compile(compile_path(spec.path)[0].pattern, re.DOTALL)
            self._patterns.setdefault(spec.path, (pattern, {}))[1][spec.method] = spec

    def find(self, method: str, path: str) -> tuple[RouteSpec, dict[str, str]]:
        """Return the operation and the path's values; ``NotFound`` or ``MethodNotAllowed``."""
        methods, values = self._methods(path)
        spec = methods.get("GET" if method == "HEAD" else method)
        if spec is None:
            allowed = [*methods, "HEAD"] if "GET" in methods else list(methods)
            raise MethodNotAllowed(", ".join(allowed))
        return spec, values

    def _methods(self, path: str) -> tuple[dict[str, RouteSpec], dict[str, str]]:
        methods = self._fixed.get(path)
        if methods is not None:
            return methods, {}
        for pattern, candidates in self._patterns.values():
            match = pattern.fullmatch(path)
            if match is not None:
                return candidates, match.groupdict()
        raise NotFound("there is nothing at this path; GET /openapi.json lists what there is.")
