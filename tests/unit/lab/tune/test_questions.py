"""Questions to tune on."""

from __future__ import annotations

import pytest

from forebay.kernel.documents import ChunkDraft, DocumentDraft
from forebay.kernel.errors import InvalidRequest
from forebay.lab.tune.questions import (
    Place,
    Question,
    Target,
    asked_by_headings,
    halves,
    headings,
    ranking,
    sample,
    without_headings,
)


def document(name: str, title: str, *sections: tuple[str, str]) -> DocumentDraft:
    """A document of headings and texts, one chunk a section."""
    text = f"# {title}\n"
    chunks: list[ChunkDraft] = []
    for heading, body in sections:
        start = len(text)
        text += f"## {heading}\n\n{body}\n\n" if heading else f"{body}\n\n"
        path = (title, heading) if heading else (title,)
        part = text[start : len(text)]
        chunks.append(ChunkDraft(len(chunks), start, len(text), part, 1, heading_path=path))
    return DocumentDraft(name, name, "0", title, text, tuple(chunks))


TRAVEL = document(
    "travel.md",
    "Travel policy",
    ("Hotel limits", "Up to 120 euros a night."),
    ("Approval", "Your manager signs."),
)
LEAVE = document(
    "休假.md", "休假制度", ("产假天数", "女职工一百五十八天。"), ("Approval", "人事部签字。")
)


def questions(*texts: str) -> list[Question]:
    return [Question(text, text, (Target("d"),)) for text in texts]


def test_a_heading_asks_for_the_part_under_it_in_both_languages() -> None:
    found = {question.text: question.targets[0] for question in asked_by_headings([TRAVEL, LEAVE])}
    assert found["Hotel limits"].document_id == "travel.md"
    assert found["产假天数"].document_id == "休假.md"
    target = found["产假天数"]
    assert "一百五十八天" in LEAVE.text[target.start : target.end]


def test_a_heading_that_stands_twice_is_asked_with_its_title() -> None:
    texts = {question.text for question in asked_by_headings([TRAVEL, LEAVE])}
    assert "Approval" not in texts
    assert {"Travel policy Approval", "休假制度 Approval"} <= texts


def test_what_is_ambiguous_or_repeated_in_the_text_is_not_asked() -> None:
    twice = [document("a.md", "Guide", ("Same", "one")), document("b.md", "Guide", ("Same", "two"))]
    assert asked_by_headings(twice) == ()
    leaking = document("c.md", "Notes", ("Red button", "Press the red button twice."))
    assert asked_by_headings([leaking]) == ()


def test_a_document_without_headings_is_asked_by_its_title() -> None:
    plain = DocumentDraft(
        "p.txt", "p.txt", "0", "备份说明", "每天两点。", (ChunkDraft(0, 0, 5, "每天两点。", 4),)
    )
    [question] = asked_by_headings([plain])
    assert (question.text, question.targets[0].document_id) == ("备份说明", "p.txt")


def test_headings_leave_no_word_in_the_index_and_offsets_stay() -> None:
    for original in (TRAVEL, LEAVE):
        hidden = without_headings(original, headings(original))
        assert len(hidden.text) == len(original.text)
        assert hidden.title == ""
        for chunk in hidden.chunks:
            assert chunk.text == hidden.text[chunk.start : chunk.end]
            assert chunk.heading_path == ()
            for word in ("Hotel", "Approval", "产假天数", "Travel policy"):
                assert word not in chunk.text
    assert "120 euros" in without_headings(TRAVEL, headings(TRAVEL)).text
    assert "女职工" in without_headings(LEAVE, headings(LEAVE)).text


def test_a_chunk_that_was_nothing_but_a_heading_is_gone() -> None:
    bare = document("x.md", "Top", ("Empty", ""), ("Full", "words"))
    hidden = without_headings(bare, headings(bare))
    assert [(chunk.ordinal, chunk.text.split()) for chunk in hidden.chunks] == [(0, ["words"])]


def test_a_ranking_names_documents_once_and_parts_by_what_shows_them() -> None:
    places = [Place("a", 0, 50), Place("b", 0, 50), Place("a", 50, 90)]
    whole = Question("1", "q", (Target("a"),))
    assert ranking(whole, places) == ["a", "b"]
    part = Question("2", "q", (Target("a", 1, 60, 100),))
    assert ranking(part, places) == ["a#0", "b#0", "a@60"]


@pytest.mark.parametrize(
    ("start", "end", "met"),
    [(100, 200, True), (0, 1000, True), (110, 130, True), (190, 290, False)],
)
def test_a_part_is_shown_when_half_of_the_shorter_lies_in_the_other(
    start: int, end: int, met: bool
) -> None:
    question = Question("1", "q", (Target("a", 1, 100, 200),))
    assert (ranking(question, [Place("a", start, end)]) == ["a@100"]) is met


def test_halves_are_fixed_disjoint_and_not_empty() -> None:
    asked = questions(*(f"question {number}" for number in range(40)), "问题一", "问题二")
    one, other = halves(asked)
    assert {each.text for each in one} | {each.text for each in other} == {e.text for e in asked}
    assert not {each.text for each in one} & {each.text for each in other}
    assert halves(list(reversed(asked)))[0] == tuple(reversed(one))
    with pytest.raises(InvalidRequest, match="too few"):
        halves(questions("only one"))


def test_a_sample_is_the_same_every_time_and_keeps_the_order() -> None:
    asked = questions(*(f"q{number}" for number in range(50)))
    some = sample(asked, 20)
    assert len(some) == 20
    assert some == sample(asked, 20)
    assert list(some) == [each for each in asked if each in some]
    assert sample(asked, 50) == tuple(asked)
