"""The record's tables, and the ordered migrations that make them.

Chunk ids of one document are contiguous (``first_chunk`` and ``chunks`` of ``document``), because
a commit takes them from the store's sequence in one go. So the chunk table needs no index but its
key, and both change logs hold ranges or ids only: nothing of a removed text stays in them. Of a
text that was replaced the retired keys keep a copy for a while, of one that was removed nothing.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence

from forebay.kernel.chunk_keys import document_digest
from forebay.kernel.errors import StoreError, StoreTooNew

Migration = Callable[[sqlite3.Connection], None]

LINEAGE_VERSIONS = 4096
"""So many of the latest versions of a kb can be told from those of another history."""

_V1 = (
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID",
    # version_floor: a kb made anew starts here, so that no version of a dropped kb comes back.
    # removals: since when (Unix seconds) the file may hold traces of removed texts; 0: it does not.
    """INSERT INTO meta VALUES ('schema_version', 1), ('next_chunk', 1), ('version_floor', 0),
        ('removals', 0)""",
    # A kb without a name was dropped, and what it held is being removed.
    # reembed_below: a re-embedding lasts while a chunk with a smaller id lacks its vector.
    """CREATE TABLE kb (
        id INTEGER PRIMARY KEY, name TEXT UNIQUE, version INTEGER NOT NULL,
        created_at REAL NOT NULL, log_floor INTEGER NOT NULL,
        documents INTEGER NOT NULL DEFAULT 0, chunks INTEGER NOT NULL DEFAULT 0,
        pending INTEGER NOT NULL DEFAULT 0, characters INTEGER NOT NULL DEFAULT 0,
        embedder TEXT, embedder_since INTEGER NOT NULL DEFAULT 0,
        reembed_below INTEGER NOT NULL DEFAULT 0)""",
    """CREATE TABLE document (
        id INTEGER PRIMARY KEY, kb INTEGER NOT NULL, name TEXT NOT NULL, version INTEGER NOT NULL,
        first_chunk INTEGER NOT NULL, chunks INTEGER NOT NULL, characters INTEGER NOT NULL,
        updated_at REAL NOT NULL, content_hash TEXT NOT NULL, source TEXT NOT NULL,
        title TEXT NOT NULL, media_type TEXT NOT NULL, language TEXT NOT NULL,
        tags TEXT NOT NULL, groups TEXT NOT NULL, metadata TEXT NOT NULL,
        warnings TEXT NOT NULL)""",
    "CREATE UNIQUE INDEX document_name ON document (kb, name)",
    "CREATE INDEX document_version ON document (kb, version)",
    "CREATE TABLE document_text (document INTEGER PRIMARY KEY, data BLOB NOT NULL)",
    """CREATE TABLE chunk (
        id INTEGER PRIMARY KEY, document INTEGER NOT NULL, ordinal INTEGER NOT NULL,
        start INTEGER NOT NULL, stop INTEGER NOT NULL, tokens INTEGER NOT NULL, page INTEGER,
        heading_path TEXT NOT NULL, context TEXT NOT NULL, text TEXT NOT NULL)""",
    """CREATE TABLE embedding (
        chunk INTEGER PRIMARY KEY, kb INTEGER NOT NULL, version INTEGER NOT NULL,
        data BLOB NOT NULL)""",
    "CREATE INDEX embedding_version ON embedding (kb, version)",
    """CREATE TABLE pending (
        kb INTEGER NOT NULL, chunk INTEGER NOT NULL, PRIMARY KEY (kb, chunk)) WITHOUT ROWID""",
    """CREATE TABLE tombstone (
        kb INTEGER NOT NULL, version INTEGER NOT NULL, first_chunk INTEGER NOT NULL,
        chunks INTEGER NOT NULL, created INTEGER NOT NULL,
        PRIMARY KEY (kb, version, first_chunk)) WITHOUT ROWID""",
)


def _create(connection: sqlite3.Connection) -> None:
    for statement in _V1:
        connection.execute(statement)


_V2 = (
    # identity: tells this store from others where several share a cache.
    "INSERT INTO meta SELECT 'identity', random()",
    # mark: what was kept outside the store for a version is of this history only if it has the
    # version's mark; a folder that was copied or put back goes another way under the same numbers.
    """CREATE TABLE lineage (
        kb INTEGER NOT NULL, version INTEGER NOT NULL, mark INTEGER NOT NULL,
        PRIMARY KEY (kb, version)) WITHOUT ROWID""",
    "INSERT INTO lineage SELECT id, version, random() FROM kb",
    """CREATE TRIGGER kb_begun AFTER INSERT ON kb BEGIN
        INSERT OR REPLACE INTO lineage VALUES (new.id, new.version, random()); END""",
    f"""CREATE TRIGGER kb_moved AFTER UPDATE OF version ON kb WHEN new.version <> old.version BEGIN
        INSERT OR REPLACE INTO lineage VALUES (new.id, new.version, random());
        DELETE FROM lineage WHERE kb = new.id AND version <= new.version - {LINEAGE_VERSIONS};
        END""",
    "CREATE TRIGGER kb_ended AFTER DELETE ON kb BEGIN DELETE FROM lineage WHERE kb = old.id; END",
)


def _mark(connection: sqlite3.Connection) -> None:
    for statement in _V2:
        connection.execute(statement)


_V3 = (
    # digest: what the keys of the document's chunks begin with (kernel/chunk_keys.py).
    "ALTER TABLE document ADD COLUMN digest BLOB NOT NULL DEFAULT x''",
    "CREATE INDEX document_digest ON document (kb, digest)",
    # A chunk whose key is older than its document's version; the others' follow from the document.
    """CREATE TABLE kept_key (
        chunk INTEGER PRIMARY KEY, digest BLOB NOT NULL, ordinal INTEGER NOT NULL,
        version INTEGER NOT NULL)""",
    "CREATE INDEX kept_key_parts ON kept_key (digest, ordinal, version)",
    # document: NULL once that is removed. data: the old text, NULL when nobody may read it more.
    """CREATE TABLE retired_key (
        id INTEGER PRIMARY KEY AUTOINCREMENT, kb INTEGER NOT NULL, digest BLOB NOT NULL,
        ordinal INTEGER NOT NULL, version INTEGER NOT NULL, document TEXT, groups TEXT NOT NULL,
        retired INTEGER NOT NULL, retired_at REAL NOT NULL, successor TEXT, data BLOB)""",
    "CREATE UNIQUE INDEX retired_key_parts ON retired_key (kb, digest, ordinal, version)",
    "CREATE INDEX retired_key_version ON retired_key (kb, retired)",
    "CREATE INDEX retired_key_document ON retired_key (kb, document) WHERE document IS NOT NULL",
)


def _key_chunks(connection: sqlite3.Connection) -> None:
    for statement in _V3:
        connection.execute(statement)
    documents = connection.execute(
        "SELECT kb.name, d.name, d.title, d.content_hash, d.id FROM document d "
        "JOIN kb ON kb.id = d.kb WHERE kb.name IS NOT NULL"
    )
    connection.executemany(
        "UPDATE document SET digest = ? WHERE id = ?",
        [(document_digest(*parts), document) for *parts, document in documents.fetchall()],
    )


_V4 = (
    # data: vectors of a chunk's sentences. maker: of which embedder and cut they are.
    """CREATE TABLE sentence (
        chunk INTEGER PRIMARY KEY, kb INTEGER NOT NULL, maker INTEGER NOT NULL,
        data BLOB NOT NULL)""",
    "CREATE INDEX sentence_maker ON sentence (kb, maker)",
    """CREATE TABLE sentence_scale (
        maker INTEGER PRIMARY KEY, mean REAL NOT NULL, deviation REAL NOT NULL)""",
)


def _keep_sentences(connection: sqlite3.Connection) -> None:
    for statement in _V4:
        connection.execute(statement)


NO_STORE = "there is no store in this folder yet; ingest something first."

MIGRATIONS: tuple[Migration, ...] = (_create, _mark, _key_chunks, _keep_sentences)
"""Migration ``i`` takes a store of schema ``i`` to ``i + 1``; one that shipped is never edited."""


def schema_version(connection: sqlite3.Connection) -> int:
    """The schema version of an open store, 0 for an empty file."""
    [[tables]] = connection.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'meta'")
    if not tables:
        return 0
    rows = connection.execute("SELECT value FROM meta WHERE key = 'schema_version'").fetchall()
    if len(rows) != 1 or not isinstance(rows[0][0], int) or rows[0][0] < 1:
        raise StoreError("the store's file is damaged; restore the folder from a backup.")
    return int(rows[0][0])


def check_schema(connection: sqlite3.Connection, current: int = len(MIGRATIONS)) -> int:
    """Return the store's schema version; ``StoreTooNew`` when this code cannot know it."""
    found = schema_version(connection)
    if found > current:
        raise StoreTooNew(
            f"this store was written by a newer Forebay (schema {found}, this one knows "
            f"{current}); upgrade Forebay or use another folder."
        )
    return found


def require_current(connection: sqlite3.Connection, current: int = len(MIGRATIONS)) -> None:
    """Raise unless a reader may read this store as it is."""
    found = check_schema(connection, current)
    if not found:  # who made the file was killed before there was anything in it
        raise StoreError(NO_STORE)
    if found < current:
        raise StoreError(
            "this store has an older schema; start its writer once to bring it up to date."
        )


def migrate(
    connection: sqlite3.Connection, migrations: Sequence[Migration] = MIGRATIONS
) -> tuple[int, int]:
    """Bring the schema up to date, each step one transaction; return (version before, after).

    A new store is made in one, so that readers find it whole or not at all. The connection must be
    in autocommit mode and belong to the holder of the writer lock.
    """
    found, current = check_schema(connection, len(migrations)), len(migrations)
    steps = [range(version, version + 1) for version in range(found, current)]
    for step in steps if found else [range(current)]:
        connection.execute("BEGIN IMMEDIATE")
        try:
            for version in step:
                migrations[version](connection)
            connection.execute(
                "UPDATE meta SET value = ? WHERE key = 'schema_version'", (step.stop,)
            )
            connection.execute("COMMIT")
        except BaseException:
            connection.execute("ROLLBACK")
            raise
    return found, len(migrations)
