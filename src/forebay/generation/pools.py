"""Engine pools: which takes a prompt, and what is under way at their replicas."""

from __future__ import annotations

from collections.abc import Sequence

from forebay.generation.connections import Connections, KeepAll, MakeSizing
from forebay.generation.http import Endpoint
from forebay.generation.settings import EngineSettings, PoolSettings
from forebay.kernel.errors import ConfigError, ContextTooLong

_QUIET_S = 60.0


class Replica:
    """One endpoint of a pool and what is under way there."""

    def __init__(self, base_url: str, connections: Connections) -> None:
        self.connections = connections
        self.url = base_url.rstrip("/") + "/chat/completions"
        self.outstanding = 0
        self.answered_at = float("-inf")
        self.failed_at = float("-inf")
        self._failure = ""

    def fail(self, why: str, now: float) -> None:
        """An attempt failed before its first token."""
        self._failure, self.failed_at = why, now

    @property
    def failure(self) -> str:
        """Why the last attempt failed; empty when something was answered since."""
        return self._failure if self.failed_at > self.answered_at else ""


class Pool:
    """The replicas of one pool; which of them takes a request is admission's to say."""

    def __init__(
        self, settings: PoolSettings, engine: EngineSettings, sizing: MakeSizing = KeepAll
    ) -> None:
        self.settings = settings
        self.replicas = tuple(
            Replica(url, Connections(engine, sizing(engine))) for url in settings.base_urls
        )
        self._told: dict[str, float] = {}

    def failed(self, replica: Replica, why: str, now: float) -> bool:
        """Note a replica's failure; whether it is news, which what fails on and on is not.

        Told again when the replica has answered meanwhile, once a minute at most.
        """
        told_at = self._told.get(why)
        replica.fail(why, now)
        if told_at is not None and (now - told_at < _QUIET_S or replica.answered_at < told_at):
            return False
        self._told[why] = now
        return True

    def connections(self, now: float) -> dict[str, float]:
        """Connections in use and worth keeping."""
        return {
            "connections": sum(one.connections.busy for one in self.replicas),
            "connections_kept": sum(one.connections.kept(now) for one in self.replicas),
        }

    def statistics(self) -> dict[str, int]:
        """Requests under way, and replicas."""
        return {
            "outstanding": sum(one.outstanding for one in self.replicas),
            "replicas": len(self.replicas),
        }


def open_pools(
    settings: Sequence[PoolSettings], engine: EngineSettings, sizing: MakeSizing = KeepAll
) -> tuple[Pool, ...]:
    """Build the pools; ``ConfigError`` for none, for a name given twice, for a bad address."""
    check_pools(settings, engine)
    return tuple(Pool(pool, engine, sizing) for pool in settings)


def check_pools(settings: Sequence[PoolSettings], engine: EngineSettings) -> None:
    """Raise the ``ConfigError`` of ``open_pools`` and open nothing."""
    if not settings:
        raise ConfigError(
            "generation.backend openai needs at least one [[generation.pools]].",
            param="generation.pools",
        )
    if engine.min_connections > engine.max_connections:
        raise ConfigError(
            "generation.engine.min_connections is more than max_connections.",
            param="generation.engine.min_connections",
        )
    names = [pool.name for pool in settings]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(
                f"generation.pools has the name {name} twice.", param="generation.pools"
            )
    for pool in settings:
        for url in pool.base_urls:
            if not url.startswith(("http://", "https://")):
                raise ConfigError(
                    f"generation.pools {pool.name}: a base URL must begin with http:// or https://.",
                    param="generation.pools",
                )
            try:
                Endpoint(url)
            except ValueError as error:
                raise ConfigError(
                    f"generation.pools {pool.name}: {url} is no URL.", param="generation.pools"
                ) from error


def pool_for(pools: Sequence[Pool], prompt_tokens: int) -> Pool:
    """Return the first pool whose bound the prompt keeps; ``ContextTooLong`` when none does."""
    for pool in pools:
        if prompt_tokens <= pool.settings.max_input_tokens:
            return pool
    largest = max(pool.settings.max_input_tokens for pool in pools)
    raise ContextTooLong(
        f"The prompt has {prompt_tokens} tokens, more than the {largest} any engine pool takes.",
        param="messages",
    )
