"""Chunks by meaning from real worker processes and an embedder."""

from __future__ import annotations

from forebay.ingest import ChunkSettings, ParsedDocument, ParsePool, PoolSettings
from forebay.kernel.errors import ForebayError
from forebay.pipeline.folders import ParseJob
from forebay.pipeline.meaning import MeaningParser, MeaningSettings
from forebay.testing.embedding import HashEmbedder

PUMPS = "The pump pumps water. The pump pumps hot water. The pump pumps cold water. "
LEAVE = "Leave is granted in March. Leave is granted in April. Leave is granted in May. "
ZH = "水泵抽水。水泵抽很多水。水泵抽水很快。请假须申请。请假须批准。请假须登记。"
CHUNKS = ChunkSettings(
    max_tokens=120, min_tokens=8, overlap_tokens=0, kind="meaning", break_percentile=20.0
)
JOBS = [
    ParseJob("a.md", f"# Works\n\n{PUMPS}{LEAVE}\n".encode()),
    ParseJob("b.txt", ZH.encode("gb18030")),
    ParseJob("c.csv", b"part,price\nseal,3\nbolt,4\n"),
    ParseJob("d.pdf", b"%PDF-1.4 broken"),
]


async def test_files_are_cut_where_their_meaning_changes() -> None:
    async with ParsePool(PoolSettings(workers=1), chunks=CHUNKS) as pool:
        parser = MeaningParser(pool, HashEmbedder(), CHUNKS.break_percentile, MeaningSettings())
        english, chinese, table, broken = await parser.parse_many(JOBS)
        assert not isinstance(english, ForebayError) and not isinstance(chinese, ForebayError)
        assert [c.text for c in english.chunks] == [f"Works\n\n{PUMPS.strip()}", LEAVE.strip()]
        assert [c.text[:2] for c in chinese.chunks] == ["水泵", "请假"]
        for found in (english, chinese):
            text = found.extracted.text
            assert all(text[c.start : c.end] == c.text for c in found.chunks)
        assert not isinstance(table, ForebayError) and len(table.chunks) == 1
        assert isinstance(broken, ForebayError)


async def test_the_kind_of_chunks_is_part_of_the_revision() -> None:
    async with ParsePool(chunks=CHUNKS) as meaning, ParsePool() as structure:
        assert meaning.revision != structure.revision
        [read] = await structure.parse_many(JOBS[:1])
        assert isinstance(read, ParsedDocument) and not read.sentences
