"""What requests are for, by their text: made-up ones, and public ones nobody fitted weights to."""

from __future__ import annotations

import csv
import json
import os
import random
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from forebay.kernel.context import SceneName
from forebay.kernel.stages import Message
from forebay.query.scenes import SCENES, WEIGHTS, features, scene_of

DATA = Path(os.environ.get("FOREBAY_SHARED_DATA", "../shared/data"))
shared = pytest.mark.skipif(
    not (DATA / "queries").is_dir(), reason=f"no public data in {DATA}: set FOREBAY_SHARED_DATA"
)
FUNCTION = "def gates(level):\n    if level > 3:\n        return open_gate(level)\n    return None"
FAQS = (
    "How do I report a stolen card?", "Where can I find my expense report?", "hi", "",
    "What does the annual report say about dividends?", "what is the dress code",
    "Who has to sign the analysis of variance form?", "how do i get a promo code",
    "What is the error code E42 on the dishwasher?", "the function of the spillway",
    "实验报告什么时候交？", "体检报告在哪里取", "分析师的联系方式是什么", "总结会几点开始",
    "工资代码 4021 是什么意思", "體檢報告在哪裡取",
)  # fmt: skip
REPORTS = (
    "Write a report on the spillway.", "Summarise what we know about the dam.",
    "Please prepare a two-page overview of flood control for the board.",
    "Draft an executive summary of our documents on leave", "Produce a review of all incidents.",
    "写一份关于溢洪道的报告", "请总结供应链的主要问题", "对仓储物流进行系统的评估和分析",
    "出一份季度总结", "寫一份關於溢洪道的報告", "請詳細分析客戶投訴，並提出建議",
)  # fmt: skip
CODES = (
    FUNCTION, f"```\n{FUNCTION}\n```", f"Why is this slow?\n\n{FUNCTION}",
    f"这段为什么慢？\n\n{FUNCTION}", "Write a Python function that opens a gate",
    "Refactor this method so that it is faster",
    "How do I fix TypeError: 'NoneType' object is not subscriptable?", "npm install 报错怎么解决",
    "用 Java 实现一个线程安全的缓存类", "写一个解析日志的函数", "寫一個解析日誌的函數",
)  # fmt: skip


@pytest.mark.parametrize(("scene", "texts"), [("faq", FAQS), ("report", REPORTS), ("code", CODES)])
def test_short_requests(scene: SceneName, texts: tuple[str, ...]) -> None:
    assert {text: scene_of([Message("user", text)]) for text in texts} == dict.fromkeys(
        texts, scene
    )


@pytest.mark.parametrize("page", ["The gate was open all day long. ", "闸门整天开着，水位正常。"])
@pytest.mark.parametrize("task", ["How many gates?", "Summarise it.", "有几个闸门？", "总结一下"])
def test_a_long_text_is_a_document_wherever_its_task_stands(page: str, task: str) -> None:
    text = page * 300
    for message in (f"{task}\n\n{text}", f"{text}\n\n{task}"):
        assert scene_of([Message("user", message)]) == "document"
    assert scene_of([Message("user", page * 3 + task)]) != "document"


def test_the_last_message_decides_and_what_is_allowed_weighs_little() -> None:
    turns = [Message("user", REPORTS[0]), Message("assistant", "…"), Message("user", FAQS[0])]
    assert scene_of(turns) == "faq"
    for most in (16, 4096):
        assert scene_of([Message("user", FAQS[0])], most) == "faq"
        assert scene_of([Message("user", REPORTS[0])], most) == "report"


def test_every_feature_has_weights_and_is_from_0_to_1() -> None:
    for text in (*FAQS, *REPORTS, *CODES, "\ud800 x_y" * 9000, "```" * 5000, "=" * 100_000):
        for name, value in features(text, 100).items():
            assert len(WEIGHTS[name]) == len(SCENES)
            assert 0.0 <= value <= 1.0


def _wrong(scene: SceneName, texts: Iterable[str]) -> float:
    """The share of texts that were taken for something else."""
    found = Counter(scene_of([Message("user", text)]) for text in texts)
    return 1.0 - found[scene] / found.total()


def _read(folder: str, file: str) -> list[str]:
    lines = (DATA / "retrieval" / folder / file).read_text("utf-8").splitlines()
    return [json.loads(line)["text"] for line in lines]


@shared
def test_public_questions_are_questions() -> None:
    with (DATA / "queries" / "banking77_test.csv").open(encoding="utf-8") as file:
        assert _wrong("faq", [row["text"] for row in csv.DictReader(file)]) <= 0.002
    intents = json.loads((DATA / "queries" / "clinc150.json").read_text("utf-8"))
    for part in ("test", "oos_test"):
        assert _wrong("faq", [text for text, _ in intents[part]]) <= 0.005
    for folder in ("xquad_en", "xquad_zh", "drcd_dev", "tatqa_dev"):
        assert _wrong("faq", _read(folder, "queries.jsonl")) <= 0.002


@shared
@pytest.mark.parametrize("folder", ["xquad_en", "xquad_zh", "drcd_dev", "scifact_train"])
def test_public_texts_with_a_question_are_documents(folder: str) -> None:
    chance = random.Random(7)
    passages, questions = _read(folder, "corpus.jsonl"), _read(folder, "queries.jsonl")
    texts = []
    for _ in range(100):
        parts = [chance.choice(questions), "\n\n".join(chance.sample(passages, 10))]
        chance.shuffle(parts)
        texts.append("\n\n".join(parts))
    assert _wrong("document", texts) <= 0.01
