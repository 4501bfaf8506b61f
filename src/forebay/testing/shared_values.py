"""A shared store in memory, for tests of what uses one."""

from __future__ import annotations

from forebay.kernel.clock import Clock
from forebay.kernel.errors import Unavailable

RELEASED_S = 0.1


class FakeSharedValues:
    """See ``forebay.kernel.caching.SharedValues``; while ``down`` it answers nothing."""

    def __init__(self, clock: Clock) -> None:
        self.down = False
        self.values: dict[bytes, bytes] = {}
        """What lies in the store; a test may poison it."""
        self._ends_at: dict[bytes, float] = {}
        self._claims: dict[bytes, tuple[str, float]] = {}
        self._clock = clock

    async def get(self, key: bytes) -> bytes | None:
        """The value, unless its life is over."""
        if self.down:
            return None
        if self._ends_at.get(key, float("inf")) <= self._clock.now():
            self.values.pop(key, None)
        return self.values.get(key)

    async def put(self, key: bytes, value: bytes, life_s: float) -> None:
        """Keep a value for so long."""
        if self.down or life_s <= 0:
            return
        self.values[key] = value
        self._ends_at[key] = self._clock.now() + life_s

    async def claim(self, key: bytes, holder: str, life_s: float) -> bool:
        """Whether ``holder`` has it now."""
        if self.down:
            return True
        held_by, ends_at = self._claims.get(key, (holder, 0.0))
        if held_by != holder and ends_at > self._clock.now():
            return False
        self._claims[key] = (holder, self._clock.now() + life_s)
        return True

    async def release(self, key: bytes, holder: str) -> None:
        """End a claim soon, if it is this holder's."""
        if not self.down and self._claims.get(key, ("", 0.0))[0] == holder:
            self._claims[key] = (holder, self._clock.now() + RELEASED_S)

    async def clear(self) -> None:
        """Forget every value."""
        if self.down:
            raise Unavailable("the shared store does not answer.")
        self.values.clear()
