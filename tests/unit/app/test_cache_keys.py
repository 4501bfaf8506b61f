"""What keys are made of in a process beside the request."""

from __future__ import annotations

import msgspec
import pytest

from forebay.app.caching import Scheme
from forebay.app.settings import Settings
from forebay.cache.rules import AnswerRules
from forebay.cache.settings import AnswerRule, AnswerTierSettings, CacheSettings
from forebay.kernel.context import Principal, Priority
from forebay.kernel.stages import Message
from forebay.pipeline.messages import AnswerRequest
from forebay.policy.admission.settings import AdmissionSettings, PoolAdmission

ASKED = AnswerRequest("kb", (Message("user", "How long is the spillway?"),))
RULE = AnswerRule("all")


def keys(settings: Settings, *priorities: Priority) -> set[bytes]:
    rules = AnswerRules(settings.cache.answers)
    scheme = Scheme(settings, "store", "embedder", "template", lambda: rules)
    asking = (Principal(priority=priority) for priority in priorities)
    return {scheme.answer(who, ASKED, RULE) for who in asking}


@pytest.mark.parametrize("apart", [False, True])
def test_classes_share_answers_unless_they_have_engines_of_their_own(apart: bool) -> None:
    pools = {"large": PoolAdmission(priorities=("high",) if apart else ())}
    settings = msgspec.structs.replace(Settings(), admission=AdmissionSettings(pools=pools))
    assert len(keys(settings, "high", "low")) == (2 if apart else 1)


def test_a_stricter_bound_on_support_has_answers_of_its_own() -> None:
    found = set()
    for bound in (0.05, 0.2):
        cache = CacheSettings(answers=AnswerTierSettings(max_unsupported=bound))
        found |= keys(msgspec.structs.replace(Settings(), cache=cache), "normal")
    assert len(found) == 2
