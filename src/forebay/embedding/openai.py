"""Any OpenAI-compatible ``/v1/embeddings`` endpoint."""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import aiohttp
import msgspec
import numpy as np
from numpy.typing import NDArray

from forebay.embedding.encoder import normalise
from forebay.embedding.identity import fingerprint
from forebay.embedding.prefixes import Kind, Prefixes, prefixes_for
from forebay.embedding.tokenizers import leading_text
from forebay.kernel.documents import Vectors
from forebay.kernel.errors import (
    ConfigError,
    DeadlineExceeded,
    EngineError,
    EngineRefused,
    Overloaded,
    Unavailable,
    check_endpoint,
    first_error,
)
from forebay.kernel.stages import EmbedderSpec

_MAX_ANSWER_BYTES = 256 * 1024 * 1024


class OpenAIEmbeddingSettings(msgspec.Struct, frozen=True):
    """One endpoint and how it is used."""

    base_url: Annotated[str, msgspec.Meta(description="Root of the endpoint, ending in /v1.")]
    model: Annotated[str, msgspec.Meta(description="Model name the endpoint knows.")]
    api_key: Annotated[str, msgspec.Meta(description="Bearer key; empty sends none.")] = ""
    dimensions: Annotated[
        int, msgspec.Meta(ge=0, description="Vector size to ask for; 0: the model's own.")
    ] = 0
    encoding: Annotated[
        Literal["base64", "float"], msgspec.Meta(description="How vectors are written.")
    ] = "base64"
    query_prefix: Annotated[
        str | None, msgspec.Meta(description="Put before queries; unset: by model family.")
    ] = None
    passage_prefix: Annotated[
        str | None, msgspec.Meta(description="Put before passages; unset: by model family.")
    ] = None
    max_tokens: Annotated[
        int, msgspec.Meta(ge=8, description="Longest input in tokens; longer texts are cut.")
    ] = 512
    batch_size: Annotated[int, msgspec.Meta(ge=1, le=2048, description="Texts in one request.")] = (
        64
    )
    max_concurrent_requests: Annotated[
        int, msgspec.Meta(ge=1, le=256, description="Requests at once.")
    ] = 8
    max_waiting_calls: Annotated[
        int, msgspec.Meta(ge=1, description="Calls that may be under way before refusal.")
    ] = 256
    timeout_s: Annotated[
        float, msgspec.Meta(gt=0, description="Longest wait for one request, queueing included.")
    ] = 60.0


class _Row(msgspec.Struct):
    index: int
    embedding: list[float] | str


class _Answer(msgspec.Struct):
    data: list[_Row]


class OpenAIEmbedder:
    """Embeds through HTTP; made inside a running loop by ``connect``, ended by ``close``."""

    def __init__(
        self, settings: OpenAIEmbeddingSettings, session: aiohttp.ClientSession, dimensions: int
    ) -> None:
        self._settings = settings
        self._session = session
        self._prefixes = _prefixes(settings)
        self._spec = _spec(settings, self._prefixes, dimensions)
        # Queries keep one lane that passages cannot fill.
        slots = settings.max_concurrent_requests
        self._any_slot = asyncio.Semaphore(slots)
        self._passage_slot = asyncio.Semaphore(max(1, slots - 1))
        self._calls = 0
        self._posted_at: dict[object, float] = {}

    @classmethod
    async def connect(cls, settings: OpenAIEmbeddingSettings) -> OpenAIEmbedder:
        """Open a session and learn the vector size, with one request unless it is set."""
        headers = {"Authorization": f"Bearer {settings.api_key}"} if settings.api_key else {}
        session = aiohttp.ClientSession(
            headers=headers, connector=aiohttp.TCPConnector(limit=settings.max_concurrent_requests)
        )
        try:
            dimensions = settings.dimensions
            if not dimensions:
                probe = cls(settings, session, 0)
                dimensions = await probe._measured()
            return cls(settings, session, dimensions)
        except BaseException:
            await session.close()
            raise

    async def _measured(self) -> int:
        """How long the endpoint's vectors are; ``EngineError`` says what else can be done."""
        try:
            return int((await self._request(["dimensions"], urgent=True)).shape[1])
        except EngineRefused:
            raise
        except (EngineError, DeadlineExceeded) as silent:
            raise EngineError(
                f"{silent.message}; start it, or search by words until it is back: "
                "embedding.backend=none (vectors are kept)."
            ) from silent

    @property
    def spec(self) -> EmbedderSpec:
        """Identity, size and input limit."""
        return self._spec

    async def embed(self, texts: Sequence[str], *, kind: Kind) -> Vectors:
        """Return one unit vector per text, in bounded requests side by side.

        ``EngineRefused`` for the endpoint's 4xx, ``Overloaded`` for its 429 or when too many
        calls wait, ``EngineError`` for anything else it does wrong, ``DeadlineExceeded`` after
        ``timeout_s``.
        """
        if self._session.closed:
            raise Unavailable("the embedder is shutting down")
        if self._calls >= self._settings.max_waiting_calls:
            raise Overloaded("too much is waiting for the embedder")
        self._calls += 1
        rows = np.empty((len(texts), self._spec.dimensions), "<f4")
        limit = self._spec.max_tokens
        inputs = [leading_text(self._prefixes.apply(text, kind), limit) for text in texts]
        try:
            await self._fill(rows, inputs, urgent=kind == "query")
        finally:
            self._calls -= 1
        return Vectors(tuple(range(len(texts))), self._spec.dimensions, rows.tobytes())

    def at_work_s(self) -> float:
        """See ``Working``; the endpoint is at work while it has a request."""
        earliest = min(self._posted_at.values(), default=None)
        return 0.0 if earliest is None else asyncio.get_running_loop().time() - earliest

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()

    async def _fill(
        self, rows: NDArray[np.float32], inputs: Sequence[str], *, urgent: bool
    ) -> None:
        starts = iter(range(0, len(inputs), self._settings.batch_size))

        async def lane() -> None:
            for start in starts:
                end = start + self._settings.batch_size
                vectors = await self._request(inputs[start:end], urgent=urgent)
                if vectors.shape[1] != rows.shape[1]:
                    raise EngineError(
                        f"the embedding endpoint answered {vectors.shape[1]} dimensions "
                        f"instead of {rows.shape[1]}"
                    )
                rows[start:end] = vectors

        batches = -(-len(inputs) // self._settings.batch_size)
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(batches, self._settings.max_concurrent_requests)):
                    group.create_task(lane())
        except BaseExceptionGroup as errors:
            # The first failure cancelled the others; it is the one worth telling.
            raise first_error(errors) from errors

    async def _request(self, inputs: Sequence[str], *, urgent: bool) -> NDArray[np.float32]:
        try:
            async with asyncio.timeout(self._settings.timeout_s):
                if urgent:
                    async with self._any_slot:
                        return await self._ask(inputs)
                async with self._passage_slot, self._any_slot:
                    return await self._post(inputs)
        except TimeoutError as error:
            raise DeadlineExceeded("the embedding endpoint did not answer in time") from error
        except (aiohttp.ClientError, OSError) as error:
            raise EngineError("the embedding endpoint cannot be reached") from error

    async def _ask(self, inputs: Sequence[str]) -> NDArray[np.float32]:
        """Post what a query waits for, with an eye on how long the endpoint has it."""
        mark = object()
        self._posted_at[mark] = asyncio.get_running_loop().time()
        try:
            return await self._post(inputs)
        finally:
            del self._posted_at[mark]

    async def _post(self, inputs: Sequence[str]) -> NDArray[np.float32]:
        settings = self._settings
        body: dict[str, Any] = {
            "model": settings.model,
            # Endpoints refuse empty strings; a blank says as little.
            "input": [text.encode("utf-8", "replace").decode() or " " for text in inputs],
            "encoding_format": settings.encoding,
        }
        if settings.dimensions:
            body["dimensions"] = settings.dimensions
        async with self._session.post(
            settings.base_url.rstrip("/") + "/embeddings",
            data=msgspec.json.encode(body),
            headers={"Content-Type": "application/json"},
            timeout=aiohttp.ClientTimeout(total=None),
            allow_redirects=False,
        ) as response:
            check_endpoint("embedding", response.status, response.headers.get("retry-after", ""))
            data = await _read(response)
        return _decode(data, len(inputs))


def _prefixes(settings: OpenAIEmbeddingSettings) -> Prefixes:
    return prefixes_for(
        settings.model, query=settings.query_prefix, passage=settings.passage_prefix
    )


def _spec(settings: OpenAIEmbeddingSettings, prefixes: Prefixes, dimensions: int) -> EmbedderSpec:
    """The endpoint's weights are out of reach: its model name stands for them."""
    identity = fingerprint(
        {
            "openai": settings.model,
            "dimensions": dimensions,
            "query": prefixes.query,
            "passage": prefixes.passage,
            "max_tokens": settings.max_tokens,
        }
    )
    return EmbedderSpec(settings.model, identity, dimensions, settings.max_tokens)


async def _read(response: aiohttp.ClientResponse) -> bytes:
    data = bytearray()
    async for piece in response.content.iter_chunked(1 << 16):
        data += piece
        if len(data) > _MAX_ANSWER_BYTES:
            raise EngineError("the embedding endpoint's answer is too large")
    return bytes(data)


def _decode(data: bytes, count: int) -> NDArray[np.float32]:
    """Unit vectors in the order asked; some endpoints ignore the encoding, so both are read."""
    try:
        answer = msgspec.json.decode(data, type=_Answer)
        ordered = sorted(answer.data, key=lambda row: row.index)
        if [row.index for row in ordered] != list(range(count)):
            raise EngineError("the embedding endpoint answered another number of vectors")
        rows = [
            np.frombuffer(base64.b64decode(row.embedding, validate=True), "<f4")
            if isinstance(row.embedding, str)
            else np.asarray(row.embedding, np.float32)
            for row in ordered
        ]
        matrix = np.stack(rows)
    except (msgspec.DecodeError, binascii.Error, ValueError) as error:
        raise EngineError("the embedding endpoint answered something else than vectors") from error
    if matrix.ndim != 2 or not matrix.shape[1]:
        raise EngineError("the embedding endpoint answered something else than vectors")
    return normalise(matrix)


def require_openai(base_url: str, model: str) -> None:
    """``ConfigError`` where an endpoint's address or model is missing."""
    for key, value in (("base_url", base_url), ("model", model)):
        if not value:
            raise ConfigError(
                f"embedding.{key} is needed for backend openai.", param=f"embedding.{key}"
            )
