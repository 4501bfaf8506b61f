"""Citation markers: what counts, what is dropped, what is left alone, however the text is cut."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.context.citations import CitationStream, Cited, supporting
from forebay.kernel.documents import ChunkRow, Hit


def hit(text: str = "") -> Hit:
    row = ChunkRow(
        1, "d", 0, 0, len(text), text, "", 1, None, (), "T", "s", "en", (), (), {}, 1
    )  # fmt: skip
    return Hit(row, 0.5)


PASSAGES = [hit() for _ in range(5)]


def whole(text: str, *, pieces: list[str] | None = None) -> tuple[str, tuple[int, ...], int]:
    stream = CitationStream(PASSAGES)
    out = "".join(stream.feed(piece) for piece in (pieces if pieces is not None else [text]))
    rest, cited = stream.finish()
    return out + rest, cited.numbers, cited.invalid


@pytest.mark.parametrize(
    ("text", "expected", "numbers", "invalid"),
    [
        ("Yes [1].", "Yes [1].", (1,), 0),
        ("Thirty days[1].", "Thirty days[1].", (1,), 0),
        ("It is 30[2] now", "It is 30[2] now", (2,), 0),
        ("可以退【2】。", "可以退[2]。", (2,), 0),
        ("可以退［2］。", "可以退[2]。", (2,), 0),
        ("可以退[1][3]。", "可以退[1][3]。", (1, 3), 0),
        ("both [1, 3] and [2，4]", "both [1][3] and [2][4]", (1, 3, 2, 4), 0),
        ("先看[2]再看[1]", "先看[2]再看[1]", (2, 1), 0),
        ("see 【2†source】.", "see [2].", (2,), 0),
        ("Nine [9].", "Nine.", (), 1),
        ("Zero [0].", "Zero.", (), 1),
        ("没有【7】。", "没有。", (), 1),
        ("mixed [2, 9].", "mixed [2].", (2,), 1),
        ("use `arr[1]` here [2]", "use `arr[1]` here [2]", (2,), 0),
        ("```py\nx = a[1]\n```\nDone [1].", "```py\nx = a[1]\n```\nDone [1].", (1,), 0),
        ("set arr[1] = 5", "set arr[1] = 5", (), 0),
        ("take arr[1] first", "take arr[1] first", (), 0),
        ("x[0] and rows_a[7] stay", "x[0] and rows_a[7] stay", (), 0),
        ("items[3].name", "items[3].name", (), 0),
        ("a link [1](http://h) [2]", "a link [1](http://h) [2]", (2,), 0),
        ("[not a marker] [x1]", "[not a marker] [x1]", (), 0),
        ("unclosed `tick\nthen [1]", "unclosed `tick\nthen [1]", (1,), 0),
        ("ends with [", "ends with [", (), 0),
        ("ends with [1", "ends with [1", (), 0),
        ("", "", (), 0),
    ],
)
def test_markers(text: str, expected: str, numbers: tuple[int, ...], invalid: int) -> None:
    assert whole(text) == (expected, numbers, invalid)


# A range ("[1~3]") and an engine's note ("【2†name】") go with a marker that points nowhere.
COULD_BE_A_MARKER = re.compile(r"[\[【［][0-9\s,，~]*(?:†[^\[\]【】［］\n]*)?[\]】］]")
ALPHABET = st.text(st.sampled_from("ab 1209[]【】［］,，`~\n(=.。字†"), max_size=40)


@given(ALPHABET, st.lists(st.integers(0, 40), max_size=8))
def test_cuts_do_not_matter(text: str, cuts: list[int]) -> None:
    places = sorted({min(cut, len(text)) for cut in cuts})
    pieces = [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)]
    assert whole(text, pieces=pieces) == whole(text)


@given(ALPHABET)
def test_cleaning_is_stable_and_numbers_are_in_range(text: str) -> None:
    cleaned, numbers, _ = whole(text)
    assert all(1 <= number <= 5 for number in numbers)
    outside = COULD_BE_A_MARKER.sub("", text)
    for character in outside.translate({ord(c): None for c in "0129[]【】［］,，† \n"}):
        assert character in cleaned


def test_nothing_is_held_longer_than_a_marker() -> None:
    stream = CitationStream(PASSAGES)
    assert stream.feed("Hello world") == "Hello world"
    assert stream.feed(" [") == ""
    assert stream.feed("1") == ""
    assert stream.feed("] and more") == " [1] and more"


@pytest.mark.parametrize(
    ("text", "passages", "numbers"),
    [
        (
            "The notice period is thirty days.",
            ["Lunch is at noon.", "The notice period for this contract is thirty days."],
            [2],
        ),
        ("年假为十五天。", ["病假需要证明。", "员工年假为十五天，可以结转。"], [2]),
        ("I could not find this.", ["The warranty is 24 months."], []),
    ],
)
def test_an_answer_without_markers_is_cited_by_support(
    text: str, passages: list[str], numbers: list[int]
) -> None:
    assert supporting(text, [hit(passage) for passage in passages]) == numbers
    stream = CitationStream([hit(passage) for passage in passages])
    out = stream.feed(text)
    rest, cited = stream.finish()
    assert list(cited.numbers) == numbers
    assert out + rest == text + "".join(f"[{number}]" for number in numbers)


def test_only_bad_markers_count_as_none() -> None:
    stream = CitationStream([hit("The boiler is serviced once a year by its maker.")])
    text = stream.feed("The boiler is serviced once a year [8].")
    rest, cited = stream.finish()
    assert text + rest == "The boiler is serviced once a year.[1]"
    assert cited == Cited((1,), 1)


@pytest.mark.parametrize("half", [" [1", "[1", " [", "【1"])
def test_a_text_that_ends_inside_a_marker_shows_no_half_of_it(half: str) -> None:
    """As a bound on tokens may cut it."""
    stream = CitationStream([hit("The boiler is serviced once a year by its maker.")])
    text = stream.feed(f"The boiler is serviced once a year{half}")
    rest, cited = stream.finish()
    assert text + rest == "The boiler is serviced once a year[1]"
    assert cited == Cited((1,), 0)
    stream = CitationStream(PASSAGES)
    text = stream.feed(f"One [2]. Two{half}")
    assert text + stream.finish()[0] == "One [2]. Two"


def test_attached_markers_come_below_code_and_never_into_it() -> None:
    passages = [hit("The boiler is serviced once a year by its maker.")]
    for text, ending in (("```\ncode\n```", "\n\n[1]"), ("```\nnever closed", "")):
        stream = CitationStream(passages)
        sent = stream.feed(f"The boiler is serviced once a year.\n{text}")
        rest, cited = stream.finish()
        assert cited.numbers == (1,)
        assert (sent + rest).endswith(text + ending)


def test_a_refusal_is_attributed_to_nothing() -> None:
    passages = [hit("The boiler is serviced once a year."), hit("锅炉每年由制造商检修一次。")]
    for text in (
        "I could not find anything in the documents that answers this question.",
        "在现有文档中没有找到能够回答这个问题的内容。",
    ):
        stream = CitationStream(passages)
        assert stream.feed(text) + stream.finish()[0] == text


def test_without_passages_every_marker_is_bad() -> None:
    stream = CitationStream(())
    assert stream.feed("Hello [1] there") == "Hello there"
    assert stream.finish() == ("", Cited((), 1))
