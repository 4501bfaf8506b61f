"""Identifiers: what they are divided into, and how else they are written."""

from __future__ import annotations

import pytest

from forebay.retrieval.identifiers import pieces, spellings, unhyphened


@pytest.mark.parametrize(
    ("part", "divided"),
    [
        ("getUserName", ["get", "User", "Name"]),
        ("GitHub", ["Git", "Hub"]),
        ("HTTPServer", ["HTTP", "Server"]),
        ("GB18030", ["GB18030", "GB", "18030"]),
        ("5GB", ["5GB", "5", "GB"]),
        ("Berlin", ["Berlin"]),
        ("NASA", ["NASA"]),
        ("2019", ["2019"]),
        ("19th", ["19th"]),
        ("1990s", ["1990s"]),
        ("1b2fa0af0570", ["1b2fa0af0570"]),
        ("größe2", ["größe2"]),
    ],
)
def test_pieces(part: str, divided: list[str]) -> None:
    assert pieces(part) == divided


@pytest.mark.parametrize(
    ("whole", "others"),
    [
        ("ab-1234", ["ab1234"]),
        ("get_user_name", ["getusername"]),
        ("v1.2.3", ["1.2", "1.2.3"]),
        ("3.11", ["3.11"]),
        ("2018-2019", []),
        ("wi-fi", []),
        ("word", []),
    ],
)
def test_spellings(whole: str, others: list[str]) -> None:
    assert list(spellings(whole)) == others


def test_hyphened_words_of_a_document_in_one() -> None:
    runs = ["Wi-Fi", "an", "e-mail", "AB-12", "a--b", "x-y-z-a-b", "a_b-c"]
    assert unhyphened(runs) == ["wifi", "email"]
