"""A store of schema version 1 as that version wrote it; frozen, whatever the code does now."""

from __future__ import annotations

import sqlite3
import zlib
from contextlib import closing
from pathlib import Path

TEXT = "Leave: 15 days. 年假十五天。"

STATEMENTS = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO meta VALUES ('schema_version', 1), ('next_chunk', 4), ('version_floor', 0),
    ('removals', 1764000001);
CREATE TABLE kb (
    id INTEGER PRIMARY KEY, name TEXT UNIQUE, version INTEGER NOT NULL,
    created_at REAL NOT NULL, log_floor INTEGER NOT NULL,
    documents INTEGER NOT NULL DEFAULT 0, chunks INTEGER NOT NULL DEFAULT 0,
    pending INTEGER NOT NULL DEFAULT 0, characters INTEGER NOT NULL DEFAULT 0,
    embedder TEXT, embedder_since INTEGER NOT NULL DEFAULT 0,
    reembed_below INTEGER NOT NULL DEFAULT 0);
INSERT INTO kb VALUES (1, 'handbook', 3, 1764000000.5, 0, 1, 2, 1, 27,
    '{"name":"e5","fingerprint":"f","dimensions":2,"max_tokens":512}', 0, 0);
CREATE TABLE document (
    id INTEGER PRIMARY KEY, kb INTEGER NOT NULL, name TEXT NOT NULL, version INTEGER NOT NULL,
    first_chunk INTEGER NOT NULL, chunks INTEGER NOT NULL, characters INTEGER NOT NULL,
    updated_at REAL NOT NULL, content_hash TEXT NOT NULL, source TEXT NOT NULL,
    title TEXT NOT NULL, media_type TEXT NOT NULL, language TEXT NOT NULL,
    tags TEXT NOT NULL, groups TEXT NOT NULL, metadata TEXT NOT NULL,
    warnings TEXT NOT NULL);
CREATE UNIQUE INDEX document_name ON document (kb, name);
CREATE INDEX document_version ON document (kb, version);
INSERT INTO document VALUES (2, 1, 'leave.md', 2, 2, 2, 27, 1764000001.5, 'hash', 'leave.md',
    'Leave', 'text/markdown', 'en', '["hr"]', '["staff"]', '{"year":"2025"}', '[]');
CREATE TABLE document_text (document INTEGER PRIMARY KEY, data BLOB NOT NULL);
CREATE TABLE chunk (
    id INTEGER PRIMARY KEY, document INTEGER NOT NULL, ordinal INTEGER NOT NULL,
    start INTEGER NOT NULL, stop INTEGER NOT NULL, tokens INTEGER NOT NULL, page INTEGER,
    heading_path TEXT NOT NULL, context TEXT NOT NULL, text TEXT NOT NULL);
INSERT INTO chunk VALUES (2, 2, 0, 0, 15, 5, NULL, '["Leave"]', '', 'Leave: 15 days.'),
    (3, 2, 1, 16, 22, 6, 1, '[]', '', '年假十五天。');
CREATE TABLE embedding (
    chunk INTEGER PRIMARY KEY, kb INTEGER NOT NULL, version INTEGER NOT NULL,
    data BLOB NOT NULL);
CREATE INDEX embedding_version ON embedding (kb, version);
INSERT INTO embedding VALUES (2, 1, 3, x'003c0000');
CREATE TABLE pending (
    kb INTEGER NOT NULL, chunk INTEGER NOT NULL, PRIMARY KEY (kb, chunk)) WITHOUT ROWID;
INSERT INTO pending VALUES (1, 3);
CREATE TABLE tombstone (
    kb INTEGER NOT NULL, version INTEGER NOT NULL, first_chunk INTEGER NOT NULL,
    chunks INTEGER NOT NULL, created INTEGER NOT NULL,
    PRIMARY KEY (kb, version, first_chunk)) WITHOUT ROWID;
INSERT INTO tombstone VALUES (1, 2, 1, 1, 1);
"""


def build(folder: Path) -> None:
    """Write the store: one kb, one document replaced once, one of its two chunks embedded."""
    folder.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(folder / "record.sqlite3")) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.executescript(STATEMENTS)
        connection.execute(
            "INSERT INTO document_text VALUES (2, ?)", (zlib.compress(TEXT.encode()),)
        )
        connection.execute("UPDATE document SET characters = ?", (len(TEXT),))
        connection.execute("UPDATE kb SET characters = ?", (len(TEXT),))
        connection.commit()
