"""How every Redis client of this package connects, and what a wrong address is told."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from forebay.kernel.errors import STRANGE_ANSWERS, ConfigError

CONNECT_S = 1.0
OUTAGES = (RedisError, *STRANGE_ANSWERS)
"""What is raised where a Redis is gone, refuses or answers what it never would."""


def client_options() -> dict[str, Any]:
    """What ``from_url`` is given: a bounded connect, no retries, and waits left to the caller.

    The client's own bound on a call goes through asyncio.wait_for, which loses a cancellation that
    comes with the result (before Python 3.12).
    """
    return {
        "socket_connect_timeout": CONNECT_S,
        "socket_timeout": None,
        "retry": Retry(NoBackoff(), 0),
    }


@contextmanager
def address_checked() -> Iterator[None]:
    """Raise ``ConfigError`` for an address that ``from_url`` refuses."""
    try:
        yield
    except ValueError as error:
        raise ConfigError(
            "coordination.redis_url must begin with redis://, rediss:// or unix://; port and "
            "database are numbers.",
            param="coordination.redis_url",
        ) from error
