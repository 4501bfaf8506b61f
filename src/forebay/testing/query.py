"""A reader of questions that is told beforehand how each is to be read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from forebay.kernel.documents import Hit, Vectors
from forebay.kernel.errors import InvalidRequest
from forebay.kernel.stages import Likeness, Message, Sense, Understood


class ScriptedReader:
    """Reads the questions of its script as that says, and all others as English facts.

    ``refusals``: what to say, after the search, to questions that are read so; ``unlike``: hits no
    more alike than this percentile are senses of their own. ``vectors`` keeps what was judged by.
    """

    def __init__(
        self,
        script: Mapping[str, Understood] | None = None,
        *,
        refusals: Mapping[str, str] | None = None,
        unlike: float = 50.0,
        each: bool = False,
    ) -> None:
        self.script = dict(script or {})
        self.refusals = dict(refusals or {})
        self.unlike = unlike
        self.each = each
        self.vectors: list[Vectors | None] = []

    def read(self, messages: Sequence[Message]) -> Understood:
        """See ``QueryReader``."""
        if not messages or messages[-1].role != "user":
            raise InvalidRequest("the last message must be the user's.", param="messages")
        asked = messages[-1].content
        known = self.script.get(asked)
        return Understood(asked, "en", "fact") if known is None else known

    def judge(
        self, understood: Understood, vector: Vectors | None, hits: Sequence[Hit]
    ) -> Understood:
        """See ``QueryReader``."""
        self.vectors.append(vector)
        refusal = self.refusals.get(understood.question)
        return understood if refusal is None else msgspec.structs.replace(understood, reply=refusal)

    def senses(self, understood: Understood, hits: Sequence[Hit], likeness: Likeness) -> Understood:
        """See ``QueryReader``."""
        apart = [
            at
            for at in range(1, min(len(hits), len(likeness.percentiles)))
            if likeness.percentiles[0][at] <= self.unlike
        ]
        if not apart:
            return understood
        alike = tuple(at for at in range(len(hits)) if at not in apart)
        senses = (Sense("the first", alike), Sense("the second", tuple(apart)))
        return msgspec.structs.replace(understood, senses=senses, each=self.each)
