"""``kill -9`` at any moment leaves every acknowledged commit, no half of one, and a free lock."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from forebay.kernel.documents import DocumentDraft
from forebay.store import StoreWriter
from tests.unit.store.kill_loop import KB, document


class Expected:
    """What the acknowledged lines say must be there."""

    def __init__(self) -> None:
        self.version = 0
        self.contents: dict[str, int] = {}

    def take(self, line: str) -> None:
        version, kind, argument = line.split()
        self.version = int(version)
        number = int(argument)
        if kind in ("put", "batch"):
            for each in range(number, number + (12 if kind == "batch" else 1)):
                self.contents[document(each).document_id] = each
        elif kind == "remove":
            self.contents.pop(f"d{number % 40}", None)


def run_and_kill(folder: Path, seed: int, expected: Expected, delay_s: float) -> int:
    """Let the loop run for about ``delay_s`` after it opened, kill it, return the lines read."""
    program = Path(__file__).with_name("kill_loop.py")
    process = subprocess.Popen(
        [sys.executable, str(program), str(folder), str(seed)],
        stdout=subprocess.PIPE,
        text=True,
        env={"PYTHONPATH": ":".join(filter(None, sys.path)), "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "open\n"
    timer = threading.Timer(delay_s, process.send_signal, [signal.SIGKILL])
    timer.start()
    lines = 0
    for line in process.stdout:
        if line.endswith("\n"):  # a line cut by the kill was not acknowledged
            expected.take(line)
            lines += 1
    assert process.wait(timeout=30) == -signal.SIGKILL
    timer.join()
    return lines


def stored_number(store: StoreWriter, document_id: str) -> int:
    """The number whose document is stored, having checked that all of it is there."""
    info = store.reader.document(KB, document_id)
    number = int(info.content_hash)
    whole: DocumentDraft = document(number)
    assert store.reader.document_text(KB, document_id) == whole.text
    assert info.chunks == len(whole.chunks)
    return number


def check_reopened(folder: Path, expected: Expected) -> None:
    store = StoreWriter(folder)  # raises if the killed process still held the lock
    assert store.reader.check() == ()
    version = store.reader.versions().get(KB, 0)
    # One more commit than was read may have been made: the kill came before its line.
    assert expected.version <= version <= expected.version + 1
    if version:
        stored = {
            info.document_id: stored_number(store, info.document_id)
            for info in store.reader.documents(KB)
        }
        if version == expected.version:
            assert stored == expected.contents
        else:
            changed = set(stored.items()) ^ set(expected.contents.items())
            assert len({document_id for document_id, _ in changed}) <= 12
        expected.version, expected.contents = version, stored
    store.close()


def kill_many(folder: Path, kills: int, seed: int) -> None:
    rng = random.Random(seed)
    expected = Expected()
    lines = 0
    for kill in range(kills):
        lines += run_and_kill(folder, seed + kill, expected, rng.uniform(0.0, 0.2))
        check_reopened(folder, expected)
    assert lines > kills  # the loop did get to work


def test_twenty_kills(tmp_path: Path) -> None:
    kill_many(tmp_path, 20, seed=1)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_two_hundred_kills(tmp_path: Path) -> None:
    kill_many(tmp_path, 200, seed=1000)
