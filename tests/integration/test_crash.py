"""``kill -9`` of the whole application during folder ingest and uploads, then a restart.

The record's own crash loop is in tests/unit/store; here the command line, the parser processes,
the indexes and the folder's socket die with it.
"""

from __future__ import annotations

import random
import signal
import sqlite3
import threading
import time
from contextlib import closing
from functools import partial
from pathlib import Path

import psutil
import pytest

from forebay.store import StoreReader
from forebay.store.database import record_path
from forebay.store.schema import schema_version
from tests.integration.support import (
    LEXICAL,
    Running,
    Served,
    descendants,
    forebay,
    kill_all,
    start,
    until,
)

FILES = 60
KB = "kb"


class Expected:
    """What was acknowledged: the word each document must hold, and the highest version seen."""

    def __init__(self, *, vectors: bool) -> None:
        self.vectors = vectors
        self.words: dict[str, str] = {}
        self.open: dict[str, set[str | None]] = {}
        self.version = 0

    def reached(self, version: int) -> bool:
        """Whether that version was acknowledged."""
        return self.version >= version

    def begun(self, document_id: str, word: str | None) -> None:
        """A change was sent; until it is acknowledged either state is right."""
        self.open[document_id] = {word, self.words.get(document_id)}

    def acknowledged(self, document_id: str, word: str | None, version: int) -> None:
        """The change is made."""
        del self.open[document_id]
        if word is None:
            self.words.pop(document_id, None)
        else:
            self.words[document_id] = word
        self.version = max(self.version, version)


def check_record(store: Path, expected: Expected) -> None:
    """The version rule, every rule between tables, and every acknowledged document."""
    reader = StoreReader(store)
    try:
        assert reader.check() == ()
        version = reader.versions().get(KB, 0)
        # At most the change that was under way was made without its acknowledgement, and what
        # vectors added.
        assert expected.version <= version
        assert version <= expected.version + 1 or expected.vectors
        expected.version = version
        stored = {
            info.document_id: reader.document_text(KB, info.document_id)
            for info in (reader.documents(KB) if version else ())
        }
    finally:
        reader.close()
    for document_id, word in expected.words.items():
        if document_id not in expected.open:
            assert word in stored[document_id], document_id
    for document_id, words in expected.open.items():
        text = stored.get(document_id)
        assert any((word in text) if word and text else (word is text) for word in words)
        expected.words.pop(document_id, None)
        for written in words:
            if written and text and written in text:
                expected.words[document_id] = written
    expected.open.clear()
    assert stored.keys() == expected.words.keys()


def change_for_ever(server: Served, expected: Expected, rng: random.Random) -> None:
    """Upload and remove, one after the other, until the server is gone."""
    try:
        while True:
            document_id = f"{rng.randrange(12)}.md"
            if document_id in expected.words and rng.random() < 0.3:
                expected.begun(document_id, None)
                reply = server.ask.delete(KB, document_id)
                word = None
            else:
                # Letters alone: an identifier is found by its parts, too.
                word = "".join(rng.choices("bcdfghjkmnpqrtvwxz", k=12))
                expected.begun(document_id, word)
                reply = server.ask.put(KB, document_id, f"# Title\n\n{word} {'text ' * 200}\n")
            assert reply.status == 200, reply
            expected.acknowledged(document_id, word, reply.json["kb_version"])
    except OSError:
        return


def kill(process: Running) -> None:
    """Kill the application; its parser processes must end by themselves."""
    children = descendants(process.pid)
    process.send_signal(signal.SIGKILL)
    process.wait()
    _, alive = psutil.wait_procs(children, timeout=30)
    kill_all(alive)
    assert not alive, "processes outlived their killed parent"


def kill_servers(folder: Path, kills: int, seed: int, config: str = LEXICAL) -> None:
    """Kill a served store again and again during uploads; each restart must work at once."""
    rng = random.Random(seed)
    expected = Expected(vectors=config != LEXICAL)
    # By meaning every text is like any other a little.
    most = 1 if expected.vectors else 10
    server = Served(folder, config)
    changes = 0
    try:
        for _ in range(kills):
            server.wait_ready()
            for document_id, word in list(expected.words.items())[:3]:
                assert server.ask.found(KB, word, most) == {document_id}
            before = expected.version
            changer = threading.Thread(
                target=change_for_ever, args=(server, expected, random.Random(rng.random()))
            )
            changer.start()
            enough = before + rng.randrange(6)
            until(partial(expected.reached, enough))
            time.sleep(rng.uniform(0.0, 0.1))
            kill(server.process)
            changer.join()
            changes += expected.version - before
            check_record(server.store, expected)
            server.restart()
        for document_id, word in expected.words.items():
            assert server.ask.found(KB, word, most) == {document_id}
        assert "Traceback" not in server.log()
    finally:
        status = server.stop()
    assert status == 0
    assert changes > kills


def write_corpus(folder: Path) -> None:
    folder.mkdir()
    for number in range(FILES):
        text = f"# Note {number}\n\n{unique(number)} " + "word " * 300
        (folder / f"{number}.md").write_text(text)


def unique(number: int) -> str:
    """A word of letters alone: an identifier is found by its parts, too."""
    return "unique" + str(number).translate(str.maketrans("0123456789", "bdfhjlnprt"))


def kill_ingests(folder: Path, kills: int, seed: int) -> None:
    """Kill ``forebay ingest`` of a folder again and again, then let it finish."""
    rng = random.Random(seed)
    write_corpus(folder / "notes")
    (folder / "forebay.toml").write_text(
        LEXICAL + "[ingest.folders]\ncommit_documents = 5\nmax_batch_files = 5\n"
    )
    words = ("ingest", "notes", "--kb", KB, "--store", folder / "store")
    log = folder / "log"
    log.touch()
    reached = 0
    for _ in range(kills):
        said = log.stat().st_size
        process = start(*words, folder=folder, log=log)
        if rng.random() < 0.7:  # else it dies while it starts
            until(partial(_moved, process, log, said))
        time.sleep(rng.uniform(0.0, 0.15))
        kill(process)
        reached = check_ingested(folder / "store", reached)
    ran = forebay(*words, "--json", folder=folder)
    assert ran.status == 0, ran
    assert sum(ran.json["summary"]["outcomes"].values()) == FILES
    for number in (0, FILES // 2, FILES - 1):
        found = forebay(
            "search", unique(number), "--store", folder / "store", "--json", folder=folder
        )
        assert [hit["document_id"] for hit in found.json["hits"]] == [f"notes/{number}.md"]


def _moved(process: Running, log: Path, said: int) -> bool:
    return log.stat().st_size > said or process.poll() is not None


def check_ingested(store: Path, before: int) -> int:
    """A killed ingest left whole commits of five documents, none fewer than before."""
    if not store.exists() or not any(store.glob("*.sqlite3")):
        return 0
    with closing(sqlite3.connect(record_path(store))) as connection:
        if schema_version(connection) == 0:  # killed between the file and what is to be in it
            return 0
    reader = StoreReader(store)
    try:
        assert reader.check() == ()
        version = reader.versions().get(KB, 0)
        documents = reader.kb(KB).documents if version else 0
    finally:
        reader.close()
    assert documents >= before
    assert documents == 5 * version if version < FILES // 5 else documents == FILES
    return documents


def test_four_kills_of_a_server_during_uploads(tmp_path: Path) -> None:
    kill_servers(tmp_path, 4, seed=3)


def test_three_kills_of_a_folder_ingest(tmp_path: Path) -> None:
    kill_ingests(tmp_path, 3, seed=2)


def test_two_kills_while_vectors_are_stored(tmp_path: Path) -> None:
    fast = "[ingest.vectors]\nflush_interval_s = 0.05\n"
    kill_servers(tmp_path, 2, seed=3, config=fast)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_two_hundred_kills(tmp_path: Path) -> None:
    for number, (kind, kills) in enumerate(((kill_servers, 140), (kill_ingests, 60))):
        folder = tmp_path / str(number)
        folder.mkdir()
        kind(folder, kills, seed=100 + number)
