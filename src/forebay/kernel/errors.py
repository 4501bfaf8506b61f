"""The one error tree; adapters translate foreign errors into it once, with ``from``.

The gateway alone turns these into HTTP statuses (``forebay.gateway.errors``).
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus

STRANGE_ANSWERS = (
    OSError,
    TimeoutError,
    asyncio.IncompleteReadError,
    # Something else listens there, or a proxy spoils what is answered.
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
)
"""What a client library raises, beside errors of its own, where a server is gone or answers what it
never would.
"""


class ForebayError(Exception):
    """Root of every error Forebay raises on purpose.

    ``message`` is one sentence a user may read: no path, no secret, no stack. ``param`` names
    the request field or setting at fault; ``code`` is the stable machine word.
    """

    code = "internal_error"

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        if code is not None:
            self.code = code


class InvalidRequest(ForebayError):
    """The caller sent something that can never work as it stands."""

    code = "invalid_request"


class PayloadTooLarge(InvalidRequest):
    """The body or document is over the configured byte bound."""

    code = "payload_too_large"


class ContextTooLong(InvalidRequest):
    """The input can never fit the model's window (400, never 429)."""

    code = "context_length_exceeded"


class UnsupportedDocument(InvalidRequest):
    """The bytes are not a document that can be indexed; the message says what to do."""

    code = "unsupported_document"


class Unauthenticated(ForebayError):
    """No key, or a key nobody granted."""

    code = "invalid_api_key"


class PermissionDenied(ForebayError):
    """A known key asked for something its grant does not include."""

    code = "permission_denied"


class NotFound(ForebayError):
    """The thing does not exist, or the caller may not know that it does."""

    code = "not_found"


class ModelNotFound(NotFound):
    """Unknown ``forebay/…`` model, or one this tenant may not read: indistinguishable."""

    code = "model_not_found"


class Gone(NotFound):
    """The thing existed and was removed."""

    code = "gone"


class KeyRetired(Gone):
    """A chunk's key whose text is gone; what took its place, or where to look for it."""

    code = "key_retired"

    def __init__(
        self,
        message: str,
        *,
        kb: str = "",
        document_id: str | None = None,
        successor: str | None = None,
        code: str | None = None,
    ) -> None:
        super().__init__(message, param="key", code=code)
        self.kb = kb
        self.document_id = document_id
        self.successor = successor


class Conflict(ForebayError):
    """The state of the store forbids this now (another writer, another embedder)."""

    code = "conflict"


class RateLimited(ForebayError):
    """A tenant's own limit (429); ``retry_after_s`` is honest."""

    code = "rate_limit_exceeded"

    def __init__(self, message: str, *, retry_after_s: float, code: str | None = None) -> None:
        super().__init__(message, code=code)
        self.retry_after_s = retry_after_s


class Overloaded(ForebayError):
    """The system's limit (503); ``retry_after_s`` is honest."""

    code = "overloaded"

    def __init__(
        self, message: str, *, retry_after_s: float = 1.0, code: str | None = None
    ) -> None:
        super().__init__(message, code=code)
        self.retry_after_s = retry_after_s


class Unavailable(Overloaded):
    """A part the request needs is not there now (starting, draining, disk full, backend gone)."""

    code = "unavailable"


class AllInUse(Unavailable):
    """Every connection to a part is in use: nothing was sent, and nothing is wrong with it."""


class PartFailed(Unavailable):
    """A part that an answer needs does not serve; whoever knows a way without it takes that.

    ``part`` is its name, ``reason`` a short stable word. ``late_s``: it had so many seconds and was
    not done (0: it failed). ``at_fault`` False: nothing is wrong with the part itself (the client
    is in a hurry, the knowledge base has no vectors yet). ``busy``: this process has so much to do
    that the part did not get its turn.
    """

    code = "part_failed"

    def __init__(
        self,
        part: str,
        reason: str,
        *,
        late_s: float = 0.0,
        at_fault: bool = True,
        busy: bool = False,
    ) -> None:
        super().__init__("A part that this needs does not serve at present; try again shortly.")
        self.part = part
        self.reason = reason
        self.late_s = late_s
        self.at_fault = at_fault
        self.busy = busy


class DeadlineExceeded(ForebayError):
    """The request's deadline passed before the work was done."""

    code = "deadline_exceeded"


class EngineError(ForebayError):
    """A generation, embedding or rerank backend failed or answered nonsense."""

    code = "engine_error"


class EngineRefused(EngineError):
    """The backend refused the request itself (its 4xx); ``status`` is what it answered."""

    code = "engine_refused"

    def __init__(self, message: str, *, status: int, code: str | None = None) -> None:
        super().__init__(message, code=code)
        self.status = status

    @property
    def set_up_wrongly(self) -> bool:
        """Whether its key, address or model is wrong: the next request fares no better."""
        return self.status in {401, 403, 404}


class ReembedNeeded(Conflict):
    """The index was built by another embedder; search goes lexical until re-embedding ends."""

    code = "reembed_needed"


class StoreError(ForebayError):
    """The store could not do what was asked; nothing was half-written."""

    code = "store_error"


class StoreBusy(StoreError):
    """Another process is the writer of this folder."""

    code = "store_busy"


class StoreFull(StoreError):
    """The disk refused the commit; the last commit stands and serving goes on."""

    code = "store_full"


class StoreTooNew(StoreError):
    """The folder was written by a newer Forebay."""

    code = "store_too_new"


class ConfigError(ForebayError):
    """A setting is unknown, mistyped or contradictory; the message names key and remedy."""

    code = "config_error"


def first_error(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first error of a group: callers tell errors apart by class, not by nesting."""
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


_LATER = frozenset({408, 425, 429})


def http_words(status: int) -> str:
    """A status as it is told: its number, and its reason where it has a known one."""
    try:
        return f"HTTP {status} {HTTPStatus(status).phrase}"
    except ValueError:
        return f"HTTP {status}"


def check_endpoint(name: str, status: int, retry_after: str) -> None:
    """Raise what an endpoint's HTTP status means, told under its ``name``; 200 is fine.

    ``retry_after`` is its header, empty without one.
    """
    if status == 200:
        return
    if status in _LATER:
        wait_s = float(retry_after) if retry_after.isdecimal() else 1.0
        raise Overloaded(f"the {name} endpoint is overloaded", retry_after_s=wait_s)
    if 400 <= status < 500:
        raise EngineRefused(
            f"the {name} endpoint refused the request ({http_words(status)})", status=status
        )
    raise EngineError(f"the {name} endpoint failed (HTTP {status})")
