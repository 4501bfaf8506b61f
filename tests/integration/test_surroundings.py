"""Text around hits in a served answer: citations are exact stretches, searches stay as found."""

from __future__ import annotations

from pathlib import Path

from tests.integration.support import served

CONFIG = """
[context]
surrounding_tokens = 600

[ingest.chunks]
max_tokens = 48
min_tokens = 8
overlap_tokens = 8

[embedding]
backend = "none"

[knowledge.kb]
"""
ENGLISH = """# Pumps

The green pump of hall four is serviced by the night shift.

It is switched off for that at ten in the evening, after the last delivery has come.

Then the valve with the number 7731 is closed, and the pressure is let out slowly.

At the end the shift leader signs the yellow sheet and hangs it beside the door.

# Canteen

The canteen serves soup on Mondays and fish on Fridays, as long as there is any left.
"""
CHINESE = """# 水泵

四号厅的绿色水泵由夜班负责保养，保养之前需要先通知值班经理并登记。

晚上十点最后一批货物到达之后，水泵会被关闭，任何人不得提前操作。

随后关闭编号为7731的阀门，并缓慢释放管道里的全部压力，直到归零。

最后由班长在黄色表格上签字，并把它挂在大门旁边的架子上备查。
"""


def test_citations_of_widened_passages_are_exact(tmp_path: Path) -> None:
    with served(tmp_path, CONFIG) as server:
        for name, text, question in (
            ("en.md", ENGLISH, "Which valve is closed when the green pump is serviced?"),
            ("zh.md", CHINESE, "保养绿色水泵时关闭哪个阀门？"),
        ):
            assert server.ask.put("kb", name, text).status == 200
            whole = server.ask("GET", f"/v1/kb/kb/documents/{name}").json["text"]
            hits = server.ask.search("kb", question, 5)
            body = {"model": "forebay/kb", "messages": [{"role": "user", "content": question}]}
            answer = server.ask("POST", "/v1/chat/completions", body).json
            [citation, *_] = answer["citations"]
            assert whole[citation["start"] : citation["end"]] == citation["text"]
            [found] = [hit for hit in hits if str(hit["chunk_id"]) == str(citation["chunk_id"])]
            assert len(citation["text"]) > len(found["text"]), "a stretch of several chunks"
            assert found["text"] in citation["text"]
            assert "7731" in answer["choices"][0]["message"]["content"]
