"""A slip of the finger does not hide what the documents say; another name is no slip."""

from __future__ import annotations

import pytest

from forebay.generation.passages import analyse
from forebay.generation.terms import question_terms
from forebay.generation.typos import is_one_slip, respelt

PASSAGE = analyse(
    "Access tokens live for two hours. Refresh tokens live longer.\nAsk Marlow about quotas.",
    "",
    "Signing requests",
    (),
)


def keys(question: str) -> list[str]:
    return [term.key for term in respelt(question_terms(question), [PASSAGE])]


@pytest.mark.parametrize("typed", ["acess", "accsess", "acecss", "accass"])
def test_a_word_with_a_slip_is_the_word_of_the_passages(typed: str) -> None:
    assert keys(f"what is the {typed} lifetime")[0] == "acces"


@pytest.mark.parametrize(
    ("question", "kept"),
    [
        ("what does Harlow know of quotas", "harlow"),
        ("who is Marlowe", "marlow"),
        ("what are signings", "sign"),
        ("is token2 valid", "token2"),
        ("two tomes", "tom"),
    ],
)
def test_names_codes_titles_and_short_words_stay(question: str, kept: str) -> None:
    assert keys(question) == [term.key for term in question_terms(question)]
    assert any(key.startswith(kept) for key in keys(question))


def test_a_word_that_two_words_are_as_near_to_stays() -> None:
    passage = analyse("The crown is no crowd.", "", "", ())
    assert respelt(question_terms("a crowt"), [passage])[0].key == "crowt"


@pytest.mark.parametrize(
    ("one", "other", "slip"),
    [
        ("acess", "access", True),
        ("access", "acess", True),
        ("recieve", "receive", True),
        ("county", "country", True),
        ("tyre", "tire", True),
        ("token", "token", False),
        ("token", "tkneo", False),
        ("abc", "a", False),
        ("ab", "ba", True),
        ("", "a", True),
    ],
)
def test_what_is_one_slip(one: str, other: str, slip: bool) -> None:
    assert is_one_slip(one, other) is slip
