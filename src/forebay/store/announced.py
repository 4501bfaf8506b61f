"""The announced version of every kb, in memory that all processes of a store folder share.

The writer puts a version here when its indexes show it and before it acknowledges the change, so
a process that looks here when a query starts knows of every change that was acknowledged before:
no message has to arrive, and no process that is frozen or slow has to be waited for.

The file is a table of slots of four words: slot 0 has a magic number and how often a slot was
given away, each other one a version, the hash of a name and how far the folders of a kb were read.
A word is read and written whole. The record stays the truth: after a power loss, or in a folder
brought back from a backup, a number here may be ahead of it.
"""

from __future__ import annotations

import errno
import hashlib
import mmap
import os
import sys
from collections.abc import Iterable
from pathlib import Path

from forebay.kernel.errors import StoreError
from forebay.store.faults import translated

ANNOUNCED_FILE = "announced"
GONE = (1 << 64) - 1
"""The version of a kb that was dropped: no index can have it."""

READ = 0
"""The configured folders of a kb were read whole, or it has none, or nobody reads any now."""
READING = 1
"""The process that writes reads them for the first time since it began."""
UNREAD = 2
"""It could not read them whole."""

_MAGIC = 0x46_62_56_65_72_73_00_01
_WORD_BYTES = 8
_SLOT_WORDS = 4
_SLOT_BYTES = _SLOT_WORDS * _WORD_BYTES
_HASH_BYTES = 16
_GROWTH_SLOTS = 128
_READING_WORD = 3
_NAMINGS = 1
"""The word that counts how often a slot was given to a name."""


class Announced:
    """The table of one folder; ``writable`` in the process that holds the writer's lock.

    ``version`` may be called from any thread and takes a fraction of a microsecond; ``announce``,
    ``gone`` and ``only`` come from one thread at a time.
    """

    def __init__(self, folder: Path, *, writable: bool) -> None:
        self._path = folder / ANNOUNCED_FILE
        self._writable = writable
        self._words: memoryview | None = None
        self._hashes: dict[bytes, int] = {}
        self._slots: dict[str, int] = {}
        self._namings = -1
        if writable:
            with translated():
                self._make()
        self.look()
        if writable and self._words is None:
            raise StoreError("the store's folder cannot hold a file that processes share.")

    def version(self, kb: str) -> int | None:
        """The announced version or ``GONE``; None: nothing was announced of this kb."""
        return self._word(kb, 0)

    def reading(self, kb: str) -> int:
        """``READ``, ``READING`` or ``UNREAD``; as quick as ``version``."""
        return self._word(kb, _READING_WORD) or READ

    def _word(self, kb: str, at: int) -> int | None:
        words = self._words
        if words is None:
            return None
        while True:
            # In this order: what another thread learns, it counts last.
            namings = self._namings
            slots, hashes = self._slots, self._hashes
            slot = slots.get(kb)
            if slot is None:
                slot = hashes.get(_hash(kb))
                if slot is not None:
                    slots[kb] = slot
            word: int | None = None if slot is None else words[slot + at]
            # Looked at after the slot: it may have been given to another kb since it was learned.
            if words[_NAMINGS] == namings:
                return word
            self._learn()
            # A table that has grown since is the same file.
            words = self._words or words

    def look(self) -> None:
        """Take up the table when a writer has made it; does nothing once that is done."""
        if self._words is None:
            with translated():
                self._words = self._mapped()

    def announce(self, kb: str, version: int) -> None:
        """From now on no query may be answered from an older version."""
        if self.version(kb) is None:
            self._name(kb)
        assert self._words is not None
        self._words[self._slots[kb]] = version

    def tell_reading(self, kb: str, state: int) -> None:
        """Say how far the folders of a kb were read whose version was announced."""
        if self.version(kb) is not None:
            assert self._words is not None
            self._words[self._slots[kb] + _READING_WORD] = state

    def gone(self, kb: str) -> None:
        """The kb was dropped: nothing may be answered from it."""
        if self.version(kb) is not None:
            self.announce(kb, GONE)
            self.tell_reading(kb, READ)

    def only(self, kbs: Iterable[str]) -> None:
        """At a writer's start: whatever else has a slot is gone, should a drop have been cut, and
        nobody reads folders yet.
        """
        assert self._words is not None
        self._learn()
        self._rest()
        for found in self._hashes.keys() - set(map(_hash, kbs)):
            self._words[self._hashes[found]] = GONE

    def close(self) -> None:
        """Let the file go; nothing is known of any kb any more, and nobody reads folders."""
        if self._writable:
            self._rest()
        self._words = None

    def _rest(self) -> None:
        words = self._words
        for slot in range(_SLOT_WORDS, 0 if words is None else len(words), _SLOT_WORDS):
            assert words is not None
            words[slot + _READING_WORD] = READ

    # The file

    def _make(self) -> None:
        """Write the first slots out: in a file with holes a full disk would be told by a signal."""
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if os.pread(file, _WORD_BYTES, 0) != _MAGIC.to_bytes(_WORD_BYTES, sys.byteorder):
                size = max(os.fstat(file).st_size, _SLOT_BYTES * (1 + _GROWTH_SLOTS))
                _write(file, bytes(size), 0)
                _write(file, _MAGIC.to_bytes(_WORD_BYTES, sys.byteorder), 0)
        finally:
            os.close(file)

    def _mapped(self) -> memoryview | None:
        """The file as large as it is now; None when there is none, or no whole one."""
        flags = os.O_RDWR if self._writable else os.O_RDONLY
        try:
            file = os.open(self._path, flags | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            size = os.fstat(file).st_size // _SLOT_BYTES * _SLOT_BYTES
            if not size:
                return None
            access = mmap.ACCESS_WRITE if self._writable else mmap.ACCESS_READ
            words = memoryview(mmap.mmap(file, size, access=access)).cast("Q")
        finally:
            os.close(file)
        return words if words[0] == _MAGIC else None

    def _learn(self) -> None:
        """Read whose the slots are. Who gives one away counts that after it, so that one which
        was half given is read again.
        """
        words = self._words
        assert words is not None
        namings = words[_NAMINGS]
        with translated():
            words = self._mapped() or words
        table = words.cast("B")
        hashes = {}
        for slot in range(_SLOT_WORDS, len(words), _SLOT_WORDS):
            at = (slot + 1) * _WORD_BYTES
            found = bytes(table[at : at + _HASH_BYTES])
            if any(found):
                hashes[found] = slot
        self._words, self._hashes, self._slots, self._namings = words, hashes, {}, namings

    def _name(self, kb: str) -> None:
        """Give ``kb`` a slot that nobody has, or whose kb is gone."""
        slot = self._free()
        if slot is None:
            self._grow()
            slot = self._free()
        assert slot is not None and self._words is not None
        self._words[slot], self._words[slot + _READING_WORD] = GONE, READ
        at = (slot + 1) * _WORD_BYTES
        self._words.cast("B")[at : at + _HASH_BYTES] = _hash(kb)
        self._words[_NAMINGS] += 1
        self._learn()
        self._slots[kb] = slot

    def _free(self) -> int | None:
        words = self._words
        assert words is not None
        taken = {slot for slot in self._hashes.values() if words[slot] != GONE}
        every = range(_SLOT_WORDS, len(words), _SLOT_WORDS)
        return next((slot for slot in every if slot not in taken), None)

    def _grow(self) -> None:
        assert self._words is not None
        with translated():
            file = os.open(self._path, os.O_WRONLY | os.O_CLOEXEC)
            try:
                size = len(self._words) * _WORD_BYTES
                _write(file, bytes(_SLOT_BYTES * _GROWTH_SLOTS), size)
            finally:
                os.close(file)
            self._words = self._mapped()


def _hash(kb: str) -> bytes:
    return hashlib.blake2b(kb.encode("utf-8", "surrogatepass"), digest_size=_HASH_BYTES).digest()


def _write(file: int, data: bytes, at: int) -> None:
    if os.pwrite(file, data, at) != len(data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
