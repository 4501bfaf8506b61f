"""Answers that were given from the tier, for those who ask the very same again.

Whoever knows that two requests are equal in every byte that counts may skip what follows from
those bytes (who asks, what, under which rule and key), and must still learn, every time, whether
the answer may be served now, and pay for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from forebay.cache.rules import AnswerRules
from forebay.cache.versioned import Entry, VersionedTier
from forebay.kernel.caching import ServedVersions
from forebay.kernel.context import NO_SCENE, RequestContext, Scene
from forebay.pipeline.messages import (
    AnswerDelta,
    AnswerEnd,
    AnswerRequest,
    StoredAnswer,
    Usage,
)

ChargeAtOnce = Callable[[RequestContext, int], bool]
"""Charge so many tokens without waiting for anybody; False: that cannot be done, or is refused."""


class Recollection(Protocol):
    """A kept answer, for requests that are equal to the one it was given to."""

    def again(self, ctx: RequestContext) -> bool:
        """Charge for it and note in ``ctx`` what ``Answering.answer`` would; False: ask in full.

        Nothing is charged, counted or noted then.
        """
        ...

    def told(self) -> tuple[AnswerDelta, AnswerEnd]:
        """The answer's events, the same every time."""
        ...


Recollecting = Callable[[RequestContext, AnswerRequest, int], Recollection | None]
"""What to remember of an answer that ``ctx`` was just given for so many tokens; None: nothing."""


class KeptAnswer(msgspec.Struct, frozen=True):
    """``Recollection`` of one entry; ``data`` are its bytes in the tier, ``tokens`` its price."""

    tier: VersionedTier[StoredAnswer]
    serving: ServedVersions
    rules: AnswerRules
    rules_now: Callable[[], AnswerRules]
    charge: ChargeAtOnce
    key: bytes
    data: bytes
    entry: Entry[StoredAnswer]
    tokens: int
    scene: Scene = NO_SCENE

    def again(self, ctx: RequestContext) -> bool:
        """See ``Recollection``."""
        if self.rules_now() is not self.rules:
            return False
        served = self.serving.current(self.entry.kb)
        if served is None or not self.tier.still(self.key, self.data, self.entry, served):
            return False
        ctx.scene = self.scene
        if not self.charge(ctx, self.tokens):
            return False
        self.tier.took(self.key)
        end = self.entry.value.end
        ctx.cache["answer"] = "hit"
        ctx.rung, ctx.kb_version = end.rung, end.kb_version
        ctx.served = served
        if self.scene.name:
            ctx.labels["scene"] = self.scene.name
        return True

    def told(self) -> tuple[AnswerDelta, AnswerEnd]:
        """See ``Recollection``."""
        stored = self.entry.value
        end = msgspec.structs.replace(stored.end, usage=Usage(self.tokens, 0))
        return AnswerDelta(stored.text), end
