"""A folder stays in step with its knowledge base, and every file's end is told."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import pytest

from forebay.kernel.clock import SystemClock
from forebay.kernel.documents import (
    ChunkDraft,
    CommitReceipt,
    DocumentDraft,
    Extracted,
    Outcome,
)
from forebay.kernel.errors import (
    ForebayError,
    InvalidRequest,
    StoreFull,
    Unavailable,
    UnsupportedDocument,
)
from forebay.pipeline.folders import (
    ROOT_KEY,
    FileEvent,
    FolderIngest,
    FolderRequest,
    FolderSettings,
    IngestSummary,
    Known,
    Parsed,
    ParseJob,
)


class Result(msgspec.Struct, frozen=True):
    extracted: Extracted
    chunks: tuple[ChunkDraft, ...] = ()
    provisional: bool = False


class Parser:
    revision = "1"

    def __init__(self) -> None:
        self.parsed: list[str] = []

    async def parse_many(self, jobs: Sequence[ParseJob]) -> Sequence[Parsed | ForebayError]:
        await asyncio.sleep(0)
        results: list[Parsed | ForebayError] = []
        for job in jobs:
            self.parsed.append(job.name)
            if not job.data:
                results.append(UnsupportedDocument("empty"))
            else:
                text = job.data.decode()
                meta = {"groups": "hr, board"} if "secret" in text else {}
                results.append(Result(Extracted(text, (), "text/plain", metadata=meta)))
        return results


class Record:
    def __init__(self) -> None:
        self.documents: dict[str, DocumentDraft] = {}
        self.version = 0
        self.fails: ForebayError | None = None

    async def known(self, kb: str) -> Mapping[str, Known]:
        return {
            name: Known(d.content_hash, d.metadata.get(ROOT_KEY, ""))
            for name, d in self.documents.items()
        }

    async def commit(
        self, kb: str, puts: Sequence[DocumentDraft], removes: Sequence[str]
    ) -> CommitReceipt:
        if self.fails is not None:
            raise self.fails
        outcomes: list[tuple[str, Outcome]] = []
        for put in puts:
            outcomes.append(
                (put.document_id, "replaced" if put.document_id in self.documents else "indexed")
            )
            self.documents[put.document_id] = put
        for name in removes:
            del self.documents[name]
        self.version += bool(puts or removes)
        return CommitReceipt(kb, self.version, tuple(outcomes))


class Run:
    """One folder, one record, a fresh ingest each time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.parser = Parser()
        self.record = Record()
        self.events: list[FileEvent] = []

    async def __call__(self, **settings: int) -> IngestSummary:
        self.events = []

        async def emit(event: FileEvent) -> None:
            self.events.append(event)

        ingest = FolderIngest(self.parser, self.record, FolderSettings(**settings), SystemClock())
        return await ingest.run(FolderRequest("kb", str(self.folder)), emit)

    def ends(self) -> dict[str, str]:
        return {event.document_id: event.outcome for event in self.events}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    folder = tmp_path / "docs"
    (folder / "sub").mkdir(parents=True)
    (folder / "a.md").write_text("alpha")
    (folder / "sub" / "b.md").write_text("beta")
    return Run(folder)


async def test_first_changed_and_vanished_files(run: Run) -> None:
    summary = await run()
    assert summary.outcomes == {"indexed": 2}
    assert sorted(run.record.documents) == ["docs/a.md", "docs/sub/b.md"]
    (run.folder / "a.md").write_text("alpha two")
    (run.folder / "sub" / "b.md").unlink()
    (run.folder / "c.md").write_text("gamma")
    summary = await run()
    assert run.ends() == {
        "docs/a.md": "replaced",
        "docs/c.md": "indexed",
        "docs/sub/b.md": "removed",
    }
    assert sorted(run.record.documents) == ["docs/a.md", "docs/c.md"]
    run.parser.parsed.clear()
    summary = await run()
    assert summary.outcomes == {"unchanged": 2}
    assert run.parser.parsed == []


@pytest.mark.parametrize("error", [StoreFull("full"), Unavailable("away")], ids=str)
async def test_a_commit_that_is_refused_is_told_by_its_class(run: Run, error: ForebayError) -> None:
    run.record.fails = error
    with pytest.raises(type(error)):
        await run()
    run.record.fails = None
    assert (await run()).outcomes == {"indexed": 2}


async def test_a_changed_parser_parses_again(run: Run) -> None:
    await run()
    run.parser.revision = "2"
    assert (await run()).outcomes == {"replaced": 2}


async def test_a_file_that_turned_empty_no_longer_answers(run: Run) -> None:
    await run()
    (run.folder / "a.md").write_text("")
    await run()
    [event] = [event for event in run.events if event.document_id == "docs/a.md"]
    assert event.outcome == "skipped"
    assert "earlier content was removed" in event.reason
    assert "docs/a.md" not in run.record.documents


async def test_hidden_files_links_and_big_files(run: Run) -> None:
    (run.folder / ".git").mkdir()
    (run.folder / ".git" / "config").write_text("x")
    (run.folder / "link.md").symlink_to("/etc/hostname")
    (run.folder / "big.md").write_text("x" * 2000)
    await run(max_file_bytes=1000)
    ends = {event.document_id: event for event in run.events}
    assert set(ends) == {"docs/a.md", "docs/sub/b.md", "docs/link.md", "docs/big.md"}
    assert "symbolic link" in ends["docs/link.md"].reason
    assert ends["docs/big.md"].outcome == "skipped"


async def test_front_matter_groups_travel_to_the_draft(run: Run) -> None:
    (run.folder / "s.md").write_text("secret")
    await run()
    assert run.record.documents["docs/s.md"].groups == ("hr", "board")


async def test_two_folders_of_one_name_do_not_take_each_others_documents(
    run: Run, tmp_path: Path
) -> None:
    await run()
    other = tmp_path / "elsewhere" / "docs"
    other.mkdir(parents=True)
    (other / "a.md").write_text("another alpha")
    run.folder = other
    await run()
    assert run.ends() == {"docs/a.md": "skipped"}
    assert len(run.record.documents) == 2


async def test_a_missing_folder_is_wrong_use_and_removes_nothing(run: Run) -> None:
    await run()
    run.folder = run.folder / "absent"
    with pytest.raises(InvalidRequest, match="no file or folder"):
        await run()
    assert len(run.record.documents) == 2


async def test_many_files_commit_in_bounded_batches(run: Run) -> None:
    for number in range(100):
        (run.folder / f"n{number:03}.md").write_text(f"text {number}")
    await run(max_batch_files=7, commit_documents=20)
    assert len(run.record.documents) == 102
    assert [event.document_id for event in run.events] == sorted(run.ends())
    assert 4 <= run.record.version <= 15


async def test_a_path_that_cannot_be_an_id_is_skipped_with_the_reason(run: Run) -> None:
    (run.folder / "two\nlines.md").write_text("x")
    (run.folder / "red\x1b[31m.md").write_text("x")
    deep = run.folder / "d".ljust(200, "d") / "e".ljust(200, "e")
    deep.mkdir(parents=True)
    (deep / "f".ljust(200, "f")).write_text("x")
    (run.folder / "水位.md").write_text("x")
    await run()
    ends = {event.document_id: (event.outcome, event.reason) for event in run.events}
    control = "its path has control characters; rename it"
    assert ends["docs/two\\nlines.md"] == ("skipped", control)
    assert ends["docs/red\\x1b[31m.md"] == ("skipped", control)
    assert ("skipped", "its path has not 1 to 512 characters; rename it") in ends.values()
    assert ends["docs/水位.md"][0] == "indexed"
    assert set(run.record.documents) == {"docs/a.md", "docs/sub/b.md", "docs/水位.md"}
