"""From a file's bytes to what is found by words alone: encodings, scripts, numbers, identifiers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import opencc
import pytest

from forebay.ingest import ChunkSettings, EstimatedTokenCounter, StructureChunker, parse
from forebay.kernel.clock import Deadline, SystemClock
from forebay.kernel.context import Principal, RequestContext
from forebay.kernel.stages import SearchRequest
from forebay.retrieval import HybridRetriever, KbIndex, RetrievalSettings, search_executor
from forebay.testing.index_feed import MemoryIndexFeed

LINE = "GitHub备份脚本上传失败"
NOTE = (
    f"{LINE}\n\n"
    "定时任务在凌晨两点运行，日志显示网络超时。先检查访问令牌是否过期，再手动重新运行一次。\n"
    "令牌存放在密码库里，有效期为九十天。过期之后需要由管理员重新签发，并更新环境变量。\n"
)
ENCODED = {
    "utf-8": NOTE.encode(),
    "bom": NOTE.encode("utf-8-sig"),
    "gb18030": NOTE.encode("gb18030"),
    "utf-16": NOTE.encode("utf-16"),
    "utf-16-le": NOTE.encode("utf-16-le"),
    "utf-16-be": NOTE.encode("utf-16-be"),
}
OTHERS = {
    "meeting.md": "会议室需要提前一天预订，脚本由行政部门编写。",
    "returns.md": "退货需要在收到商品后七天内申请，失败的申请会退回。",
    "photos.md": "活动照片请在周五之前上传到共享文件夹。",
    "disks.md": "每台服务器有两块备用硬盘，型号为 AB-1234，容量 5 GB，售价3.5万元。",
    "shift.md": "The night shift begins at 22:00 and getUserName() returns who is on call.",
    "router.md": "The Wi-Fi router listens on port 1,812 and runs firmware v3.11.7.",
    "moon.md": "衛星電話的號碼寫在機房門後，電池容量為一萬毫安。",
}


@contextmanager
def library(folder: Path, files: Mapping[str, bytes]) -> Iterator[HybridRetriever]:
    """A retriever without an embedder over parsed and cut files."""
    record = MemoryIndexFeed(4)
    chunker = StructureChunker(ChunkSettings(), EstimatedTokenCounter())
    for name, data in files.items():
        extracted = parse(data, name=name)
        for chunk in chunker.chunk(extracted):
            record.add(
                chunk.text, document=name, title=extracted.title, language=extracted.language
            )
    executor: ThreadPoolExecutor
    with search_executor(1) as executor:
        index = KbIndex.open(folder, "kb", record, writable=True)
        yield HybridRetriever(lambda kb: index, None, RetrievalSettings(), executor)
        index.close()


async def found(retriever: HybridRetriever, query: str) -> list[str]:
    clock = SystemClock()
    context = RequestContext(
        request_id="r", principal=Principal(), deadline=Deadline.after(20, clock), clock=clock
    )
    result = await retriever.retrieve(context, SearchRequest(kb="kb", query=query, top_k=3))
    return [hit.chunk.document_id for hit in result.hits]


@pytest.mark.parametrize("encoding", ENCODED)
async def test_a_failed_backup_is_found_in_any_encoding(tmp_path: Path, encoding: str) -> None:
    files = {name: text.encode() for name, text in OTHERS.items()}
    files["backup.txt"] = ENCODED[encoding]
    with library(tmp_path, files) as retriever:
        for query in (LINE, "备份脚本上传失败", "上传 失败", "备份", "github", "備份腳本上傳失敗"):
            assert "backup.txt" in await found(retriever, query), query


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "gb18030", "utf-16"])
async def test_a_single_line_is_found_in_any_encoding(tmp_path: Path, encoding: str) -> None:
    files = {name: text.encode() for name, text in OTHERS.items()}
    files["backup.txt"] = LINE.encode(encoding)
    with library(tmp_path, files) as retriever:
        for query in ("备份脚本上传失败", "上传 失败", "备份"):
            assert "backup.txt" in await found(retriever, query), query


@pytest.mark.parametrize(
    ("query", "document"),
    [
        ("备", "disks.md"),
        ("衛", "moon.md"),
        ("卫", "moon.md"),
        ("卫星电话的号码", "moon.md"),
        ("會議室預訂", "meeting.md"),
        ("退貨申請要幾天", "returns.md"),
        ("１８１２", "router.md"),
        ("wifi", "router.md"),
        ("3.11", "router.md"),
        ("AB1234", "disks.md"),
        ("5GB", "disks.md"),
        ("35000元", "disks.md"),
        ("get_user_name", "shift.md"),
    ],
)
async def test_other_spellings_are_found(tmp_path: Path, query: str, document: str) -> None:
    files = {name: text.encode() for name, text in OTHERS.items()}
    with library(tmp_path, files) as retriever:
        assert (await found(retriever, query))[0] == document


@pytest.mark.parametrize("side", ["questions", "documents"])
def test_paragraphs_of_one_script_answer_questions_of_the_other(
    tmp_path: Path, shared_data: Path, side: str
) -> None:
    folder = shared_data / "retrieval" / "drcd_dev"
    simplify = opencc.OpenCC("t2s").convert
    record = MemoryIndexFeed(4)
    names = {}
    for line in (folder / "corpus.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        text = simplify(row["text"]) if side == "documents" else row["text"]
        [chunk] = record.add(text, document=row["_id"], language="zh")
        names[chunk] = row["_id"]
    relevant: dict[str, str] = {}
    for line in (folder / "qrels.tsv").read_text(encoding="utf-8").splitlines()[1:]:
        query, document, _ = line.split("\t")
        relevant[query] = document
    index = KbIndex.open(tmp_path, "kb", record, writable=True)
    words = index.snapshot().lexical
    found = []
    for line in (folder / "queries.jsonl").read_text(encoding="utf-8").splitlines()[::10]:
        row = json.loads(line)
        text = simplify(row["text"]) if side == "questions" else row["text"]
        ids = words.search(words.parse(text), (), 10).ids.tolist()
        found.append(relevant[row["_id"]] in [names[i] for i in ids])
    index.close()
    assert sum(found) / len(found) >= 0.99
