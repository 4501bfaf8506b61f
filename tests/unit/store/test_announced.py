"""The table of announced versions: what one process writes, another sees at once."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from forebay.kernel.errors import StoreError
from forebay.store.announced import ANNOUNCED_FILE, GONE, READ, READING, UNREAD, Announced


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Announced, Announced]:
    writer = Announced(tmp_path, writable=True)
    return writer, Announced(tmp_path, writable=False)


def test_a_version_is_seen_when_it_is_announced(pair: tuple[Announced, Announced]) -> None:
    writer, reader = pair
    assert reader.version("kb") is None
    for version in (1, 2, 7, 2**40):
        writer.announce("kb", version)
        assert writer.version("kb") == reader.version("kb") == version
    writer.announce("另一个 kb", 3)
    assert reader.version("另一个 kb") == 3
    assert reader.version("kb") == 2**40


def test_names_beyond_the_first_slots_are_seen_by_readers_that_mapped_less(
    pair: tuple[Announced, Announced],
) -> None:
    writer, reader = pair
    for number in range(1000):
        writer.announce(f"kb{number}", number + 1)
        assert reader.version(f"kb{number}") == number + 1
    assert all(reader.version(f"kb{number}") == number + 1 for number in range(1000))


def test_a_slot_given_away_does_not_speak_for_the_kb_that_had_it(
    pair: tuple[Announced, Announced],
) -> None:
    writer, reader = pair
    writer.announce("old", 5)
    assert reader.version("old") == 5
    writer.gone("old")
    assert reader.version("old") == GONE
    writer.announce("new", 6)
    assert reader.version("new") == 6
    assert reader.version("old") is None, "not 0: its index may still be open"
    writer.announce("old", 9)
    assert (reader.version("old"), reader.version("new")) == (9, 6)


def test_slots_are_used_again(pair: tuple[Announced, Announced], tmp_path: Path) -> None:
    writer, _ = pair
    size = (tmp_path / ANNOUNCED_FILE).stat().st_size
    for number in range(2000):
        writer.announce(f"kb{number}", number + 1)
        writer.gone(f"kb{number}")
    assert (tmp_path / ANNOUNCED_FILE).stat().st_size == size


def test_a_writer_begins_where_another_ended(tmp_path: Path) -> None:
    first = Announced(tmp_path, writable=True)
    first.announce("kept", 3)
    first.announce("dropped", 4)
    reader = Announced(tmp_path, writable=False)
    second = Announced(tmp_path, writable=True)
    second.only(["kept"])
    assert (reader.version("kept"), reader.version("dropped")) == (3, GONE)


def test_how_far_folders_were_read_is_seen_by_all(pair: tuple[Announced, Announced]) -> None:
    writer, reader = pair
    writer.tell_reading("kb", READING)
    assert reader.reading("kb") == READ, "of no such kb"
    writer.announce("kb", 0)
    for state in (READING, UNREAD, READ, READING):
        writer.tell_reading("kb", state)
        assert writer.reading("kb") == reader.reading("kb") == state
        writer.announce("kb", 5)
        assert (reader.version("kb"), reader.reading("kb")) == (5, state)


def test_nobody_reads_for_a_kb_that_is_gone_or_made_anew(
    pair: tuple[Announced, Announced],
) -> None:
    writer, reader = pair
    for kb in ("kb", "another"):  # in the same slot
        writer.announce(kb, 3)
        writer.tell_reading(kb, READING)
        writer.gone(kb)
        assert reader.reading(kb) == READ
        writer.tell_reading(kb, UNREAD)
        assert reader.version(kb) == GONE


@pytest.mark.parametrize("killed", [False, True])
def test_nobody_reads_when_the_writer_has_ended_and_another_begins(
    tmp_path: Path, killed: bool
) -> None:
    writer = Announced(tmp_path, writable=True)
    writer.announce("kb", 0)
    writer.tell_reading("kb", READING)
    reader = Announced(tmp_path, writable=False)
    if not killed:
        writer.close()
        assert reader.reading("kb") == READ
    Announced(tmp_path, writable=True).only(["kb"])
    assert reader.reading("kb") == READ


def test_a_reader_that_came_first_finds_the_table_later(tmp_path: Path) -> None:
    reader = Announced(tmp_path, writable=False)
    assert reader.version("kb") is None
    Announced(tmp_path, writable=True).announce("kb", 1)
    reader.look()
    assert reader.version("kb") == 1


@pytest.mark.parametrize("data", [b"", b"short", b"\1" * 1000, bytes(40)])
def test_a_file_that_is_no_table_is_none_and_is_made_one(tmp_path: Path, data: bytes) -> None:
    (tmp_path / ANNOUNCED_FILE).write_bytes(data)
    reader = Announced(tmp_path, writable=False)
    assert reader.version("kb") is None
    Announced(tmp_path, writable=True).announce("kb", 1)
    reader.look()
    assert reader.version("kb") == 1


def test_a_table_that_was_cut_is_used_as_far_as_it_goes(tmp_path: Path) -> None:
    Announced(tmp_path, writable=True).announce("kb", 1)
    os.truncate(tmp_path / ANNOUNCED_FILE, 100)
    writer = Announced(tmp_path, writable=True)
    for number in range(300):
        writer.announce(f"kb{number}", 2)
    reader = Announced(tmp_path, writable=False)
    assert all(reader.version(f"kb{number}") == 2 for number in range(300))


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / ANNOUNCED_FILE).mkdir()
    with pytest.raises(StoreError):
        Announced(tmp_path, writable=True)


ECHO = """
import sys
from collections.abc import Callable
from pathlib import Path
from forebay.store.announced import Announced
table = Announced(Path(sys.argv[1]), writable=False)
for line in sys.stdin:
    print(table.version("kb"), flush=True)
"""


def test_another_process_sees_it_before_the_next_message_reaches_it(tmp_path: Path) -> None:
    writer = Announced(tmp_path, writable=True)
    with subprocess.Popen(
        [sys.executable, "-c", ECHO, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        for version in range(1, 2000):
            writer.announce("kb", version)
            process.stdin.write("\n")
            process.stdin.flush()
            assert process.stdout.readline() == f"{version}\n"
        process.stdin.close()


class Interposed:
    """Words of a table; when one of them is looked at, something happens first."""

    def __init__(self, words: memoryview, at: int, act: Callable[[], None]) -> None:
        self._words, self._at, self._acts = words, at, [act]

    def __getitem__(self, at: int) -> int:
        if at == self._at and self._acts:
            self._acts.pop()()
        found: int = self._words[at]
        return found


def test_a_slot_given_away_while_it_is_read_is_not_believed(
    pair: tuple[Announced, Announced],
) -> None:
    writer, reader = pair
    writer.announce("old", 5)
    assert reader.version("old") == 5
    writer.gone("old")
    words = reader._words
    assert words is not None
    looked_at = Interposed(words, reader._slots["old"], lambda: writer.announce("new", 7))
    reader._words = looked_at  # type: ignore[assignment]
    assert reader.version("old") is None, "its index may still be open"
    assert reader.version("new") == 7
