"""Whether the record is whole: SQLite's own check, and the rules between its tables."""

from __future__ import annotations

import sqlite3

_RULES = {
    "a document is newer than its kb": (
        "SELECT count(*) FROM document d JOIN kb ON kb.id = d.kb WHERE d.version > kb.version"
    ),
    "a document belongs to no kb": (
        "SELECT count(*) FROM document WHERE kb NOT IN (SELECT id FROM kb)"
    ),
    "a document has no text": (
        "SELECT count(*) FROM document WHERE id NOT IN (SELECT document FROM document_text)"
    ),
    "a text belongs to no document": (
        "SELECT count(*) FROM document_text WHERE document NOT IN (SELECT id FROM document)"
    ),
    "a chunk is not of its document": (
        "SELECT count(*) FROM chunk c LEFT JOIN document d ON d.id = c.document AND "
        "c.id >= d.first_chunk AND c.id < d.first_chunk + d.chunks WHERE d.id IS NULL"
    ),
    "a document lacks chunks": (
        "SELECT count(*) FROM document d WHERE d.chunks <> (SELECT count(*) FROM chunk c "
        "WHERE c.id >= d.first_chunk AND c.id < d.first_chunk + d.chunks)"
    ),
    "a chunk id is beyond the sequence": (
        "SELECT count(*) FROM chunk WHERE id >= (SELECT value FROM meta WHERE key = 'next_chunk')"
    ),
    "a vector belongs to no chunk": (
        "SELECT count(*) FROM embedding WHERE chunk NOT IN (SELECT id FROM chunk)"
    ),
    "a sentence's vector belongs to no embedded chunk": (
        "SELECT count(*) FROM sentence s LEFT JOIN embedding e ON e.chunk = s.chunk "
        "AND e.kb = s.kb WHERE e.chunk IS NULL"
    ),
    "a vector is newer than its kb": (
        "SELECT count(*) FROM embedding e LEFT JOIN kb ON kb.id = e.kb "
        "WHERE kb.id IS NULL OR e.version > kb.version"
    ),
    "a pending entry belongs to no chunk": (
        "SELECT count(*) FROM pending WHERE chunk NOT IN (SELECT id FROM chunk)"
    ),
    "a chunk is neither embedded nor pending, or both": (
        "SELECT count(*) FROM chunk c WHERE (SELECT count(*) FROM embedding e WHERE e.chunk = c.id)"
        " + (SELECT count(*) FROM pending p JOIN document d ON d.kb = p.kb "
        "WHERE d.id = c.document AND p.chunk = c.id) <> 1"
    ),
    "a removal is newer than its kb": (
        "SELECT count(*) FROM tombstone t LEFT JOIN kb ON kb.id = t.kb "
        "WHERE kb.id IS NULL OR t.version > kb.version OR t.created >= t.version"
    ),
    "a kept key belongs to no chunk": (
        "SELECT count(*) FROM kept_key WHERE chunk NOT IN (SELECT id FROM chunk)"
    ),
    "two chunks have one key": (
        "SELECT count(*) FROM (SELECT 1 FROM kept_key GROUP BY digest, ordinal, version "
        "HAVING count(*) > 1)"
    ),
    "a key is retired, and a chunk has it": (
        "SELECT count(*) FROM retired_key r JOIN kept_key k ON k.digest = r.digest "
        "AND k.ordinal = r.ordinal AND k.version = r.version"
    ),
    "a retired key is newer than its kb": (
        "SELECT count(*) FROM retired_key r LEFT JOIN kb ON kb.id = r.kb "
        "WHERE kb.id IS NULL OR r.retired > kb.version OR r.version >= r.retired"
    ),
    "a retired text is of a document that was removed": (
        "SELECT count(*) FROM retired_key r LEFT JOIN document d ON d.kb = r.kb "
        "AND d.name = r.document WHERE r.data IS NOT NULL AND d.id IS NULL"
    ),
    "a kb's counters are wrong": (
        "SELECT count(*) FROM kb WHERE name IS NOT NULL AND ("
        "documents <> (SELECT count(*) FROM document d WHERE d.kb = kb.id) "
        "OR chunks <> (SELECT coalesce(sum(d.chunks), 0) FROM document d WHERE d.kb = kb.id) "
        "OR characters <> "
        "(SELECT coalesce(sum(d.characters), 0) FROM document d WHERE d.kb = kb.id) "
        "OR pending <> (SELECT count(*) FROM pending p WHERE p.kb = kb.id))"
    ),
}


def problems(connection: sqlite3.Connection, *, deep: bool) -> tuple[str, ...]:
    """One sentence per broken rule, empty for a whole record; reads the whole file.

    ``deep`` runs SQLite's ``integrity_check`` (indexes against tables) for ``quick_check``.
    """
    pragma = "integrity_check" if deep else "quick_check"
    found = [
        f"SQLite: {line}" for (line,) in connection.execute(f"PRAGMA {pragma}") if line != "ok"
    ]
    for rule, statement in _RULES.items():
        [[count]] = connection.execute(statement)
        if count:
            found.append(f"{rule} ({count}).")
    return tuple(found)
