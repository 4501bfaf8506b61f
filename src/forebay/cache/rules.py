"""Which rule allows an answer to be kept, and whether one is good enough for that.

An answer that its passages do not support is never kept: it would be found again and believed
(F0.1).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from forebay.cache.canonical import canonical
from forebay.cache.keys import settings_digest
from forebay.cache.settings import AnswerRule, AnswerTierSettings


class Asked(msgspec.Struct, frozen=True):
    """What a rule looks at before anything is known of the answer."""

    kb: str
    tenant: str
    route: str
    question: str


class Made(msgspec.Struct, frozen=True):
    """What is known of an answer when it is complete.

    ``tags`` of each document it rests on; ``unsupported`` is the share of its statements that no
    passage holds.
    """

    finish_reason: str
    refused: bool
    unsure: bool
    degraded: bool
    cited: int
    invalid_citations: int
    unsupported: float
    tags: Sequence[Sequence[str]]
    took_s: float


class AnswerRules:
    """The rules in force, prepared for asking; ``match`` costs a microsecond.

    ``digest`` stands for all that they say.
    """

    def __init__(self, settings: AnswerTierSettings) -> None:
        self.max_unsupported = settings.max_unsupported
        self.digest = settings_digest(
            AnswerTierSettings(settings.rules, max_unsupported=settings.max_unsupported)
        )
        self._tests = [(_test_of(rule), rule) for rule in settings.rules]

    def __len__(self) -> int:
        return len(self._tests)

    def match(self, asked: Asked) -> AnswerRule | None:
        """The first rule that allows to keep answers to this."""
        for fits, rule in self._tests:
            if fits(asked):
                return rule
        return None

    def refusal(self, rule: AnswerRule, made: Made) -> str | None:
        """Why an answer may not be kept, in a word; None: it may."""
        if made.finish_reason != "stop":
            return "incomplete"
        if made.degraded:
            return "degraded"
        if made.refused:
            return "refused"
        if made.unsure:
            return "unsure"
        if not made.cited or made.invalid_citations or made.unsupported > self.max_unsupported:
            return "unsupported"
        if rule.tags and not all(set(tags) & set(rule.tags) for tags in made.tags):
            return "other_tags"
        if made.took_s * 1000 < rule.min_ms:
            return "quick"
        return None


def _test_of(rule: AnswerRule) -> Callable[[Asked], bool]:
    knowledge, tenants, routes = map(frozenset, (rule.knowledge, rule.tenants, rule.routes))
    questions = frozenset(map(canonical, rule.questions))

    def fits(asked: Asked) -> bool:
        return (
            (not knowledge or asked.kb in knowledge)
            and (not tenants or asked.tenant in tenants)
            and (not routes or asked.route in routes)
            and (not questions or canonical(asked.question) in questions)
        )

    return fits
