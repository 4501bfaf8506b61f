"""What a store folder's answers are made by, and what of it is told when it is another."""

from __future__ import annotations

from pathlib import Path

import pytest

from forebay.app.caching import Tiers
from forebay.app.made_by import FILE, MadeBy, changed, made_by
from forebay.cache.keys import PromptSetup
from forebay.cache.memory import MemorySettings, MemoryTier
from forebay.cache.settings import AnswerRule, AnswerTierSettings, CacheSettings
from forebay.kernel.clock import SystemClock

NOW = MadeBy("rules", "template", "model")


def test_what_is_another_is_told_once(tmp_path: Path) -> None:
    assert changed(tmp_path, NOW) == ()
    assert changed(tmp_path, NOW) == ()
    assert changed(tmp_path, MadeBy("others", "template", "model 2")) == ("rules", "model")
    assert changed(tmp_path, MadeBy("others", "template", "model 2")) == ()
    assert changed(tmp_path, MadeBy("others", "t", "model 2")) == ("template",)


@pytest.mark.parametrize("data", [b"", b"{}", b"\xff", b'{"rules": 3}'])
def test_a_file_that_says_nothing_is_written_anew(tmp_path: Path, data: bytes) -> None:
    (tmp_path / FILE).write_bytes(data)
    assert changed(tmp_path, NOW) == ()
    assert changed(tmp_path, MadeBy("rules", "template", "m")) == ("model",)


def test_a_folder_that_cannot_be_written_costs_no_service(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert changed(tmp_path / "none", NOW) == ()
    assert FILE in caplog.text


def tiers_by(rules: tuple[AnswerRule, ...], prompt: PromptSetup | None) -> Tiers:
    tiers = Tiers({}, {}, made_by=prompt)
    tiers.reload(CacheSettings(answers=AnswerTierSettings(rules)))
    return tiers


def test_rules_template_model_and_release_count() -> None:
    rule, prompt = AnswerRule("faq"), PromptSetup("t", "m", "1")
    assert made_by(tiers_by((rule,), None)) is None
    usual = made_by(tiers_by((rule,), prompt))
    others = [
        tiers_by((AnswerRule("faq", life_s=1.0),), prompt),
        tiers_by((), prompt),
        tiers_by((rule,), PromptSetup("t2", "m", "1")),
        tiers_by((rule,), PromptSetup("t", "m2", "1")),
        tiers_by((rule,), PromptSetup("t", "m", "2")),
    ]
    assert usual == made_by(tiers_by((AnswerRule("faq"),), prompt))
    assert len({usual, *map(made_by, others)}) == 6


def test_other_rules_end_answers_and_the_same_do_not() -> None:
    memory: MemoryTier[bytes] = MemoryTier(MemorySettings(1 << 20), SystemClock())
    tiers = Tiers({"answer": memory}, {})
    settings = CacheSettings(answers=AnswerTierSettings((AnswerRule("faq"),)))
    tiers.reload(settings)
    memory.put(b"k", b"v", 60.0)
    tiers.reload(settings)
    assert memory.peek(b"k") is not None
    tiers.reload(CacheSettings(answers=AnswerTierSettings((AnswerRule("faq", life_s=9.0),))))
    assert memory.peek(b"k") is None
