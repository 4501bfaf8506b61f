"""Knowledge bases and their documents: lists, reading, changing."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import msgspec

from forebay.gateway.directory import KbDirectory, no_such_kb
from forebay.gateway.errors import successor_link
from forebay.gateway.exchange import Exchange
from forebay.gateway.parts import GatewayParts
from forebay.gateway.rendering import chunk_body, document_body, document_with_text, kb_body
from forebay.gateway.routes import Parameter
from forebay.gateway.uploads import read_upload, wait_for
from forebay.kernel.documents import CommitReceipt, KbInfo
from forebay.kernel.errors import InvalidRequest, NotFound
from forebay.wire.knowledge import ChangeAnswer, DocumentList, KbList

MAX_PAGE = 1000
PAGING = (
    Parameter("after", "The last page's next_after.", {"type": "string"}),
    Parameter(
        "limit",
        "Documents of a page at most.",
        {"type": "integer", "minimum": 1, "maximum": MAX_PAGE, "default": 100},
    ),
)

KEYS = (
    Parameter(
        "keys",
        "Whether the keys of its chunks are told, in their order.",
        {"type": "boolean", "default": False},
    ),
)


class KnowledgeRoutes:
    """What HTTP clients may do with knowledge bases."""

    def __init__(self, parts: GatewayParts, directory: KbDirectory) -> None:
        self._knowledge = parts.knowledge
        self._chunks = parts.chunks
        self._directory = directory

    async def kbs(self, x: Exchange) -> None:
        """Answer GET /v1/kb."""
        infos = await self._directory.readable(x.principal)
        groups = _counted(x)
        if groups is not None:
            infos = await self._counted_for(groups, infos)
        await x.reply_json(KbList(tuple(kb_body(info) for info in infos)))

    async def _counted_for(
        self, groups: frozenset[str], infos: Sequence[KbInfo]
    ) -> tuple[KbInfo, ...]:
        counted = []
        for info in infos:
            with suppress(NotFound):  # dropped since the list was read
                counted.append(await self._knowledge.kb(info.name, groups))
        return tuple(counted)

    async def kb(self, x: Exchange) -> None:
        """Answer GET /v1/kb/{kb}."""
        name = await self._kb(x)
        await x.reply_json(kb_body(await self._knowledge.kb(name, _counted(x))))

    async def documents(self, x: Exchange) -> None:
        """Answer GET /v1/kb/{kb}/documents."""
        query = x.query()
        after = query.get("after", [None])[-1]
        limit = _limit(query.get("limit", ["100"])[-1])
        kb = await self._kb(x)
        page = await self._knowledge.documents(x.context, kb, after=after, limit=limit)
        answer = DocumentList(tuple(document_body(d) for d in page.documents), page.next_after)
        await x.reply_json(answer)

    async def document(self, x: Exchange) -> None:
        """Answer GET /v1/kb/{kb}/documents/{id}."""
        kb = await self._kb(x)
        document_id = x.path_params["id"]
        info, text = await self._knowledge.document(x.context, kb, document_id)
        body = document_with_text(info, text)
        if self._chunks is not None and _keys_wanted(x):
            keys = await self._chunks.keys(kb, document_id)
            body = msgspec.structs.replace(body, chunk_keys=keys)
        await x.reply_json(body)

    async def chunk(self, x: Exchange) -> None:
        """Answer GET /v1/kb/{kb}/chunks/{key}."""
        kb = await self._kb(x)
        assert self._chunks is not None
        body = chunk_body(kb, await self._chunks.chunk(x.context, kb, x.path_params["key"]))
        link = () if body.successor is None else (("link", successor_link(kb, body.successor)),)
        await x.reply_json(body, headers=link)

    async def put(self, x: Exchange) -> None:
        """Answer PUT /v1/kb/{kb}/documents/{id}; a kb that is not there yet begins with it."""
        kb = x.kb = x.path_params["kb"]
        if not x.principal.may_read(kb):
            raise no_such_kb(kb)
        wait = wait_for(x)
        upload = await read_upload(x, x.path_params["id"])
        receipt = await self._knowledge.put(x.context, kb, upload, wait=wait)
        await self._changed(x, receipt)

    async def delete(self, x: Exchange) -> None:
        """Answer DELETE /v1/kb/{kb}/documents/{id}."""
        kb = await self._kb(x)
        receipt = await self._knowledge.delete(x.context, kb, x.path_params["id"])
        await self._changed(x, receipt)

    async def _kb(self, x: Exchange) -> str:
        x.kb = await self._directory.kb(x.principal, x.path_params["kb"])
        return x.kb

    async def _changed(self, x: Exchange, receipt: CommitReceipt) -> None:
        document_id = x.path_params["id"]
        outcome = dict(receipt.outcomes).get(document_id, "unchanged")
        x.context.kb_version = receipt.version
        answer = ChangeAnswer(receipt.kb, document_id, outcome, receipt.version, receipt.embedded)
        await x.reply_json(answer, headers=(("x-forebay-kb-version", str(receipt.version)),))


def _counted(x: Exchange) -> frozenset[str] | None:
    """Whose documents are counted: totals would tell of those that the client may not see."""
    return None if x.principal.admin else x.principal.groups


def _keys_wanted(x: Exchange) -> bool:
    wanted = x.query().get("keys", ["false"])[-1]
    if wanted not in ("true", "false"):
        raise InvalidRequest("keys is true or false.", param="keys")
    return wanted == "true"


def _limit(text: str) -> int:
    if text.isascii() and text.isdigit() and len(text) < 6 and 1 <= int(text) <= MAX_PAGE:
        return int(text)
    raise InvalidRequest(f"limit is a whole number from 1 to {MAX_PAGE}.", param="limit")
