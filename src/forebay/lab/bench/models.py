"""Asks a target which models it serves."""

from __future__ import annotations

import os
import socket

import aiohttp
import msgspec

from forebay.kernel.errors import ConfigError, Unavailable
from forebay.lab.bench.address import Address, tls_context
from forebay.lab.bench.options import Target

_WITHIN_S = 10.0
_MAX_BYTES = 4 * 1024 * 1024


class _Model(msgspec.Struct):
    id: str


class _Models(msgspec.Struct):
    data: list[_Model]


async def first_model(target: Target, address: Address) -> str:
    """The first of ``/v1/models``; ``Unavailable`` or ``ConfigError`` say what to do instead."""
    headers = dict(target.headers)
    if target.api_key:
        headers["authorization"] = f"Bearer {target.api_key}"
    context = tls_context(address, target.verify_tls)
    timeout = aiohttp.ClientTimeout(total=_WITHIN_S)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(f"{address.url}/models", headers=headers, ssl=context or True) as response,
        ):
            status, body = response.status, await response.content.read(_MAX_BYTES)
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise Unavailable(
            f"nothing answers at {address.url} ({_reason(error)}); "
            "start the target or correct its URL"
        ) from error
    if status in (401, 403):
        raise ConfigError(f"{address.url}/models answers {status}: give a key it accepts")
    try:
        models = msgspec.json.decode(body, type=_Models).data if status == 200 else []
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        models = []
    if not models:
        raise ConfigError(
            f"{address.url}/models names no model (status {status}); name one by the model option"
        )
    return models[0].id


def _reason(error: Exception) -> str:
    """Why there was no answer, in the operating system's words where it has some."""
    cause = getattr(error, "os_error", None)
    if isinstance(cause, ConnectionError) and cause.errno:
        return os.strerror(cause.errno)
    if isinstance(cause, socket.gaierror) and cause.strerror:
        return cause.strerror
    return str(error) or type(error).__name__
