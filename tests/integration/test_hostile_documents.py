"""Files made to hurt: each costs one error line, or is indexed, and the pool goes on."""

from __future__ import annotations

import asyncio
import io
import time
import zipfile
import zlib
from collections.abc import AsyncIterator, Callable

import msgspec
import psutil
import pytest

from forebay.ingest import ChunkSettings, IngestLimits, ParsedDocument, ParsePool, PoolSettings
from forebay.ingest.frames import CounterChoice
from forebay.kernel.errors import Overloaded, UnsupportedDocument
from tests.pdf import pdf_of

W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
COUNTERS = "tests.integration.strange_counters"
SETTINGS = PoolSettings(
    workers=2, task_timeout_s=60.0, task_cpu_s=6, worker_memory_bytes=600_000_000
)


class Job(msgspec.Struct, frozen=True):
    name: str
    data: bytes
    media_type: str | None = None


@pytest.fixture
async def pool() -> AsyncIterator[ParsePool]:
    async with ParsePool(SETTINGS) as started:
        yield started


def zipped(parts: dict[str, bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, data in parts.items():
            archive.writestr(name, data)
    return file.getvalue()


def docx(body: str, *, prologue: str = "") -> bytes:
    xml = f'{prologue}<w:document xmlns:w="{W}"><w:body>{body}</w:body></w:document>'
    return zipped({"word/document.xml": xml.encode(), "[Content_Types].xml": b"<Types/>"})


def bomb(part: str, extra: dict[str, bytes] | None = None) -> bytes:
    return zipped({part: b"\x20" * 250_000_000, **(extra or {})})


def lying_zip(part: str) -> bytes:
    """A zip whose directory promises ten bytes where a hundred million come out."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    body = packer.compress(b" " * 100_000_000) + packer.flush()
    data = zipped({part: b"x" * 10})
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        entry = archive.getinfo(part)
    start = entry.header_offset + 30 + len(part)
    return data[:start] + body[: entry.compress_size] + data[start + entry.compress_size :]


def endless_page_tree() -> bytes:
    return pdf_of(
        [
            "<< /Type /Catalog /Pages 2 0 R >>",
            "<< /Type /Pages /Kids [2 0 R 2 0 R 3 0 R] /Count 2000000000 >>",
            "<< /Type /Pages /Parent 2 0 R /Kids [2 0 R] /Count 2000000000 >>",
        ]
    )


def billion_laughs() -> str:
    lines = ['<!ENTITY a0 "laugh">']
    lines += [f'<!ENTITY a{i} "' + f"&a{i - 1};" * 10 + '">' for i in range(1, 12)]
    return f"<?xml version='1.0'?><!DOCTYPE d [{''.join(lines)}]>"


REFUSED: dict[str, tuple[str, Callable[[], bytes], tuple[str, ...]]] = {
    "zip bomb docx": ("a.docx", lambda: bomb("word/document.xml"), ("too_large",)),
    "zip bomb xlsx": ("a.xlsx", lambda: bomb("xl/workbook.xml"), ("too_large",)),
    "zip bomb epub": ("a.epub", lambda: bomb("META-INF/container.xml"), ("too_large",)),
    "lying zip": ("a.docx", lambda: lying_zip("word/document.xml"), ("damaged",)),
    "many entries": (
        "a.docx",
        lambda: zipped({f"word/{i}.xml": b"" for i in range(20_000)}),
        ("too_large",),
    ),
    "endless page tree": ("a.pdf", endless_page_tree, ("damaged", "empty", "too_slow")),
    "cut pdf": ("a.pdf", lambda: endless_page_tree()[:60], ("damaged", "empty")),
    "billion laughs docx": (
        "a.docx",
        lambda: docx("<w:p><w:r><w:t>&a11;</w:t></w:r></w:p>", prologue=billion_laughs()),
        ("damaged", "empty"),
    ),
    "deep xml": (
        "a.docx",
        lambda: docx("<w:p>" * 2_000 + "</w:p>" * 2_000),
        ("damaged",),
    ),
    "cut zip": ("a.xlsx", lambda: docx("<w:p/>")[:80], ("damaged",)),
    "file of NULs": ("a.txt", lambda: b"\x00" * 100_000, ("empty",)),
    "docx that is a zip of text": (
        "a.docx",
        lambda: zipped({"hello.txt": b"hello"}),
        ("unsupported_document",),
    ),
}


@pytest.mark.parametrize("case", sorted(REFUSED))
async def test_hostile_file_costs_one_sentence(case: str, pool: ParsePool) -> None:
    name, make, codes = REFUSED[case]
    with pytest.raises(UnsupportedDocument) as caught:
        await pool.parse_bytes(make(), name=name)
    assert caught.value.code in codes, caught.value.message
    assert caught.value.message.endswith(".") and "Traceback" not in caught.value.message
    after = await pool.parse_bytes(b"still here", name="a.txt")
    assert after.chunks[0].text == "still here"


INDEXED: dict[str, tuple[str, Callable[[], bytes], str]] = {
    "long line": ("a.txt", lambda: b"word " * 30_000, "word word"),
    "long line without spaces": ("a.txt", lambda: b"x" * 130_000, "xxxx"),
    "long Chinese line": ("a.txt", ("规定" * 65_000).encode, "规定规定"),
    "combining marks": ("a.txt", ("e" + "\u0301" * 50_000).encode, "e\u0301"),
    "nested json": ("a.json", lambda: b"[" * 100 + b'"deep"' + b"]" * 100, "deep"),
    "very nested json": ("a.json", lambda: b"[" * 200_000 + b'"deep"' + b"]" * 200_000, "deep"),
    "nested html": ("a.html", lambda: b"<div>" * 100 + b"deep" + b"</div>" * 100, "deep"),
    "very nested html": (
        "a.html",
        lambda: b"<div>" * 20_000 + b"deep" + b"</div>" * 20_000,
        "deep",
    ),
    "huge spans": (
        "a.html",
        lambda: b"<table><tr><td colspan=99999 rowspan=99999>deep<td>b</table>" * 50,
        "deep",
    ),
    "nested quotes": ("a.md", lambda: b"> " * 5_000 + b"deep\n\nshallow", "shallow"),
    "nested brackets": ("a.md", lambda: b"[" * 20_000 + b" deep", "deep"),
    "huge csv field": ("a.csv", lambda: b'a,"' + b"deep " * 60_000 + b'"\n', "deep"),
    "huge number": ("a.json", lambda: b'{"deep": ' + b"9" * 100_000 + b"}", "deep"),
    "html entities": ("a.html", lambda: b"<p>deep " + b"&amp;" * 100_000, "deep"),
    "xml entities": ("a.xml", (billion_laughs() + "<d>deep</d>").encode, "deep"),
    "nested mail": (
        "a.eml",
        lambda: b"Subject: deep\n" + b"Content-Type: message/rfc822\n\n" * 50 + b"x",
        "deep",
    ),
}


@pytest.mark.parametrize("case", sorted(INDEXED))
async def test_strange_file_is_indexed(case: str, pool: ParsePool) -> None:
    name, make, fragment = INDEXED[case]
    parsed = await pool.parse_bytes(make(), name=name)
    text = parsed.extracted.text
    assert fragment in text
    assert "\ufffd" not in text
    most = ChunkSettings().max_tokens
    assert all(c.tokens <= most and text[c.start : c.end] == c.text for c in parsed.chunks)


async def test_a_lost_worker_costs_one_file_and_the_batch_goes_on(pool: ParsePool) -> None:
    killer = Job("a.docx", bomb("word/document.xml"))
    jobs = [Job(f"{i}.txt", f"file {i}".encode()) for i in range(10)]
    jobs.insert(4, killer)
    results = await pool.parse_many(jobs)
    assert [isinstance(r, ParsedDocument) for r in results] == [i != 4 for i in range(11)]


@pytest.mark.parametrize(("counter", "word"), [("Sleeper", "sleep"), ("Spinner", "spin")])
async def test_too_slow_a_file_is_ended_and_its_batch_goes_on(counter: str, word: str) -> None:
    timeout = 2.0 if counter == "Sleeper" else 30.0
    settings = PoolSettings(workers=1, task_timeout_s=timeout, task_cpu_s=1)
    async with ParsePool(settings, counter=CounterChoice(f"{COUNTERS}:{counter}")) as pool:
        results = await pool.parse_many([Job("a.txt", word.encode()), Job("b.txt", b"wake")])
        assert isinstance(results[0], UnsupportedDocument)
        assert results[0].code == "too_slow"
        assert isinstance(results[1], ParsedDocument)
        assert pool.statistics()["started"] == 2


async def test_memory_is_bounded() -> None:
    limits = IngestLimits(max_archive_ratio=2_000, max_archive_bytes=2_000_000_000)
    settings = PoolSettings(workers=1, worker_memory_bytes=250_000_000, task_timeout_s=20.0)
    cells = b"<row>" + b'<c t="str"><v>deep</v></c>' * 40
    rows = b"<worksheet><sheetData>" + (cells + b"</row>") * 200_000
    data = zipped({"word/document.xml": rows + b"</sheetData></worksheet>"})
    async with ParsePool(settings, limits) as pool:
        with pytest.raises(UnsupportedDocument) as caught:
            await pool.parse_bytes(data, name="a.docx")
        assert caught.value.code in ("too_large", "crashed")
        assert (await pool.parse_bytes(b"fine", name="a.txt")).chunks


async def test_cancellation_kills_the_task_and_close_leaves_no_process() -> None:
    settings = PoolSettings(workers=1, task_timeout_s=60.0)
    async with ParsePool(settings) as pool:
        await pool.parse_bytes(b"warm", name="a.txt")
        (pid,) = pool.process_ids()
        slow = b"*a **b " * 80_000
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await pool.parse_bytes(slow, name="a.md")
        await gone(pid)
        assert (await pool.parse_bytes(b"again", name="a.txt")).chunks
        (other,) = pool.process_ids()
        assert other != pid
    await gone(other)
    with pytest.raises(Overloaded):
        await pool.parse_bytes(b"late", name="a.txt")


async def test_killed_workers_are_replaced(pool: ParsePool) -> None:
    await pool.parse_bytes(b"warm", name="a.txt")
    for pid in pool.process_ids():
        psutil.Process(pid).kill()
    jobs = [Job(f"{number}.txt", b"text") for number in range(4)]
    results = await pool.parse_many(jobs)
    assert {r.code for r in results if isinstance(r, UnsupportedDocument)} <= {"crashed"}
    assert (await pool.parse_bytes(b"text", name="last.txt")).chunks


async def test_the_queue_is_bounded() -> None:
    settings = PoolSettings(workers=1, max_waiting=2)
    async with ParsePool(settings) as pool:
        calls = (pool.parse_bytes(b"text", name="a.txt") for _ in range(8))
        results = await asyncio.gather(*calls, return_exceptions=True)
    assert sum(isinstance(r, Overloaded) for r in results) == 5
    assert sum(isinstance(r, ParsedDocument) for r in results) == 3


async def test_workers_are_small(pool: ParsePool) -> None:
    await pool.parse_many([Job(f"{i}.txt", b"word " * 1000) for i in range(200)])
    for pid in pool.process_ids():
        process = psutil.Process(pid)
        loaded = {mapped.path for mapped in process.memory_maps()}
        assert not any("numpy" in p or "onnx" in p or "faiss" in p for p in loaded)
        assert process.memory_info().rss < 100_000_000


async def test_workers_cannot_reach_the_network() -> None:
    async with ParsePool(
        PoolSettings(workers=1), counter=CounterChoice(f"{COUNTERS}:Dialler")
    ) as pool:
        parsed = await pool.parse_bytes(b"text", name="a.txt")
        assert parsed.chunks[0].tokens == 7


async def test_files_are_read_by_the_worker(pool: ParsePool, tmp_path: object) -> None:
    path = f"{tmp_path}/note.md"
    with open(path, "w", encoding="utf-8") as file:  # noqa: PTH123 - one line of set-up
        file.write("# 规定\n\n员工应当登记。\n")
    parsed = await pool.parse_file(path)
    assert parsed.extracted.title == "规定"
    with pytest.raises(UnsupportedDocument, match="cannot be read"):
        await pool.parse_file(f"{tmp_path}/absent.md")


async def gone(pid: int) -> None:
    """Wait until a process has ended and was reaped."""
    until = time.monotonic() + 60
    while psutil.pid_exists(pid):
        assert time.monotonic() < until, "the process is still there"
        await asyncio.sleep(0.01)
