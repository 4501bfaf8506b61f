"""Room for connections: each is a file descriptor, and the system's soft limit is often 1,024."""

from __future__ import annotations

import resource

from forebay.kernel.errors import ConfigError

_SPARE = 64
"""For everything that is no connection."""


def make_room(connections: int) -> None:
    """Raise this process's soft limit so far; ``ConfigError`` when the hard limit is lower."""
    wanted = connections + _SPARE
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    if hard != resource.RLIM_INFINITY and hard < wanted:
        raise ConfigError(
            f"{connections} connections need {wanted} open files, but the system allows {hard}; "
            "lower the bound of connections or raise the limit (ulimit -n)"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
