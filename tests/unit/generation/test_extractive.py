"""Quotations: which sentences, how written, and when there is no answer."""

from __future__ import annotations

import msgspec
import pytest

from forebay.generation import ExtractiveGenerator, ExtractiveSettings
from forebay.kernel.documents import Hit
from forebay.kernel.stages import GenerationRequest, Sampling
from forebay.testing.embedding import WordCounter
from forebay.testing.generation import generation_request, passage
from forebay.testing.generator_suite import collect

EXPENSES = (
    "Travel expenses are refunded. Hand in claims within 20 days of returning from the journey. "
    "Later than 60 days nothing is paid."
)
CANTEEN = "The canteen opens at noon. Vegetarian dishes are served daily."
LEAVE = "年假须提前申请。工龄满五年的员工每年享有十五天带薪年假。病假须提交医院证明。"


def asked(
    question: str, *texts: str | Hit, language: str = "en", score: float = 0.6
) -> GenerationRequest:
    hits = [
        one if isinstance(one, Hit) else passage(one, number=number, score=score)
        for number, one in enumerate(texts, 1)
    ]
    return GenerationRequest(
        question=question,
        language=language,
        messages=(),
        passages=tuple(hits),
        sampling=Sampling(),
        max_output_tokens=500,
        prompt_tokens=1,
    )


def answer(request: GenerationRequest, **settings: float) -> tuple[str, bool]:
    chosen = ExtractiveSettings(**settings)  # type: ignore[arg-type]
    draft = ExtractiveGenerator(WordCounter(), chosen).draft(request)
    return "".join(draft.pieces), draft.refused


def test_the_sentence_that_answers_is_quoted_and_cited() -> None:
    question = "Within how many days must travel claims be handed in?"
    text, refused = answer(asked(question, CANTEEN, EXPENSES))
    assert not refused
    assert text.startswith("According to the documents:")
    assert "Hand in claims within 20 days of returning from the journey. [2]" in text
    assert "canteen" not in text


@pytest.mark.parametrize(
    ("question", "text", "quoted"),
    [
        ("備用泵的轉速是多少？", "{}备用泵的转速为每分钟1450转。", "备用泵的转速为每分钟1450转。"),
        ("备用泵的转速是多少？", "{}備用泵的轉速為每分鐘1450轉。", "備用泵的轉速為每分鐘1450轉。"),
    ],
)
def test_a_question_in_the_other_script_is_answered_by_the_same_sentence(
    question: str, text: str, quoted: str
) -> None:
    generator = ExtractiveGenerator(WordCounter())
    before = "會議室需要提前一天預訂。" if "轉" in text else "会议室需要提前一天预订。"
    draft = generator.draft(asked(question, text.format(before), language="zh"))
    assert not draft.refused
    assert "".join(draft.pieces).endswith(f"> {quoted} [1]")


@pytest.mark.parametrize(
    ("question", "quoted"),
    [
        ("門禁卡補辦要多少錢？", "門禁卡：補辦門禁卡收費港幣80元，即日可取。"),
        ("门禁卡补办要多少钱？", "門禁卡：補辦門禁卡收費港幣80元，即日可取。"),
        ("管理處在哪裡？", "管理處：管理處位於海濱廣場二樓。"),
        ("泳池開放到幾點？", "泳池：泳池每日早上7時開放，晚上9時關閉。"),
        ("押金要付幾個月？", "租約：押金：兩個月；租期：一年"),
    ],
)
def test_traditional_documents_are_read_like_simplified_ones_and_quoted_as_written(
    question: str, quoted: str
) -> None:
    texts = (
        "# 門禁卡\n\n補辦門禁卡收費港幣80元，即日可取。遺失請先報失。",
        "# 管理處\n\n管理處位於海濱廣場二樓。",
        "# 泳池\n\n泳池每日早上7時開放，晚上9時關閉。",
        "# 租約\n\n| 押金 | 租期 |\n|---|---|\n| 兩個月 | 一年 |",
    )
    text, refused = answer(asked(question, *texts, language="zh-Hant"))
    assert not refused
    assert f"> {quoted} [" in text


def test_the_words_around_a_quotation_are_in_the_script_of_the_question() -> None:
    generator = ExtractiveGenerator(WordCounter())
    simple = "备用泵的转速为每分钟1450转。"
    draft = generator.draft(asked("備用泵的轉速是多少？", simple, language="zh-Hant"))
    assert "".join(draft.pieces) == f"根據文件：\n\n> {simple} [1]"
    draft = generator.draft(asked("昨天的足球比賽誰贏了？", simple, language="zh-Hant"))
    assert draft.refused and draft.pieces[0].startswith("在現有文件中沒有找到")


def test_the_frame_is_in_the_question_s_language_and_the_quote_in_its_own() -> None:
    text, refused = answer(asked("工龄满五年的员工每年有几天年假？", LEAVE, language="zh"))
    assert not refused
    assert text.startswith("根据文档：")
    assert "工龄满五年的员工每年享有十五天带薪年假。 [1]" in text
    text, _ = answer(
        asked(
            "FB-2041 VPN gateway 怎么配置？",
            "The FB-2041 VPN gateway is set in the panel.",
            language="zh",
        )
    )
    assert text.startswith("根据文档：")
    assert "The FB-2041 VPN gateway is set in the panel. [1]" in text


@pytest.mark.parametrize(
    ("question", "language", "begins"),
    [
        ("Who won the football match last night?", "en", "I could not find"),
        ("What is the capital of Mongolia?", "en", "I could not find"),
        ("昨天的足球比赛谁赢了？", "zh", "在现有文档中没有找到"),
        ("红烧肉怎么做才好吃？", "zh", "在现有文档中没有找到"),
        ("what is it?", "en", "I could not find"),
        ("", "en", "I could not find"),
        ("？？", "zh", "在现有文档中没有找到"),
    ],
)
def test_what_nothing_supports_is_refused(question: str, language: str, begins: str) -> None:
    request = asked(question, EXPENSES, LEAVE, language=language, score=0.1)
    text, refused = answer(request)
    assert refused
    assert text.startswith(begins)
    assert "[" not in text


@pytest.mark.parametrize(
    ("question", "language", "word"),
    [
        ("Hello!", "en", "Hello"),
        ("thanks", "en", "Hello"),
        ("你好", "zh", "您好"),
        ("谢谢！", "zh", "您好"),
    ],
)
def test_small_talk_gets_a_short_word(question: str, language: str, word: str) -> None:
    text, refused = answer(asked(question, EXPENSES, language=language))
    assert refused
    assert text.startswith(word)


def test_a_greeting_before_a_question_is_no_small_talk() -> None:
    question = "Hello, within how many days must travel claims be handed in?"
    assert not answer(asked(question, EXPENSES))[1]


def test_no_passages() -> None:
    assert answer(asked("How many days?"))[1]


def test_strictness_refuses_more() -> None:
    request = asked("Within how many days must travel claims be handed in?", EXPENSES)
    assert not answer(request)[1]
    assert answer(request, strictness=50.0)[1]


def test_table_rows_are_quoted_with_their_header() -> None:
    table = "Model | Name | Price (CNY)\nFB-2041 | governor | 38600\nFB-2014 | sensor | 1460"
    text, _ = answer(asked("What is the price of the FB-2014 sensor?", table))
    assert "> Model: FB-2014; Name: sensor; Price (CNY): 1460 [1]" in text
    assert "38600" not in text
    table = "| 型号 | 单价(元) |\n|---|---|\n| FB-2041 | 38600 |\n| FB-2014 | 1460 |"
    text, _ = answer(asked("FB-2014单价是多少钱？", table, language="zh"))
    assert "> 型号：FB-2014；单价(元)：1460 [1]" in text


def test_a_repeated_header_comes_from_the_chunk_s_context() -> None:
    hit = passage("FB-2014 | sensor | 1460\nFB-2041 | governor | 38600")
    chunk = hit.chunk.__class__(
        **{name: getattr(hit.chunk, name) for name in hit.chunk.__struct_fields__}
        | {"context": "Model | Name | Price (CNY)"}
    )
    text, _ = answer(asked("What is the price of the FB-2014 sensor?", Hit(chunk, 0.6, 20.0)))
    assert "Model: FB-2014; Name: sensor; Price (CNY): 1460" in text


def test_list_items_come_with_their_lead_in() -> None:
    listed = "For a parental leave application attach:\n\n- the birth certificate\n- a bank form"
    text, _ = answer(asked("What birth certificate for parental leave application?", listed))
    assert "> For a parental leave application attach: the birth certificate [1]" in text


def test_the_answer_below_a_question_is_quoted() -> None:
    faq = "如何恢复出厂设置？\n\n按住复位键12秒。\n\n面板黄灯闪烁表示什么？\n\n正在使用备用电源。"
    text, _ = answer(asked("面板黄灯闪烁表示什么？", faq, language="zh"))
    assert "正在使用备用电源。 [1]" in text
    assert "复位键" not in text


def test_code_is_quoted_as_code() -> None:
    text, _ = answer(
        asked(
            "Which deployctl freeze command?",
            "Freeze deployments:\n\n```\ndeployctl freeze --all x[1]\n```\n",
        )
    )
    assert "```\ndeployctl freeze --all x[1]\n```\n[1]" in text


def test_a_source_s_own_footnotes_are_no_citations() -> None:
    text, _ = answer(asked("When was the dam built?", "The dam was built in 1923.[12] It is old."))
    assert "The dam was built in 1923.\\[12\\]" in text


def test_the_same_sentence_from_overlapping_chunks_is_quoted_once() -> None:
    sentence = "Hand in claims within 20 days of returning from the journey."
    question = "Within how many days must travel claims be handed in?"
    text, _ = answer(asked(question, EXPENSES, f"{sentence} Keep the receipts.", sentence))
    assert text.count("within 20 days") == 1


def test_quotes_stay_in_bounds() -> None:
    long = " ".join(f"The alarm number {n} of the turbine hall rings at noon." for n in range(200))
    text, _ = answer(asked("When does the alarm of the turbine hall ring?", long))
    assert text.count("> ") <= 3
    endless = "turbine hall alarm " * 5000
    text, _ = answer(asked("When does the turbine hall alarm ring?", endless))
    assert len(text) < 1200


async def test_stop_and_token_bound() -> None:
    generator = ExtractiveGenerator(WordCounter())
    question = "Within how many days must travel claims be handed in?"
    request = generation_request(
        question, [EXPENSES], sampling=Sampling(stop=("20",)), max_output_tokens=100
    )
    text, finished = await collect(generator, request)
    assert text.endswith("within ")
    assert finished.reason == "stop"
    request = generation_request(question, [EXPENSES], max_output_tokens=6)
    text, finished = await collect(generator, request)
    assert finished.reason == "length"
    assert finished.completion_tokens <= 6


def test_analysed_passages_are_bounded() -> None:
    generator = ExtractiveGenerator(WordCounter(), ExtractiveSettings(cached_passages=16))
    for number in range(100):
        generator.draft(asked("turbine hall", f"The turbine hall number {number}."))
    assert generator.statistics()["entries"] == 16


def test_hostile_questions_and_passages_take_no_time() -> None:
    hostile = ["[" * 5000, "a." * 5000, "| " * 5000, "？" * 5000, "`" * 5000, "年" * 5000, "\ud800"]
    for question in hostile:
        for text in hostile:
            answer(asked(question, text))


def test_a_chinese_question_on_english_passages_goes_by_meaning() -> None:
    texts = [EXPENSES, CANTEEN, "Boilers.", "Turbines.", "Roads."]
    near = [0.75, 0.3, 0.25, 0.25, 0.25]
    flat = [0.3, 0.3, 0.3, 0.3, 0.3]
    for cosines, refused in ((near, False), (flat, True)):
        hits = [
            Hit(passage(text, number=n).chunk, score=cosine * 0.7, cosine=cosine)
            for n, (text, cosine) in enumerate(zip(texts, cosines, strict=True), 1)
        ]
        text, said_no = answer(asked("报销单须在多少天内交？", *hits, language="zh"))
        assert said_no is refused
        if not refused:
            assert "[1]" in text
            assert text.startswith("根据文档：")


@pytest.mark.parametrize("language", ["en", "zh"])
def test_hits_that_were_ordered_anew_are_believed_as_before(language: str) -> None:
    """Picked hits are all near the question: the best must not seem to lead the less for it."""
    question = {"en": "When must expense reports be sent?", "zh": "报销单须在多少天内交？"}[
        language
    ]
    near = [EXPENSES, CANTEEN, "Boilers.", "Turbines.", "Roads."]
    picked = [
        Hit(passage(text, number=n).chunk, score=0.5, cosine=0.75 - n / 100, rerank=0.5, around=0.3)
        for n, text in enumerate(near)
    ]
    assert not answer(asked(question, *picked, language=language))[1]
    alone = [msgspec.structs.replace(hit, around=None) for hit in picked]
    generator = ExtractiveGenerator(WordCounter())
    led, level = (
        generator.read((), asked(question, *hits)).features.cosine_lead for hits in (picked, alone)
    )
    assert led is not None and level is not None and led > 4 * level > 0.0


@pytest.mark.parametrize(
    "table",
    [
        "Sales | 2019 | 2018\nPumps | 1,452 | 1,146\nSeals | 44 | 56",
        "| 2019 | 2018\nPumps | 1,452 | 1,146\nSeals | 44 | 56",
        "|  | Fiscal |\n| 2019 | 2018\n|  | (in EUR) |\nPumps | 1,452 | 1,146\nSeals | 44 | 56",
        "| Sales | 2019 | 2018 |\n|---|---|---|\n| Pumps | 1,452 | 1,146 |\n| Seals | 44 | 56 |",
    ],
)
def test_a_cell_is_named_by_its_own_column(table: str) -> None:
    text, refused = answer(asked("What were the sales of pumps in 2018?", table, score=0.9))
    assert not refused
    assert "2018: 1,146" in text and "2019: 1,452" in text


def test_of_several_repeated_header_rows_the_fullest_names_the_columns() -> None:
    hit = passage("Pumps | 1,452 | 1,146\nSeals | 44 | 56", number=1, score=0.9)
    above = "|  | Fiscal |\n| 2019 | 2018\n|  | (in millions) |"
    hit = msgspec.structs.replace(hit, chunk=msgspec.structs.replace(hit.chunk, context=above))
    text, _ = answer(asked("What were the sales of pumps in 2018?", hit))
    assert "Pumps; 2019: 1,452; 2018: 1,146" in text


@pytest.mark.parametrize(
    ("question", "text", "quoted"),
    [
        (
            "How long does a visitor badge last?",
            "Badge:\n\n- A visitor badge lasts for the day of\n  issue, then ends.\n- Else: a day.",
            "A visitor badge lasts for the day of issue, then ends. [1]",
        ),
        (
            "访客证的有效期多长？",
            "证件：\n\n- 访客证的有效期为当天，\n  离开时交还门卫。\n- 员工证有效期一年。",
            "访客证的有效期为当天，离开时交还门卫。 [1]",
        ),
        # Chunks keep no indentation.
        (
            "访客证的有效期多长？",
            "证件：\n\n- 访客证的有效期为当天，\n离开时交还门卫。\n- 员工证有效期一年。",
            "访客证的有效期为当天，离开时交还门卫。 [1]",
        ),
        (
            "访客证的有效期多长？",
            "证件：\n\n- 访客证的有效期为签发当天到同一天的\n十八时。\n- 员工证有效期一年。",
            "访客证的有效期为签发当天到同一天的十八时。 [1]",
        ),
        (
            "How long does a visitor badge last?",
            "Badge:\n\n- A visitor badge lasts for the day,\nSundays too.\n- Else: a day.",
            "A visitor badge lasts for the day, Sundays too. [1]",
        ),
    ],
)
def test_list_items_that_go_on_in_the_next_line_are_quoted_whole(
    question: str, text: str, quoted: str
) -> None:
    language = "en" if question.isascii() else "zh"
    assert quoted in answer(asked(question, text, language=language))[0]


@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        ("The FX-200 has a fuse of 10 A. The FX-210 weighs 3 kg.", "a fuse of 10 A. [1]"),
        ("The fuse of the FX-200 was made by J. Smith.", "by J. Smith. [1]"),
        ("In 1990 A. Smith made the fuse of the FX-200.", "In 1990 A. Smith made"),
    ],
)
def test_a_unit_of_one_letter_ends_a_sentence_and_an_initial_does_not(
    text: str, quoted: str
) -> None:
    assert quoted in answer(asked("Which fuse does the FX-200 have?", text, language="en"))[0]


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_base_of_one_document_has_none_to_lead(language: str) -> None:
    """What is not known counts as what is usual."""
    question = {"en": "When are travel claims handed in?", "zh": "差旅报销何时提交？"}[language]
    generator = ExtractiveGenerator(WordCounter())

    def lead(*cosines: float) -> float:
        hits = [
            Hit(passage(f"Text {at}.", number=at).chunk, score=0.3, cosine=cosine)
            for at, cosine in enumerate(cosines, 1)
        ]
        found = generator.read((), asked(question, *hits, language=language)).features.cosine_lead
        assert found is not None
        return found

    assert lead(0.5) == lead(0.9) == lead(0.9, 0.8) == 2.0
    assert lead(0.9, 0.3, 0.3) == lead(0.9, *[0.3] * 4) == pytest.approx(0.6 / 0.085)
