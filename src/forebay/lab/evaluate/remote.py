"""A running server as a target, from outside: its search and chat endpoints."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from typing import Any, TypeVar
from urllib.parse import quote

import aiohttp
import msgspec

from forebay.kernel.errors import (
    DeadlineExceeded,
    EngineError,
    EngineRefused,
    NotFound,
    Unavailable,
)
from forebay.lab.evaluate.datasets import Document, Question
from forebay.lab.evaluate.target import Cited, Found, Passage, Said

T = TypeVar("T")
_MAX_BYTES = 16 * 1024 * 1024
_SAID_CHARACTERS = 300
_CONNECT_S = 30.0
_PUT_S = 300.0
_BY_KEY = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN})


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Where the server is, which knowledge base is asked, and as whom."""

    url: str
    """Base address; ``/v1`` at its end may be left out."""
    kb: str
    api_key: str = ""

    @property
    def root(self) -> str:
        """The address without ``/v1``."""
        return self.url.rstrip("/").removesuffix("/v1")


class _Hit(msgspec.Struct, frozen=True):
    document_id: str
    text: str
    score: float = 0.0
    title: str = ""


class _Hits(msgspec.Struct, frozen=True):
    hits: tuple[_Hit, ...]
    rung: str = ""


class _Message(msgspec.Struct, frozen=True):
    content: str | None = None


class _Choice(msgspec.Struct, frozen=True):
    message: _Message


class _Citation(msgspec.Struct, frozen=True):
    index: int
    document_id: str
    text: str = ""


class _Extra(msgspec.Struct, frozen=True):
    refused: bool = False
    unsure: bool = False
    rung: str = ""


class _Completion(msgspec.Struct, frozen=True):
    choices: tuple[_Choice, ...]
    citations: tuple[_Citation, ...] = ()
    forebay: _Extra = _Extra()


class _RefusalError(msgspec.Struct, frozen=True):
    message: str


class _Refusal(msgspec.Struct, frozen=True):
    error: _RefusalError


@asynccontextmanager
async def open_remote(endpoint: Endpoint) -> AsyncIterator[RemoteTarget]:
    """A connection to a server; who waits bounds the time of each call."""
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        yield RemoteTarget(session, endpoint)


class RemoteTarget:
    """Asks a server over HTTP."""

    def __init__(self, session: aiohttp.ClientSession, endpoint: Endpoint) -> None:
        self._session = session
        self._endpoint = endpoint

    async def reach(self) -> None:
        """GET /healthz, whatever it answers; ``Unavailable`` when nothing does."""
        with suppress(EngineRefused):
            await self._send("GET", "/healthz", data=b"", headers={})

    async def confirm_kb(self) -> None:
        """GET the knowledge base; ``NotFound`` where the server has none that may be read.

        ``EngineRefused`` for a key it does not take. A server without that route is not asked.
        """
        kb = self._endpoint.kb
        try:
            await self._send("GET", f"/v1/kb/{quote(kb, safe='')}", data=b"", headers={})
        except EngineRefused as error:
            if error.status in _BY_KEY:
                raise
            if error.status == HTTPStatus.NOT_FOUND and await self._serves_kbs():
                raise NotFound(
                    f"there is no knowledge base {kb!r} at {self._endpoint.root}, or the key may "
                    "not read it; name one that `GET /v1/kb` lists."
                ) from error

    async def _serves_kbs(self) -> bool:
        try:
            await self._send("GET", "/v1/kb", data=b"", headers={})
        except EngineRefused:
            return False
        return True

    async def search(self, question: Question, top_k: int) -> Found:
        """POST /v1/search."""
        body = {"query": question.text, "top_k": top_k, "kb": self._endpoint.kb}
        found = await self._post("/v1/search", body, question, _Hits)
        return Found(
            tuple(Passage(hit.document_id, hit.text, hit.score, hit.title) for hit in found.hits),
            found.rung,
        )

    async def answer(self, question: Question) -> Said:
        """POST /v1/chat/completions, not streamed."""
        body = {
            "model": f"forebay/{self._endpoint.kb}",
            "messages": [{"role": "user", "content": question.text}],
        }
        found = await self._post("/v1/chat/completions", body, question, _Completion)
        if not found.choices:
            raise EngineError("the server's answer has no choice.")
        cited = tuple(Cited(one.index, one.document_id, one.text) for one in found.citations)
        text = found.choices[0].message.content or ""
        told = found.forebay
        return Said(text, cited, told.refused, told.rung, told.unsure)

    async def put(self, document: Document) -> None:
        """PUT a document; it is searchable by words when this returns, by vectors soon after."""
        path = quote(document.id, safe="")
        try:
            async with asyncio.timeout(_PUT_S):
                await self._send(
                    "PUT",
                    f"/v1/kb/{self._endpoint.kb}/documents/{path}",
                    data=document.text.encode(),
                    params={"title": document.title} if document.title else {},
                    headers={"content-type": "text/plain; charset=utf-8"},
                )
        except TimeoutError as error:
            raise DeadlineExceeded(f"the server took no document within {_PUT_S:g} s.") from error

    async def _post(
        self, path: str, body: Mapping[str, Any], question: Question, kind: type[T]
    ) -> T:
        headers = {"content-type": "application/json", "x-forebay-no-cache": "1"}
        if question.groups is not None:
            headers["x-forebay-groups"] = ",".join(question.groups)
        data = await self._send("POST", path, data=msgspec.json.encode(body), headers=headers)
        try:
            return msgspec.json.decode(data, type=kind)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise EngineError(f"the server's answer to {path} cannot be read: {error}.") from error

    async def _send(
        self,
        method: str,
        path: str,
        *,
        data: bytes,
        headers: dict[str, str],
        params: Mapping[str, str] | None = None,
    ) -> bytes:
        if self._endpoint.api_key:
            headers["authorization"] = f"Bearer {self._endpoint.api_key}"
        url = self._endpoint.root + path
        try:
            async with self._session.request(
                method, url, data=data, headers=headers, params=params
            ) as response:
                said = await response.content.read(_MAX_BYTES)
                status = response.status
        except (aiohttp.ClientError, OSError) as error:
            raise Unavailable(
                f"nothing answers at {self._endpoint.root}: {_reason(error)}."
            ) from error
        if status >= 400:
            raise EngineRefused(f"the server answers {status}: {_sentence(said)}", status=status)
        return said


def _reason(error: Exception) -> str:
    """Why there was no answer, in the operating system's words where it has some."""
    cause = getattr(error, "os_error", None)
    if isinstance(cause, ConnectionError) and cause.errno:
        return os.strerror(cause.errno)
    return str(error) or type(error).__name__


def _sentence(said: bytes) -> str:
    """What an error's body says: its message, else its beginning."""
    try:
        return msgspec.json.decode(said, type=_Refusal).error.message
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return said[:_SAID_CHARACTERS].decode("utf-8", "replace")
