"""The OpenAI error body, in responses and in streams."""

from __future__ import annotations

import msgspec


class ErrorDetail(msgspec.Struct, frozen=True):
    """What went wrong: a sentence for people, a type and a code for programs."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(msgspec.Struct, frozen=True):
    """The body of every response that is an error."""

    error: ErrorDetail


class DifyError(msgspec.Struct, frozen=True):
    """The error body of the external knowledge interface."""

    error_code: int
    error_msg: str
