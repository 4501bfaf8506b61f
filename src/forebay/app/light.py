"""The light encoder of queries: fitted in the background by who writes, read by who searches.

One encoder a store and embedder, in the store: ``light/<fingerprint>.npz``. It is
fitted when all chunks and sentences have their vectors, and anew when there are twice as many
chunks, or half. Its texts are embedded after everything else, in threads that step back.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Event
from typing import TypeVar

import msgspec
import numpy as np

from forebay.app.sentence_record import sentences_of
from forebay.embedding.light import Floats, LightDescription, LightEncoder, Tokens
from forebay.embedding.light_fit import LightTraining, fit_light, question_like
from forebay.embedding.workers import step_back
from forebay.kernel.clock import Clock
from forebay.kernel.documents import Vectors
from forebay.kernel.errors import ForebayError
from forebay.kernel.stages import Embedder
from forebay.store import StoreReader

log = logging.getLogger("forebay.light")
T = TypeVar("T")

LOOK_S = 10.0
"""How often the writing process asks whether an encoder is due."""
SEEN_S = 2.0
"""How long a searching process goes by what it last saw of the file."""
LEAST_KNOWN = 0.5
"""Share of a query's weight in known tokens under which its light vector says too little."""
LEAST_SENTENCES, MOST_SENTENCES, MOST_CHUNKS = 256, 6000, 3000
"""Fewer sentences fit nothing that is of use; more cost a minute of processor time and more."""
LEAST_COSINE = 0.4
"""To the embedder's own vectors of texts that were held out; below it words alone are better."""
QUESTIONS = 0.5
"""Of the sentences, so many give a piece that is put as a question, too."""
_AT_ONCE = 32
_ROWS = 128
_NICENESS = 10
_SEED = 7
_TOKENS = 128


def light_file(folder: Path, fingerprint: str) -> Path:
    """Where the encoder of an embedder is kept in a store's folder."""
    return folder / "light" / f"{fingerprint}.npz"


class LightQueries:
    """``LightVector`` by the file as it is; called from threads that search."""

    def __init__(self, path: Path, fingerprint: str, tokens: Tokens, clock: Clock) -> None:
        self._path, self._fingerprint = path, fingerprint
        self._tokens, self._clock = tokens, clock
        self._looked_at = -SEEN_S
        self._mark: tuple[int, int] | None = None
        self._encoder: LightEncoder | None = None

    def __call__(self, text: str) -> Floats | None:
        """The query's light vector, (1, dimensions); None: too few of its words are known."""
        encoder = self.encoder()
        if encoder is None:
            return None
        vector, known = encoder.encode(self._tokens(text)[:_TOKENS])
        return vector if known >= LEAST_KNOWN else None

    def encoder(self) -> LightEncoder | None:
        """The encoder, read anew where its file is another."""
        now = self._clock.now()
        if now - self._looked_at >= SEEN_S:
            # Whoever else looks at the same time reads the same.
            self._looked_at = now
            mark = _mark(self._path)
            if mark != self._mark:
                found = None if mark is None else LightEncoder.read(self._path)
                fits = found is not None and found.description.fingerprint == self._fingerprint
                self._encoder, self._mark = found if fits else None, mark
        return self._encoder


def _mark(path: Path) -> tuple[int, int] | None:
    try:
        told = path.stat()
    except OSError:
        return None
    return told.st_mtime_ns, told.st_size


class FittingParts(msgspec.Struct, frozen=True):
    """What fitting works with; ``settled`` says whether everything else has its vectors."""

    reader: StoreReader
    embedder: Embedder
    tokens: Tokens
    settled: Callable[[], bool]


class LightFitting:
    """Fits the encoder whenever one is due; ``close`` ends its thread."""

    def __init__(self, parts: FittingParts, path: Path) -> None:
        self._parts, self._path = parts, path
        self._executor = ThreadPoolExecutor(1, "light", initializer=partial(step_back, _NICENESS))
        self._useless_at = 0
        self._closed = Event()

    def close(self) -> None:
        """Drop what waits; what runs ends within a batch."""
        self._closed.set()
        self._executor.shutdown(wait=True, cancel_futures=True)

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            try:
                await self.round()
            except ForebayError as error:
                log.info("the light encoder is not fitted now: %s", error.message)
            except Exception:  # searches go without, and so must everything else
                log.exception("fitting the light encoder failed")
            await asyncio.sleep(LOOK_S)

    async def round(self) -> bool:
        """Fit if it is due; return whether there is a new encoder."""
        chunks = await self._run(self._due)
        if not chunks:
            return False
        texts = await self._texts()
        if len(texts) < LEAST_SENTENCES:
            self._useless_at = chunks
            return False
        made = [
            await self._parts.embedder.embed(texts[start : start + _AT_ONCE], kind="query")
            for start in range(0, len(texts), _AT_ONCE)
        ]
        encoder = await self._run(partial(self._fitted, texts, made, chunks))
        if encoder is None:
            self._useless_at = chunks
            return False
        await self._run(partial(encoder.write, self._path))
        told = encoder.description
        log.info("light encoder: %d tokens, cosine %.2f", encoder.tokens, told.cosine)
        return True

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)

    def _due(self) -> int:
        """How many chunks there are to fit to; 0: nothing is due."""
        if not self._parts.settled():
            return 0
        infos = [info for info in self._parts.reader.kbs() if self._ours(info.name)]
        chunks = sum(info.embedded_chunks for info in infos)
        if chunks < sum(info.chunks for info in infos):
            return 0
        kept = LightEncoder.read(self._path)
        before = self._useless_at if kept is None else kept.description.chunks
        return chunks if chunks >= 2 * before or 2 * chunks <= before else 0

    def _ours(self, kb: str) -> bool:
        state = self._parts.reader.embedder(kb)
        spec = self._parts.embedder.spec
        return state is not None and state.spec.fingerprint == spec.fingerprint

    async def _texts(self) -> list[str]:
        """Sentences of some chunks of every kb, and pieces of them put as questions."""
        chance = random.Random(_SEED)  # noqa: S311
        places = await self._run(partial(self._places, chance))
        sentences: list[str] = []
        for start in range(0, len(places), _ROWS):
            sentences += await self._run(partial(self._sentences, places[start : start + _ROWS]))
        sentences = list(dict.fromkeys(sentences))
        if len(sentences) > MOST_SENTENCES:
            sentences = chance.sample(sentences, MOST_SENTENCES)
        asked = [question_like(one, chance) for one in sentences if chance.random() < QUESTIONS]
        texts = sentences + asked
        chance.shuffle(texts)
        return texts

    def _places(self, chance: random.Random) -> list[tuple[str, int]]:
        reader = self._parts.reader
        places = [
            (info.name, chunk)
            for info in reader.kbs()
            if self._ours(info.name)
            for chunk in reader.changes(info.name, 0).added
        ]
        return chance.sample(places, MOST_CHUNKS) if len(places) > MOST_CHUNKS else places

    def _sentences(self, places: Sequence[tuple[str, int]]) -> list[str]:
        by_kb: dict[str, list[int]] = {}
        for kb, chunk in places:
            by_kb.setdefault(kb, []).append(chunk)
        rows = [row for kb, chunks in by_kb.items() for row in self._parts.reader.rows(kb, chunks)]
        return [one for row in rows for one in sentences_of(row)]

    def _fitted(
        self, texts: Sequence[str], made: Sequence[Vectors], chunks: int
    ) -> LightEncoder | None:
        spec = self._parts.embedder.spec
        data = b"".join(one.data for one in made)
        vectors = np.frombuffer(data, "<f4").reshape(len(texts), spec.dimensions)
        tokens = [self._parts.tokens(text)[:_TOKENS] for text in texts]
        found = fit_light(tokens, vectors, LightTraining(), self._closed.is_set)
        if found is None or found.cosine < LEAST_COSINE:
            return None
        told = LightDescription(spec.fingerprint, chunks, len(texts), found.cosine)
        return LightEncoder.of(told, found.ids, found.rows, found.weights)
