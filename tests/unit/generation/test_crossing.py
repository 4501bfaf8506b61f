"""Questions in another script than the passages: by types, codes, marks and values."""

from __future__ import annotations

import msgspec
import pytest

from forebay.generation import ExtractiveGenerator
from forebay.kernel.sentences import checksum
from forebay.testing.embedding import WordCounter
from forebay.testing.generation import passage
from tests.unit.generation.test_extractive import asked


def draft(question: str, *texts: str, language: str) -> tuple[str, bool]:
    hits = [
        msgspec.structs.replace(passage(text, number=number, score=0.6), cosine=0.7, around=0.3)
        for number, text in enumerate(texts, 1)
    ]
    request = asked(question, *hits, language=language)
    found = ExtractiveGenerator(WordCounter()).draft(request)
    return "".join(found.pieces), found.refused


@pytest.mark.parametrize(
    ("question", "one", "other", "language"),
    [
        (
            "一号水泵的流量是多少？",
            "The flow rate of the first pump is 40 litres per second.",
            "According to the test sheet the flow rate of the first pump is 52 litres per second.",
            "zh",
        ),
        (
            "When was the second pump overhauled?",
            "二号水泵上一次大修是在2023年3月12日。",
            "日志显示，二号水泵上一次大修在2023-05-04。",
            "en",
        ),
    ],
)
def test_documents_that_contradict_each_other_are_both_quoted(
    question: str, one: str, other: str, language: str
) -> None:
    quoted, refused = draft(question, one, other, language=language)
    assert not refused
    assert f"{one} [1]" in quoted and f"{other} [2]" in quoted


def test_two_notations_of_one_date_are_no_contradiction() -> None:
    one, other = "二号水泵上一次大修是在2023年3月12日。", "日志显示，二号水泵大修在2023-03-12。"
    quoted, _ = draft("When was the second pump overhauled?", one, other, language="en")
    assert (one in quoted) != (other in quoted)


def test_a_contradiction_across_languages_is_quoted_with_both_sides() -> None:
    english, chinese = "The north gate closes at 18:00.", "北门下午五点半关闭。"
    quoted, refused = draft("When does the north gate close?", english, chinese, language="en")
    assert not refused and english in quoted and chinese in quoted
    quoted, _ = draft(
        "When does the north gate close?", english, "北门下午六点关闭。", language="en"
    )
    assert "六点" not in quoted


def test_another_thing_of_the_kind_is_refused() -> None:
    text = "The first pump weighs 640 kg."
    assert draft("二号水泵有多重？", text, language="zh")[1]
    assert not draft("一号水泵有多重？", text, language="zh")[1]
    assert draft("When does the south gate close?", "北门20:00关闭。", language="en")[1]


def test_the_sentence_that_shows_the_type_is_quoted() -> None:
    text = "The first pump is painted often. It stands well. The staff like it. It weighs 640 kg."
    quoted, refused = draft("一号水泵有多重？", text, language="zh")
    assert not refused and "640 kg" in quoted


@pytest.mark.parametrize(
    ("question", "text", "quoted", "language"),
    [
        (
            "How many days of annual leave do I get?",
            (
                "本版自2026年1月1日起施行。上一版自2025年1月1日起施行。本版每年十二月修订。"
                "结转的天数有变动。申请须经部门经理批准。员工每年享有8天年休假。"
            ),
            "8天",
            "en",
        ),
        (
            "每年有几天年休假？",
            (
                "In force from 1 January 2026. Revised each year in December. Approved by the "
                "manager. The edition of last year ends this month. Employees have 8 days a year."
            ),
            "8 days",
            "zh",
        ),
    ],
)
def test_a_number_in_the_unit_asked_for_is_quoted_before_a_date(
    question: str, text: str, quoted: str, language: str
) -> None:
    told, refused = draft(question, text, language=language)
    assert not refused and quoted in told


WARD = "The surgical ward has 42 beds. The head of the surgical ward is Peter Novak."
BINGFANG = "外科病房有42张病床。外科病房的负责人是赵志强。"


@pytest.mark.parametrize(
    ("question", "text", "language"),
    [
        ("儿科病房有几张病床？", WARD, "zh"),
        ("外科病房的窗帘是什么颜色？", WARD, "zh"),
        ("How many beds does the dental ward have?", BINGFANG, "en"),
        ("What does the surgical ward cost per day?", BINGFANG, "en"),
    ],
)
def test_what_is_said_of_another_or_not_at_all_is_refused(
    question: str, text: str, language: str
) -> None:
    assert draft(question, text, language=language)[1]


@pytest.mark.parametrize(
    ("question", "text", "language"),
    [
        ("外科病房有几张病床？", WARD, "zh"),
        ("How many beds does the surgical ward have?", BINGFANG, "en"),
        # Nobody knows the word for what is before the ward: that says nothing against it.
        ("饕餮病房有几张病床？", "The zyzzyva ward has 42 beds.", "zh"),
    ],
)
def test_what_is_said_in_other_words_is_quoted(question: str, text: str, language: str) -> None:
    quoted, refused = draft(question, text, language=language)
    assert not refused and "42" in quoted


def mixed(question: str, *texts: str, language: str) -> str:
    hits = [passage(text, number=at, score=0.6 - at / 10) for at, text in enumerate(texts, 1)]
    found = ExtractiveGenerator(WordCounter()).draft(asked(question, *hits, language=language))
    return "".join(found.pieces)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_both_sides_are_told_in_two_languages(language: str) -> None:
    english, chinese = "The rent of the garden hall is 450 euros.", "花园大厅的租金是600元。"
    texts = (english, chinese) if language == "en" else (chinese, english)
    question = {"en": "What is the rent of the garden hall?", "zh": "花园大厅的租金是多少？"}
    quoted = mixed(question[language], *texts, language=language)
    assert "450 euros" in quoted and "600元" in quoted


@pytest.mark.parametrize("language", ["en", "zh"])
def test_who_it_is_is_told_in_two_languages_unless_it_is_the_same(language: str) -> None:
    english = "The keys of the warehouse are held by the driver."
    chinese, same = "仓库的钥匙由门卫保管。", "仓库的钥匙由司机保管。"
    question = {
        "en": "Who holds the keys of the warehouse?",
        "zh": "仓库的钥匙由谁保管？",
    }[language]
    first, second = (english, chinese) if language == "en" else (chinese, english)
    quoted = mixed(question, first, second, language=language)
    assert "driver" in quoted and "门卫" in quoted
    first, second = (english, same) if language == "en" else (same, english)
    quoted = mixed(question, first, second, language=language)
    assert ("driver" in quoted) != ("司机" in quoted)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_what_answers_in_the_other_language_goes_before_what_does_not(language: str) -> None:
    english = ("The hotel has a garden.", "Breakfast in the hotel costs 12 euros.")
    chinese = ("这家酒店有一个花园。", "酒店的早餐12元。")
    question = {"en": "What does breakfast in the hotel cost?", "zh": "酒店的早餐多少钱？"}[
        language
    ]
    lesser, answers = (english[0], chinese[1]) if language == "en" else (chinese[0], english[1])
    quoted = mixed(question, lesser, answers, language=language)
    assert answers in quoted and lesser not in quoted


@pytest.mark.parametrize(
    ("question", "manual", "other", "told"),
    [
        (
            "LK-350多久校准一次？",
            "Calibrate the meter every 12 months.",
            "标准工作时间为九点至十八点，午休一小时。",
            "12 months",
        ),
        (
            "How often is the LK-350 checked?",
            "流量计每12个月检查一次。",
            "Work begins at nine and ends at six.",
            "12个月",
        ),
    ],
)
def test_a_passage_that_hardly_matches_leaves_the_answer_to_the_other_language(
    question: str, manual: str, other: str, told: str
) -> None:
    hit = passage(manual, score=0.31)
    hit = msgspec.structs.replace(hit, chunk=msgspec.structs.replace(hit.chunk, title="LK-350"))
    hits = [
        msgspec.structs.replace(one, cosine=cosine, around=0.3)
        for one, cosine in ((hit, 0.6), (passage(other, number=2, score=0.1), 0.4))
    ]
    request = asked(question, *hits, language="en" if question.isascii() else "zh")
    found = ExtractiveGenerator(WordCounter()).draft(request)
    assert not found.refused and told in "".join(found.pieces)


@pytest.mark.parametrize(
    ("question", "one", "other", "quoted"),
    [
        (
            "How often is the Brio 2 descaled?",
            "The Brio 2 is descaled every three months.",
            "为了口感，每两个月除垢一次。",
            True,
        ),
        (
            "How often is the Brio 2 descaled?",
            "The Brio 2 is descaled every three months.",
            "为了口感，每3个月除垢一次。",
            False,
        ),
        ("Brio 2的奶壶可以机洗吗？", "Brio 2的奶壶可以机洗。", "The jug must not be put in.", True),
    ],
)
@pytest.mark.parametrize("near", [4.0, 0.5])
def test_what_words_do_not_tell_vectors_of_sentences_do(
    question: str, one: str, other: str, quoted: bool, near: float
) -> None:
    hits = [passage(one, number=1, score=0.6), passage(other, number=2, score=0.5)]
    request = asked(question, *hits, language="en" if question.isascii() else "zh")
    pair = sorted((checksum(one), checksum(other)))
    request = msgspec.structs.replace(request, likeness={(pair[0], pair[1]): near})
    text = "".join(ExtractiveGenerator(WordCounter()).draft(request).pieces)
    assert one in text and (other in text) == (quoted and near > 1.0)


@pytest.mark.parametrize(("near", "quoted"), [(0.2, False), (1.2, True), (None, True)])
def test_a_name_that_no_word_list_knows_is_told_apart_by_vectors(
    near: float | None, quoted: bool
) -> None:
    one, other = "The deposit in Leuven is 80 euros.", "押金为300元。"
    hits = [passage(one, number=1, score=0.6), passage(other, number=2, score=0.5)]
    request = asked("What is the deposit in Leuven?", *hits)
    if near is not None:
        pair = sorted((checksum(one), checksum(other)))
        request = msgspec.structs.replace(request, likeness={(pair[0], pair[1]): near})
    text = "".join(ExtractiveGenerator(WordCounter()).draft(request).pieces)
    assert one in text and (other in text) == quoted
