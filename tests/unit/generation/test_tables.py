"""The rows of a table that a question means: by the cells it names, or that of all the others."""

from __future__ import annotations

import pytest
from opencc import OpenCC

from forebay.generation import ExtractiveGenerator
from forebay.generation.passages import analyse
from forebay.generation.tables import tables
from forebay.testing.embedding import WordCounter
from forebay.testing.generation import passage
from tests.unit.generation.test_extractive import asked

FARES = """Fares by port

Port | Ticket | Bicycle
Hurghen | 14 euros | 5 euros
Salvik | 22 euros | 7 euros
Other ports | 31 euros | 9 euros"""

BENCHES = """长椅价目

名称 | 长度 | 价格
柚木长椅 | 1.2米 | 900元
柚木长椅 | 1.5米 | 1100元
榆木长椅 | 1.2米 | 700元
其他材质 | 1.2米 | 650元"""

CLUBS = """Memberships

| Silver | Golden
Guests a month | 2 | 8
Locker | none | large"""

SAUNA = "Wellness\n\nGolden members may use the sauna for 3 hours. The pool opens at 7."


def draft(question: str, *texts: str) -> str:
    language = "en" if question.isascii() else "zh"
    hits = [passage(text, title=text.split("\n")[0]) for text in texts]
    found = ExtractiveGenerator(WordCounter()).draft(asked(question, *hits, language=language))
    return "" if found.refused else "".join(found.pieces)


@pytest.mark.parametrize(
    ("question", "text", "value", "others"),
    [
        ("What is the ticket to Salvik?", FARES, "22 euros", ("14", "31")),
        ("What is the ticket to Ostrand?", FARES, "31 euros", ("14", "22")),
        ("1.5米的柚木长椅多少钱？", BENCHES, "1100元", ("900", "700")),
        ("1.2米的榆木长椅多少钱？", BENCHES, "700元", ("900", "1100")),
    ],
)
def test_the_row_that_is_named_and_that_of_all_the_others(
    question: str, text: str, value: str, others: tuple[str, ...]
) -> None:
    answer = draft(question, text)
    assert value in answer
    assert not any(other in answer for other in others)


@pytest.mark.parametrize(
    ("question", "texts"),
    [
        ("1.5米的榆木长椅多少钱？", (BENCHES,)),
        ("2米的柚木长椅多少钱？", (BENCHES,)),
        ("11.2米的柚木长椅多少钱？", (BENCHES,)),
        ("For how long may Silver members use the sauna?", (CLUBS, SAUNA)),
    ],
)
def test_what_is_said_of_a_sibling_only_is_refused(question: str, texts: tuple[str, ...]) -> None:
    assert draft(question, *texts) == ""


def test_a_row_for_the_others_of_a_region_stands_for_none() -> None:
    text = FARES.replace("Other ports", "Other ports of Norway")
    assert draft("What is the ticket to Ostrand?", text) == ""


def test_the_column_that_is_named_is_quoted_from_a_sentence() -> None:
    question = "For how long may Golden members use the sauna?"
    assert "3 hours" in draft(question, CLUBS, SAUNA)


@pytest.mark.parametrize(("island", "refused"), [("Velm", False), ("Grunsay", True)])
def test_a_document_titled_with_a_name_tells_of_that_one(island: str, refused: bool) -> None:
    velm = "Velm\n\nOn Velm the lighthouse was built in 1866 by Ada Kerr."
    grunsay = "Grunsay\n\nThe sheep of Grunsay are counted in autumn."
    assert (draft(f"Who built the lighthouse of {island}?", velm, grunsay) == "") is refused


INLAND = """国内运费

地区 | 首重 | 续重
沪苏浙 | 5元 | 1元
湖南、湖北 | 8元 | 2元
川渝 | 11元 | 4元
广东海南 | 9元 | 3元
其他省份 | 14元 | 6元"""

ABROAD = """国际运费

国家 | 首重 | 续重
日本 | 52元 | 18元
德国 | 103元 | 38元"""

STATES = """Shipping

State | Standard
Texas | 6 dollars
Nevada | 7 dollars
Other states | 9 dollars"""

CITIES = STATES.replace("State |", "City |").replace("Other states", "Other cities")

COUNTRIES = """Duties

Country | Duty
Germany | 5 %
France | 6 %
Other countries | 9 %"""


@pytest.mark.parametrize("traditional", [False, True])
@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("江苏", "5元"),
        ("湖北", "8元"),
        ("四川", "11元"),
        ("川渝", "11元"),
        ("广州", "9元"),
        ("山东", "14元"),
        ("日本", "52元"),
        ("法国", ""),
        ("台湾", ""),
    ],
)
def test_provinces_are_found_by_other_names_and_no_country_is_an_other_province(
    place: str, value: str, traditional: bool
) -> None:
    texts = [f"寄到{place}首重多少钱？", INLAND, ABROAD]
    if traditional:
        texts = list(map(OpenCC("s2t").convert, texts))
    answer = draft(*texts)
    assert f"{value}；" in answer if value else not answer


@pytest.mark.parametrize(
    ("question", "text", "value"),
    [
        ("What is standard shipping to Ohio?", STATES, "9 dollars"),
        ("What is standard shipping to Germany?", STATES, ""),
        ("What is standard shipping to Ghent?", CITIES, "9 dollars"),
        ("What is standard shipping to Singapore?", CITIES, "9 dollars"),
        ("What is standard shipping to Brazil?", CITIES, ""),
        ("What is the duty for Spain?", COUNTRIES, "9 %"),
        ("What is standard shipping to Spain?", STATES.replace("states", "places"), "9 dollars"),
        (
            "What is standard shipping to Spain?",
            STATES.replace("states", "places").replace("Shipping", "Nationwide shipping"),
            "",
        ),
        ("寄到云南首重多少钱？", INLAND.replace("省份", "地区"), "14元"),
        ("寄到法国首重多少钱？", INLAND.replace("省份", "地区"), ""),
        ("寄到法国首重多少钱？", ABROAD + "\n其他地区 | 130元 | 50元", "130元"),
        ("寄到四川首重多少钱？", ABROAD + "\n其他国家 | 130元 | 50元", ""),
    ],
)
def test_the_row_of_the_others_stands_for_what_it_says_and_its_table_is_about(
    question: str, text: str, value: str
) -> None:
    answer = draft(question, text)
    assert value in answer if value else not answer


@pytest.mark.parametrize(
    ("question", "others"),
    [
        ("四川的门店电话是多少？", {2, 3}),
        ("成都的门店电话是多少？", {2, 3}),
        ("广州的门店电话是多少？", {1, 2, 3}),
        ("门店电话是多少？", set()),
    ],
)
def test_rows_of_other_cities_are_others_and_those_in_the_province_asked_about_are_not(
    question: str, others: set[int]
) -> None:
    text = "# 门店\n\n城市 | 电话\n成都 | 6120\n杭州 | 7733\n深圳 | 5405"
    assert tables([analyse(text, "", "", ())], [""], question).others == (frozenset(others),)
