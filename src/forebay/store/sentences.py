"""Vectors of single sentences, beside their chunks': no search needs them, so no version has them.

What is kept of a chunk is opaque here; ``maker`` says of which embedder and cut it is, so what
another one made is neither read nor counted, and is made again.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence

import msgspec

from forebay.kernel.documents import ChunkRow
from forebay.kernel.sentences import SentenceScale
from forebay.store.rows import chunk_rows


class UnreadSentences(msgspec.Struct, frozen=True):
    """Chunks without vectors for their sentences, where to go on (a version of the kb and a
    chunk), and how many chunks of the kb have theirs.
    """

    rows: tuple[ChunkRow, ...]
    after: tuple[int, int]
    kept: int


def kept_sentences(
    connection: sqlite3.Connection, kb: int | None, maker: int, chunk_ids: Sequence[int]
) -> dict[int, bytes]:
    """What ``maker`` made, by chunk, of those among ``chunk_ids`` that have it; None: any kb's."""
    marks = ",".join("?" * len(chunk_ids))
    found = connection.execute(
        f"SELECT chunk, data FROM sentence WHERE chunk IN ({marks}) AND +kb = coalesce(?, kb) "
        "AND +maker = ?",
        (*chunk_ids, kb, maker),
    )
    return dict(found.fetchall())


def lacking_sentences(
    connection: sqlite3.Connection, kb: int, maker: int, after: tuple[int, int], limit: int
) -> UnreadSentences:
    """Up to ``limit`` chunks with a vector of their own and none for their sentences, in the order
    in which they were embedded.
    """
    found = connection.execute(
        "SELECT e.version, e.chunk FROM embedding e INDEXED BY embedding_version "
        "WHERE e.kb = ? AND e.version >= ? AND (e.version > ? OR e.chunk > ?) "
        "AND NOT EXISTS (SELECT 1 FROM sentence s WHERE s.chunk = e.chunk AND s.maker = ?) "
        "ORDER BY e.version, e.chunk LIMIT ?",
        (kb, after[0], *after, maker, limit),
    ).fetchall()
    rows = chunk_rows(connection, kb, [chunk for _, chunk in found])
    kept = count_sentences(connection, kb, maker)
    return UnreadSentences(tuple(rows), found[-1] if found else after, kept)


def count_sentences(connection: sqlite3.Connection, kb: int, maker: int) -> int:
    """Of how many chunks ``maker`` made them, or found that there are none."""
    [[kept]] = connection.execute(
        "SELECT count(*) FROM sentence WHERE kb = ? AND maker = ?", (kb, maker)
    )
    return int(kept)


def keep_sentences(
    connection: sqlite3.Connection, kb: int, maker: int, made: Mapping[int, bytes]
) -> int:
    """Keep what was made of the chunks that still have a vector; return of how many."""
    cursor = connection.executemany(
        "INSERT OR REPLACE INTO sentence SELECT chunk, kb, ?, ? FROM embedding "
        "WHERE chunk = ? AND kb = ?",
        [(maker, data, chunk, kb) for chunk, data in made.items()],
    )
    return cursor.rowcount


def sentences_by_content(
    connection: sqlite3.Connection, first: int, last: int
) -> dict[tuple[str, str, str], tuple[int, bytes]]:
    """Maker and data of the chunks of a span, by headings, context and text."""
    rows = connection.execute(
        "SELECT c.heading_path, c.context, c.text, s.maker, s.data FROM chunk c "
        "JOIN sentence s ON s.chunk = c.id WHERE c.id BETWEEN ? AND ?",
        (first, last),
    )
    return {(path, context, text): (maker, data) for path, context, text, maker, data in rows}


def scale_of(connection: sqlite3.Connection, maker: int) -> SentenceScale | None:
    """What was measured of a maker."""
    row = connection.execute(
        "SELECT mean, deviation FROM sentence_scale WHERE maker = ?", (maker,)
    ).fetchone()
    return None if row is None else SentenceScale(*row)


def keep_scale(connection: sqlite3.Connection, maker: int, scale: SentenceScale) -> None:
    """Keep what was measured of a maker."""
    connection.execute(
        "INSERT OR REPLACE INTO sentence_scale VALUES (?, ?, ?)",
        (maker, scale.mean, scale.deviation),
    )
