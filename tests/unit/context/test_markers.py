"""Markers in a stream: what is one, what is code, and that chunking changes nothing."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forebay.context.markers import HELD_CHARACTERS_MAX, MarkerStream


def run(*pieces: str, passages: int = 5) -> tuple[str, list[int], int]:
    stream = MarkerStream(passages)
    text = "".join(stream.feed(piece) for piece in pieces) + stream.finish()
    return text, stream.cited, stream.invalid


@pytest.mark.parametrize(
    ("given_text", "text", "cited", "invalid"),
    [
        ("The limit is 5 days [1].", "The limit is 5 days [1].", [1], 0),
        ("The limit is 5 days[1].", "The limit is 5 days[1].", [1], 0),
        ("The answer.[2] Next.", "The answer.[2] Next.", [2], 0),
        ("年假为十天[1]。", "年假为十天[1]。", [1], 0),
        ("年假为十天【2】。", "年假为十天[2]。", [2], 0),
        ("年假为十天［２］，另有五天【1、3】。", "年假为十天[2]，另有五天[1][3]。", [2, 1, 3], 0),
        ("Both [1][2] and [1, 3].", "Both [1][2] and [1][3].", [1, 2, 3], 0),
        ("A range [2-4].", "A range [2][3][4].", [2, 3, 4], 0),
        ("Order [3] then [1].", "Order [3] then [1].", [3, 1], 0),
        ("Spaces [ 1 ] and zeros [01].", "Spaces [1] and zeros [1].", [1], 0),
        (
            "FB-2041[1] and 2015[2] and iPhone[3]",
            "FB-2041[1] and 2015[2] and iPhone[3]",
            [1, 2, 3],
            0,
        ),
        ("Plan B[2] costs more.", "Plan B[2] costs more.", [2], 0),
        ("见【2†来源】。", "见[2]。", [2], 0),
        ("the UN[1] said, a car[2] is", "the UN[1] said, a car[2] is", [1, 2], 0),
        ("[[1]]", "[[1]]", [1], 0),
    ],
)
def test_markers_are_found_and_written_one_way(
    given_text: str, text: str, cited: list[int], invalid: int
) -> None:
    assert run(given_text) == (text, cited, invalid)


@pytest.mark.parametrize(
    ("given_text", "text", "invalid"),
    [
        ("Nothing [9].", "Nothing.", 1),
        ("Nothing [0] here.", "Nothing here.", 1),
        ("Some [1, 9].", "Some [1].", 1),
        ("Gone [7][8] now.", "Gone now.", 2),
        ("Mixed [7][1] now.", "Mixed [1] now.", 1),
        ("没有【0】。", "没有。", 1),
        ("没有［99］了。", "没有了。", 1),
        ("At the end [6]", "At the end", 1),
        ("At the end [6] ", "At the end", 1),
    ],
)
def test_markers_that_point_nowhere_are_dropped_and_counted(
    given_text: str, text: str, invalid: int
) -> None:
    written, _, bad = run(given_text)
    assert (written, bad) == (text, invalid)


@pytest.mark.parametrize(
    "text",
    [
        "Use `arr[1]` here.",
        "用 `列表[1]` 表示。",
        "``a`b[1]``",
        "```python\nx = rows[0]\ny = arr[9]\n```\n",
        "```\n数组[1]\n```",
        "~~~\nx[1]\n~~~\n",
        "> ```\n> x[1]\n> ```\n",
        "1. ```\n   x[1]\n   ```\n",
        "```py\n数[1] ~~~ [2]\n```",
        "```\nnever closed [1]",
        "arr[1] is first, x[0] too, my_list[2] as well, f()[1].",
        "args[1][2] stays.",
        "total[1] = 5; total[2] += 1; total[1]++; total[1]->next; total[1].name",
        "See [1](https://example.org) and ![2](a.png).",
        "Escaped \\[1\\] stays.",
        "A year [2015] and [ ] and [x] and [^1] and [a1].",
        "【注】［图一］",
        "[1",
        "[1, ",
    ],
)
def test_code_links_and_other_brackets_are_left_alone(text: str) -> None:
    assert run(text) == (text, [], 0)


def test_code_ends_where_it_ends() -> None:
    assert run("`a[1]` yes [1].")[1] == [1]
    assert run("```\na[2]\n```\nYes [1].")[1] == [1]
    assert run("```a[2]``` yes [1].")[1] == [1]
    assert run("````\n```\na[2]\n````\nyes [1]")[1] == [1]
    assert run("```\n``` not the end [2]\n```\nyes [1]")[1] == [1]


def test_an_open_backtick_ends_with_its_line() -> None:
    assert run("A stray ` mark [2].\nNext [1].")[1] == [1]
    assert run("游离的 ` 反引号【2】。\n下一行【1】。")[1] == [1]


def test_a_marker_split_over_pieces_is_joined() -> None:
    stream = MarkerStream(3)
    assert stream.feed("十天【") == "十天"
    assert stream.feed("2") == ""
    assert stream.feed("】") == ""
    assert stream.feed("。") == "[2]。"
    assert stream.cited == [2]


def test_only_what_may_become_a_marker_is_held_back() -> None:
    stream = MarkerStream(3)
    assert stream.feed("plain text, no bracket") == "plain text, no bracket"
    assert stream.feed(" [a") == " [a"
    assert stream.feed("[") == ""
    assert stream.feed("x") == "[x"


ALPHABET = st.sampled_from(
    [
        *"[]【】［］()1239 0０\n`~\\.,，、-=+a_x年假。>",
        "```",
        "~~~",
        "[1]",
        "【2】",
        " [9]",
        "†",
        "arr",
        "\n\n",
        "()",
    ]
)
TEXTS = st.lists(ALPHABET, max_size=60).map("".join)


@settings(max_examples=600, deadline=None)
@given(TEXTS, st.data())
def test_any_split_gives_the_same_output(text: str, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    whole = run(text)
    assert run(*pieces) == whole
    assert run(*text) == whole


@settings(max_examples=300, deadline=None)
@given(TEXTS)
def test_what_is_held_is_bounded_and_output_is_stable(text: str) -> None:
    stream = MarkerStream(5)
    sent = "".join(stream.feed(character) for character in text)
    rest = stream.finish()
    assert len(rest) <= 3 * HELD_CHARACTERS_MAX
    assert sent + rest == run(text)[0]
    assert all(1 <= number <= 5 for number in stream.cited)


def test_long_runs_do_not_pile_up() -> None:
    for mark in ("`", "~", " ", "[", "[1,", "\n"):
        stream = MarkerStream(5)
        held = 0
        for _ in range(500):
            held += len(mark) - len(stream.feed(mark))
            assert held <= 3 * HELD_CHARACTERS_MAX
        assert run(mark * 500)[0] == run(*[mark] * 500)[0]
