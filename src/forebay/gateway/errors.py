"""The one table from the kernel's error tree to HTTP, and the bodies made of it."""

from __future__ import annotations

import math
from urllib.parse import quote

import msgspec

from forebay.kernel.errors import (
    ConfigError,
    Conflict,
    ContextTooLong,
    DeadlineExceeded,
    EngineError,
    EngineRefused,
    ForebayError,
    Gone,
    InvalidRequest,
    KeyRetired,
    NotFound,
    Overloaded,
    PayloadTooLarge,
    PermissionDenied,
    RateLimited,
    StoreBusy,
    StoreError,
    StoreFull,
    Unauthenticated,
    UnsupportedDocument,
)
from forebay.telemetry.report import RequestOutcome
from forebay.wire.encoding import encode_json
from forebay.wire.errors import ErrorBody, ErrorDetail


class ClientGone(ForebayError):
    """The client closed the connection; nobody reads an answer any more."""

    code = "client_closed_request"


class MethodNotAllowed(InvalidRequest):
    """The path exists, the method does not."""

    code = "method_not_allowed"

    def __init__(self, allow: str) -> None:
        super().__init__(f"this path takes {allow}.")
        self.allow = allow


class SlowRequest(InvalidRequest):
    """The body did not arrive in time."""

    code = "request_timeout"


class EncodedBody(InvalidRequest):
    """The body is compressed, and bodies are taken as they are."""

    code = "unsupported_content_encoding"


class ShuttingDown(Overloaded):
    """This process is draining; another one, or the next one, can answer."""

    code = "shutting_down"


class Rule(msgspec.Struct, frozen=True):
    """How one class of errors looks from outside."""

    status: int
    type: str
    outcome: RequestOutcome


RULES: dict[type[BaseException], Rule] = {
    ClientGone: Rule(499, "client_closed_request", "cancelled"),
    MethodNotAllowed: Rule(405, "invalid_request_error", "invalid"),
    SlowRequest: Rule(408, "invalid_request_error", "invalid"),
    EncodedBody: Rule(415, "invalid_request_error", "invalid"),
    InvalidRequest: Rule(400, "invalid_request_error", "invalid"),
    PayloadTooLarge: Rule(413, "invalid_request_error", "invalid"),
    ContextTooLong: Rule(400, "invalid_request_error", "invalid"),
    UnsupportedDocument: Rule(422, "invalid_request_error", "invalid"),
    Unauthenticated: Rule(401, "authentication_error", "denied"),
    PermissionDenied: Rule(403, "permission_error", "denied"),
    NotFound: Rule(404, "not_found_error", "not_found"),
    Gone: Rule(410, "not_found_error", "not_found"),
    Conflict: Rule(409, "conflict_error", "invalid"),
    RateLimited: Rule(429, "rate_limit_error", "limited"),
    Overloaded: Rule(503, "overloaded_error", "shed"),
    DeadlineExceeded: Rule(504, "timeout", "timeout"),
    EngineError: Rule(502, "engine_error", "error"),
    StoreError: Rule(500, "server_error", "error"),
    StoreBusy: Rule(503, "overloaded_error", "shed"),
    StoreFull: Rule(507, "server_error", "error"),
    ConfigError: Rule(500, "server_error", "error"),
    ForebayError: Rule(500, "server_error", "error"),
    TimeoutError: Rule(504, "timeout", "timeout"),
}
UNEXPECTED = Rule(500, "server_error", "error")
_ENGINE_SAYS_INVALID = Rule(400, "invalid_request_error", "invalid")
_ENGINE_SAYS_BUSY = Rule(503, "overloaded_error", "shed")
_INVALID_AT_ENGINE = frozenset({400, 413, 422})


class Failure(msgspec.Struct, frozen=True):
    """An error as it leaves the process."""

    status: int
    outcome: RequestOutcome
    detail: ErrorDetail
    headers: tuple[tuple[str, str], ...] = ()
    unexpected: bool = False


def failure(error: BaseException, request_id: str) -> Failure:
    """Translate any exception; what is not in the tree becomes a constant sentence."""
    if isinstance(error, TimeoutError):
        error = DeadlineExceeded("the request's deadline passed before the work was done.")
    if not isinstance(error, ForebayError) or isinstance(error, ConfigError):
        detail = ErrorDetail(
            f"something failed inside the server; its log names request {request_id}.",
            UNEXPECTED.type,
            None,
            "internal_error",
        )
        return Failure(UNEXPECTED.status, UNEXPECTED.outcome, detail, unexpected=True)
    rule = rule_for(error)
    detail = ErrorDetail(error.message, rule.type, error.param, error.code)
    return Failure(rule.status, rule.outcome, detail, _headers(error))


def rule_for(error: ForebayError) -> Rule:
    """The nearest class in the table; a backend's refusal is judged by its own status."""
    if isinstance(error, EngineRefused):
        if error.status in _INVALID_AT_ENGINE:
            return _ENGINE_SAYS_INVALID
        return _ENGINE_SAYS_BUSY if error.status == 429 else RULES[EngineError]
    for kind in type(error).__mro__:
        rule = RULES.get(kind)
        if rule is not None:
            return rule
    return UNEXPECTED


def openai_error(failed: Failure) -> bytes:
    """The usual body of an error response."""
    return error_json(failed.detail)


def error_json(detail: ErrorDetail) -> bytes:
    """The OpenAI error body."""
    return encode_json(ErrorBody(detail))


def _headers(error: ForebayError) -> tuple[tuple[str, str], ...]:
    if isinstance(error, RateLimited | Overloaded):
        retry = ("retry-after", str(max(1, math.ceil(error.retry_after_s))))
        return (retry, ("connection", "close")) if isinstance(error, ShuttingDown) else (retry,)
    if isinstance(error, KeyRetired):
        return (("link", _where(error)),)
    if isinstance(error, StoreBusy) or (isinstance(error, EngineRefused) and error.status == 429):
        return (("retry-after", "1"),)
    if isinstance(error, Unauthenticated):
        return (("www-authenticate", "Bearer"),)
    if isinstance(error, MethodNotAllowed):
        return (("allow", error.allow),)
    if isinstance(error, EncodedBody):
        return (("accept-encoding", "identity"),)
    if isinstance(error, SlowRequest):
        return (("connection", "close"),)
    return ()


def successor_link(kb: str, key: str) -> str:
    """Where the chunk is that took another's place (RFC 5829)."""
    return f'</v1/kb/{quote(kb)}/chunks/{key}>; rel="successor-version"'


def _where(error: KeyRetired) -> str:
    if error.successor is not None:
        return successor_link(error.kb, error.successor)
    documents = f"/v1/kb/{quote(error.kb)}/documents"
    if error.document_id is not None:
        return f'<{documents}/{quote(error.document_id)}>; rel="latest-version"'
    return f'<{documents}>; rel="collection"'
