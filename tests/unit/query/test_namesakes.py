"""Things of one name among the hits."""

from __future__ import annotations

import msgspec
import pytest

from forebay.kernel.documents import Hit
from forebay.query.namesakes import namesakes
from forebay.testing.generation import passage


def hits(*titles: str, scores: tuple[float, ...] = ()) -> list[Hit]:
    """Passages of these titles; what stands behind ``>`` is a heading."""
    found = []
    for number, title in enumerate(titles, 1):
        hit = passage(f"text {number}", number=number)
        name, *path = title.split(" > ")
        chunk = msgspec.structs.replace(hit.chunk, title=name, heading_path=tuple(path))
        score = scores[number - 1] if scores else 0.6
        found.append(msgspec.structs.replace(hit, chunk=chunk, score=score))
    return found


@pytest.mark.parametrize(
    ("question", "titles", "names"),
    [
        ("Who is responsible for Atlas?", ("Atlas forklift", "Atlas project"),
         ["Atlas forklift", "Atlas project"]),
        ("What is Keller's extension?", ("Anna Keller", "Jonas Keller", "Canteen"),
         ["Anna Keller", "Jonas Keller"]),
        ("How do I request leave?", ("Annual leave", "Annual leave", "Study leave"),
         ["Annual leave", "Study leave"]),
        ("What does the Falcon cost?", ("Tools > Falcon drill", "Tools > Falcon saw"),
         ["Falcon drill", "Falcon saw"]),
        ("麒麟由谁负责？", ("麒麟叉车", "麒麟项目"), ["麒麟叉车", "麒麟项目"]),
        ("王海濤的分機是多少？", ("王海涛（数据组）", "王海涛（采购部）"),
         ["王海涛（数据组）", "王海涛（采购部）"]),
    ],
)  # fmt: skip
def test_several_things_of_one_name_are_told(
    question: str, titles: tuple[str, ...], names: list[str]
) -> None:
    found = namesakes(question, hits(*titles))
    assert [sense.name for sense in found] == names
    assert sorted(at for sense in found for at in sense.hits) == [
        at for at, title in enumerate(titles) if title != "Canteen"
    ]


@pytest.mark.parametrize(
    ("question", "titles"),
    [
        ("How heavy is the Atlas forklift?", ("Atlas forklift", "Atlas project")),
        ("What does the Condor cost?", ("Condor press: data sheet", "Condor press: manual")),
        ("What does the FB-2041 weigh?", ("FB-2041 manual", "FB-2041 data sheet")),
        ("What does the leave policy say?", ("Leave policy 2025", "Leave policy 2026")),
        ("How heavy is the north gate?", ("North gate", "North gate, survey of 1998")),
        ("Which Falcon has a battery?", ("Falcon drill", "Falcon saw")),
        ("猎鹰有哪些产品？", ("猎鹰电钻", "猎鹰电锯")),
        ("What changed in 2025?", ("Budget 2025", "Staff 2025")),
        ("Atlas", ("Atlas forklift", "Atlas project", "Atlas gear", "Atlas plan")),
        ("When does line 7 leave?", ("Line 7 timetable", "Line 12 stops")),
        ("Where do guests park?", ("Visitors", "Canteen")),
        ("How long " * 12 + "is the Atlas?", ("Atlas forklift", "Atlas project")),
        ("Atlas", ("Atlas forklift",)),
    ],
)
def test_one_thing_is_not_asked_back(question: str, titles: tuple[str, ...]) -> None:
    assert namesakes(question, hits(*titles)) == ()


def test_what_answers_the_question_less_well_is_no_rival() -> None:
    titles = ("Atlas forklift", "Atlas project")
    assert namesakes("Atlas lift", hits(*titles, scores=(0.7, 0.46))) == ()
    assert namesakes("Atlas lift", hits(*titles, scores=(0.7, 0.66)))
    assert namesakes("Atlas", hits(*titles, scores=(0.0, 0.0))) == ()
