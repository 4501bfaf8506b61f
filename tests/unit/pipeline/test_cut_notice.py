"""What a cut answer says of itself, in which language, and where it stays silent."""

from __future__ import annotations

from typing import Any

import pytest

from forebay.kernel.stages import GenerationRequest, Message, Sampling
from forebay.pipeline.cut_notice import NOTICES, cut_notice


def _prompt(language: str = "en", response_format: Any = None) -> GenerationRequest:
    return GenerationRequest(
        question="?",
        language=language,
        messages=(Message("user", "?"),),
        passages=(),
        sampling=Sampling(response_format=response_format),
        max_output_tokens=10,
        prompt_tokens=1,
    )


@pytest.mark.parametrize(
    ("text", "asked", "spoken"),
    [
        ("The gate opens at 3 m [1]. It is then", "zh", "en"),
        ("闸门在三米时开启 [1]，随后", "en", "zh"),
        ("閘門在水位三米時開啟 [1]，隨後會", "en", "zh-Hant"),
        ("闸门 gate 3 在 rack 7", "zh", "zh"),
        ("闸门 gate 3 在 rack 7", "en", "en"),
        ("ゲートは水位が三メートルのときに", "zh", "en"),
        ("Die Schleuse öffnet bei drei Metern und", "en", "en"),
        ("", "zh-Hant", "zh-Hant"),
        ("1. 3\n2. 4", "zh", "zh"),
    ],
)
def test_it_is_told_in_the_language_of_the_answer(text: str, asked: str, spoken: str) -> None:
    assert cut_notice(text, _prompt(asked)).endswith(NOTICES[spoken])


@pytest.mark.parametrize(
    ("text", "begin"),
    [
        ("It opens at", "…\n\n("),
        ("It opens at 3 m.", "\n\n("),
        ("在三米时开启。", "\n\n（"),
        ("在三米时", "…\n\n（"),
        ("It opens at 3 m [1]", "\n\n("),
        ("", "("),
        ("Run this:\n```sh\nopen gate", "\n```\n\n("),
        ("Run this:\n~~~~\nopen gate\n", "~~~~\n\n("),
        ("Run this:\n```sh\nopen\n```\nThen", "…\n\n("),
    ],
)
def test_it_is_a_paragraph_of_its_own_behind_what_was_cut(text: str, begin: str) -> None:
    assert cut_notice(text, _prompt()).startswith(begin)


@pytest.mark.parametrize(
    "text",
    [
        '{"gates": [1, 2',
        '[{"gate": 1}, {',
        "<table><tr><td>1",
        "<?xml version='1.0'?><gates>",
        "```python\ndef open_gate(",
        "```json\n{}\n```\n\n```json\n{",
        "def open_gate(level):\n    return level > 3",
        "import os\nfrom re import match\n\nclass Gate:",
        "const gate = 3;\nlet level = 4;\nopen(gate);",
    ],
)
def test_nothing_is_written_into_data_and_code(text: str) -> None:
    assert cut_notice(text, _prompt()) == ""


@pytest.mark.parametrize("kind", ["json_object", "json_schema", "structural_tag"])
def test_a_form_that_was_asked_for_is_kept(kind: str) -> None:
    assert cut_notice("It opens at", _prompt(response_format={"type": kind})) == ""
    assert cut_notice("It opens at", _prompt(response_format={"type": "text"})) != ""


@pytest.mark.parametrize(
    "text",
    [
        "[1] says that gates open at 3 m and",
        "[^1] says so and",
        "Return the key to the desk;\nthen wait",
        "Use class 3 gates.\nThey return at night.\nThen the guard",
    ],
)
def test_prose_that_looks_like_code_is_prose(text: str) -> None:
    assert cut_notice(text, _prompt()).endswith(NOTICES["en"])
