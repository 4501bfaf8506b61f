"""The record: documents, chunks, vectors and versions in one SQLite file per store folder."""

from forebay.store.maintenance import MaintenanceReport
from forebay.store.reader import DocumentStamp, EmbedderState, StoreReader
from forebay.store.settings import StoreSettings
from forebay.store.writer import StoreWriter

__all__ = [
    "DocumentStamp",
    "EmbedderState",
    "MaintenanceReport",
    "StoreReader",
    "StoreSettings",
    "StoreWriter",
]
