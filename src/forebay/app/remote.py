"""Changes through the folder's socket: the same calls, carried to the process that writes."""

from __future__ import annotations

from pathlib import Path

import msgspec

from forebay.app.writing import Emit, Writing
from forebay.kernel.clock import Clock, Deadline
from forebay.kernel.documents import CommitReceipt, KbInfo
from forebay.pipeline.folders import FileEvent, FolderRequest, IngestSummary
from forebay.pipeline.messages import Upload, WaitFor


class PutCall(msgspec.Struct, frozen=True):
    """Add or replace a document."""

    kb: str
    upload: Upload
    wait: WaitFor
    deadline_s: float


class DeleteCall(msgspec.Struct, frozen=True):
    """Remove a document."""

    kb: str
    document_id: str
    deadline_s: float


class KbCall(msgspec.Struct, frozen=True):
    """Something about one knowledge base."""

    kb: str


class RestoreCall(msgspec.Struct, frozen=True):
    """Import an export; ``file`` is a path both processes see."""

    file: str
    name: str | None
