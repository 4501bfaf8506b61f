"""The words a field may have, found by the place that an error names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec
import pytest

from forebay.kernel.errors import InvalidRequest
from forebay.policy.admission import AdmissionOverrides
from forebay.wire.choices import choices
from forebay.wire.decoding import JsonDecoder

Colour = Literal["red", "green"]


class Leaf(msgspec.Struct):
    colour: Annotated[Colour, msgspec.Meta(description="What it looks like.")] | None = None
    mixed: Colour | int = "red"
    renamed: Colour = msgspec.field(name="tint", default="red")


class Tree(msgspec.Struct):
    leaves: tuple[Leaf, ...] = ()
    by_name: Mapping[str, Leaf] = {}
    pair: tuple[int, Colour] = (1, "red")
    either: Leaf | None = None


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("leaves[3].colour", ("red", "green")),
        ("by_name[...].colour", ("red", "green")),
        ("either.tint", ("red", "green")),
        ("leaves[0].mixed", ()),
        ("leaves[0].renamed", ()),
        ("leaves", ()),
        ("absent.deeper[0]", ()),
        ("", ()),
    ],
)
def test_words_are_found_in_their_order(place: str, words: tuple[str, ...]) -> None:
    assert choices(Tree, place) == words


@pytest.mark.parametrize("value", ['"address"', "3"])
def test_a_wrong_word_is_answered_with_the_right_ones(value: str) -> None:
    body = f'{{"rules": [{{"dimension": {value}, "name": "x"}}]}}'
    with pytest.raises(InvalidRequest) as caught:
        JsonDecoder(AdmissionOverrides).decode(body.encode())
    assert caught.value.param == "rules[0].dimension"
    assert caught.value.message.endswith("; one of key, user, tenant, line, ip, all.")
