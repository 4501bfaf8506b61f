"""Quotas changed at run time: one small file in the store folder, which every process follows.

It is written by whichever process an admin called, whole and at once; all processes look at it
once a second. So a change holds across workers and survives restarts.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import secrets
from contextlib import suppress
from pathlib import Path

import msgspec

from forebay.kernel.errors import ConfigError, StoreError, StoreFull
from forebay.policy.admission import Admission, AdmissionOverrides, AdmissionSettings
from forebay.policy.admission.load_factor import Factors

log = logging.getLogger("forebay.admission")
FILE = "admission.json"
_UNREAD = (-1, -1)


class Overriding:
    """Keeps admission at the configuration with the folder's overrides on top."""

    def __init__(self, folder: Path, admission: Admission, settings: AdmissionSettings) -> None:
        self._path = folder / FILE
        self._admission = admission
        self._settings = settings
        self._overrides = AdmissionOverrides()
        self._effective = settings
        self._seen: tuple[int, int] | None = None
        self._failure = ""

    @property
    def overrides(self) -> AdmissionOverrides:
        """What is changed at present."""
        return self._overrides

    @property
    def effective(self) -> AdmissionSettings:
        """What is in force."""
        return self._effective

    @property
    def factors(self) -> Factors:
        """What quotas are multiplied by at present."""
        return self._admission.desk.factors()

    def configure(self, settings: AdmissionSettings) -> None:
        """The configuration was read again; overrides stay on top."""
        self._settings = settings
        self._put_in_force()

    def look(self) -> None:
        """Take over the file if it changed; blocking, but for a moment."""
        state = _state(self._path)
        if state == self._seen:
            return
        try:
            data = self._path.read_bytes() if state is not None else b"{}"
            self._overrides = msgspec.json.decode(data, type=AdmissionOverrides)
        except (OSError, msgspec.MsgspecError, ConfigError, RecursionError) as error:
            # Whatever somebody wrote there must not end the server. Rights that change leave no
            # trace in the file's state, so one that could not be read is tried again.
            self._seen = _UNREAD if isinstance(error, OSError) else state
            if str(error) != self._failure:
                self._failure = str(error)
                log.error("%s cannot be read, the quotas stay as they are: %s", FILE, error)
            return
        self._seen, self._failure = state, ""
        self._put_in_force()

    async def put(self, overrides: AdmissionOverrides) -> None:
        """Write other overrides, in force here at once and elsewhere within a second."""
        await asyncio.to_thread(self._write, overrides)
        self.look()

    def _put_in_force(self) -> None:
        self._effective = self._overrides.over(self._settings)
        self._admission.replace(self._effective)

    def _write(self, overrides: AdmissionOverrides) -> None:
        temporary = self._path.with_name(f"{FILE}.{secrets.token_hex(4)}")
        try:
            if overrides == AdmissionOverrides():
                self._path.unlink(missing_ok=True)
                return
            with temporary.open("wb") as stream:
                stream.write(msgspec.json.encode(overrides))
                stream.flush()
                os.fsync(stream.fileno())
            temporary.replace(self._path)
        except OSError as error:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise StoreFull(
                    "The disk is full, so the quotas stay as they were; free some space and try "
                    "again."
                ) from error
            raise StoreError(
                "The changed quotas could not be written; the old ones hold."
            ) from error


def _state(path: Path) -> tuple[int, int] | None:
    """What tells one writing from another; None without a file."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino
