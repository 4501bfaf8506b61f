"""Run as a program: commits for ever in the folder given, printing what is acknowledged.

Line: ``version kind argument``. A document's content is a function of its number, so the
test can tell a whole commit from half of one.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

from forebay.kernel.documents import ChunkDraft, DocumentDraft
from forebay.store import StoreWriter
from forebay.testing.feed_suite import unit_vectors

KB = "kb"


def document(number: int) -> DocumentDraft:
    chunks, at = [], 0
    for ordinal in range(number % 7 + 1):
        text = f"{number}.{ordinal} 段落 " + "x" * (number * 37 % 3000)
        chunks.append(ChunkDraft(ordinal, at, at + len(text), text, 1))
        at += len(text)
    text = "".join(chunk.text for chunk in chunks)
    return DocumentDraft(f"d{number % 40}", "s", str(number), f"t{number}", text, tuple(chunks))


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main(folder: Path, seed: int) -> None:
    rng = random.Random(seed)
    with_maintenance = 0
    store = StoreWriter(folder)
    say("open")
    while True:
        kind = rng.choices(["put", "batch", "remove", "embed", "maintain"], [6, 2, 1, 2, 1])[0]
        argument = str(rng.randrange(100_000))
        if kind == "put":
            version = store.commit(KB, [document(int(argument))], []).version
        elif kind == "batch":
            first = int(argument)
            puts = [document(number) for number in range(first, first + 12)]
            version = store.commit(KB, puts, []).version
        elif not with_maintenance:
            version = store.commit(KB, [document(int(argument))], []).version
            kind, with_maintenance = "put", 1
        elif kind == "remove":
            version = store.commit(KB, [], [f"d{int(argument) % 40}"]).version
        elif kind == "embed":
            ids = [row.chunk_id for row in store.pending(KB, int(argument) % 30)]
            version = store.store_vectors(KB, unit_vectors(ids), "f")
        else:
            version = store.reader.version(KB)
            store.maintain({KB: max(0, version - 5)})
        say(f"{version} {kind} {argument}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
