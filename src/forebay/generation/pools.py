"""Engine pools: which pool takes a prompt, which replica takes the next request."""

from __future__ import annotations

from collections.abc import Sequence

from forebay.generation.connections import Connections, KeepAll, MakeSizing
from forebay.generation.settings import EngineSettings, PoolSettings
from forebay.kernel.errors import ConfigError, ContextTooLong

_REST_S = 1.0
_REST_MAX_S = 30.0


class Replica:
    """One endpoint of a pool and what is under way there.

    After failures in a row it rests 1, 2, 4 … 30 s: it is tried then only after all others.
    """

    def __init__(self, base_url: str, connections: Connections) -> None:
        self.connections = connections
        self.url = base_url.rstrip("/") + "/chat/completions"
        self.outstanding = 0
        self.failures = 0
        self.answered_at = float("-inf")
        self._rests_until = float("-inf")

    def resting(self, now: float) -> bool:
        """Whether it failed so recently that others go first."""
        return now < self._rests_until

    def failed(self, now: float) -> None:
        """Note a failure before the first token."""
        self._rests_until = now + min(_REST_MAX_S, _REST_S * 2 ** min(self.failures, 10))
        self.failures += 1

    def succeeded(self, now: float) -> None:
        """Note a token."""
        self.answered_at = now
        self.failures = 0
        self._rests_until = float("-inf")


class Pool:
    """The replicas of one pool; the least busy goes first, equals take turns, resting ones last."""

    def __init__(
        self, settings: PoolSettings, engine: EngineSettings, sizing: MakeSizing = KeepAll
    ) -> None:
        self.settings = settings
        self.replicas = tuple(
            Replica(url, Connections(engine, sizing(engine))) for url in settings.base_urls
        )
        self._turn = 0

    def order(self, now: float) -> list[Replica]:
        """Return the replicas in the order in which to try them now."""
        count = len(self.replicas)
        start = self._turn
        self._turn = (start + 1) % count
        turned = [self.replicas[(start + step) % count] for step in range(count)]
        return sorted(turned, key=lambda one: (one.resting(now), one.outstanding))

    def connections(self, now: float) -> dict[str, float]:
        """Connections in use and worth keeping."""
        return {
            "connections": sum(one.connections.busy for one in self.replicas),
            "connections_kept": sum(one.connections.kept(now) for one in self.replicas),
        }

    def statistics(self) -> dict[str, int]:
        """Requests under way and replicas that failed last."""
        return {
            "outstanding": sum(one.outstanding for one in self.replicas),
            "replicas": len(self.replicas),
            "failing": sum(one.failures > 0 for one in self.replicas),
        }


def open_pools(
    settings: Sequence[PoolSettings], engine: EngineSettings, sizing: MakeSizing = KeepAll
) -> tuple[Pool, ...]:
    """Build the pools; ``ConfigError`` for none, for a name given twice, for a bad address."""
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
    return tuple(Pool(pool, engine, sizing) for pool in settings)


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
