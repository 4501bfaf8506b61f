"""Questions in one language over documents in the other, by vectors of sentences kept at ingest."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from tests.integration.support import Served, served, until

MILL = """# The paper mill

The paper mill by the river made wrapping paper until the flood carried its wheel away. Its owner
had borrowed too much to build it again, and the workers moved to the glassworks across the valley.
Bats live in the drying loft now, and the council has forbidden anyone to enter it between April and
August. A small turbine in the old channel lights the street as far as the bridge.
"""
MARKET = """# Market

Stalls may be put up from five in the morning. Fish is sold on the north side only, because of the
smell. Whoever leaves rubbish behind loses his pitch for the next three Saturdays.
"""
FERRY = """# 渡口

渡口的木船每次最多载十二人，牲畜要另外付钱。水位超过石阶第七级的时候，船夫会升起红旗，停止摆渡。
老船夫去年退休了，他的女儿接过了船桨。对岸的茶馆替晚到的旅客保管行李。
"""
TEA = """# 茶园

茶园在清明前开始采摘第一批嫩芽。炒茶的锅用松木加热，温度全凭手感。
"""
CONFIG = """
[ingest.sentences]
enabled = {enabled}

[knowledge.en]

[knowledge.zh]
"""
DOCUMENTS = (("en", "mill.md", MILL), ("en", "market.md", MARKET),
             ("zh", "ferry.md", FERRY), ("zh", "tea.md", TEA))  # fmt: skip
ASKED = (
    ("en", "造纸厂的工人后来去了哪里？", "moved to the glassworks"),
    ("zh", "What does the boatman do when the river is too high?", "船夫会升起红旗"),
    ("zh", "Who looks after the bags of travellers who come late?", "茶馆替晚到的旅客保管行李"),
)


def answer(server: Served, kb: str, question: str) -> str:
    body = {"model": f"forebay/{kb}", "messages": [{"role": "user", "content": question}]}
    message = server.ask("POST", "/v1/chat/completions", body).json["choices"][0]["message"]
    content: str = message["content"]
    return content


def chunks_with_sentences(folder: Path) -> int:
    """The chunks of all knowledge bases whose sentences have vectors, by the store's file."""
    [file] = folder.rglob("record.sqlite3")
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as connection:
        [[count]] = connection.execute("SELECT count(*) FROM sentence")
    return int(count)


def test_sentences_kept_at_ingest_answer_across_languages(tmp_path: Path) -> None:
    with served(tmp_path, CONFIG.format(enabled="false")) as server:
        for kb, name, text in DOCUMENTS:
            assert server.ask.put(kb, name, text, "?wait=embedded").json["embedded"]
        for kb, question, told in ASKED:
            assert told not in answer(server, kb, question), "words and passages do not tell"
        assert chunks_with_sentences(tmp_path) == 0

        # What was embedded before gets its sentences after the restart, while all is served.
        server.configure(CONFIG.format(enabled="true"))
        server.stop()
        server.restart()
        until(lambda: chunks_with_sentences(tmp_path) == len(DOCUMENTS), 60)
        for kb in ("en", "zh"):
            assert server.ask("GET", f"/v1/kb/{kb}").json["sentences"] == {"chunks": 2, "kept": 2}
        until(lambda: b"forebay_sentences_under_way 0.0" in server.ask("GET", "/metrics").body)
        for kb, question, told in ASKED:
            assert told in answer(server, kb, question)
        within = answer(server, "en", "Where did the workers of the paper mill move?")
        assert "moved to the glassworks" in within

        # A new document is searched before its sentences are made, and takes them along.
        assert server.ask.put("zh", "late.md", "灯塔每晚六点点亮，看守人住在塔下。").status == 200
        assert server.ask.found("zh", "灯塔看守人") >= {"late.md"}
        until(lambda: chunks_with_sentences(tmp_path) == len(DOCUMENTS) + 1, 60)
        assert server.ask.delete("zh", "late.md").status == 200
        assert chunks_with_sentences(tmp_path) == len(DOCUMENTS)
