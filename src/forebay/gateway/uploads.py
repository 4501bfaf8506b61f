"""A document out of a PUT request: raw body or multipart form, with what is said about it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from email.message import Message
from typing import Any

import msgspec
from starlette.datastructures import Headers, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser

from forebay.gateway.exchange import Exchange
from forebay.gateway.routes import Parameter
from forebay.kernel.errors import InvalidRequest, PermissionDenied
from forebay.pipeline.messages import Upload, WaitFor
from forebay.wire.decoding import JsonDecoder

_LISTS = {"type": "array", "items": {"type": "string"}}
PARAMETERS = (
    Parameter("wait", "committed (default) or embedded.", {"enum": ["committed", "embedded"]}),
    Parameter("title", "Title; else the document's own.", {"type": "string"}),
    Parameter("source", "Where it comes from; else its id.", {"type": "string"}),
    Parameter("language", "Language code; else detected.", {"type": "string"}),
    Parameter("tags", "Tags; comma-separated or repeated.", _LISTS),
    Parameter("groups", "Groups that may read it; else everybody.", _LISTS),
    Parameter("filename", "File name, a hint for the format.", {"type": "string"}),
    Parameter("metadata", "JSON object of strings.", {"type": "string"}),
)
_SAYS_NOTHING = frozenset({"application/octet-stream", "application/x-www-form-urlencoded"})
_SLICE_BYTES = 64 * 1024
_METADATA: JsonDecoder[dict[str, str]] = JsonDecoder(dict[str, str])


class _Content(msgspec.Struct, frozen=True):
    data: bytes
    name: str
    media_type: str | None
    fields: Mapping[str, list[str]]


async def read_upload(x: Exchange, document_id: str) -> Upload:
    """Return the document; ``InvalidRequest`` or ``PermissionDenied`` say what is wrong."""
    declared = x.headers.get("content-type", "")
    if declared.lower().startswith("multipart/form-data"):
        content = await _multipart(x, document_id)
    else:
        content = _raw(x, declared, document_id)
    fields = {**content.fields, **x.query()}
    groups = _list(fields, "groups")
    mine = x.principal.groups
    if groups and mine is not None and not mine.issuperset(groups):
        raise PermissionDenied("this key lacks a group that it names.", param="groups")
    return Upload(
        document_id=document_id,
        data=content.data,
        name=content.name,
        media_type=content.media_type,
        title=_one(fields, "title"),
        source=_one(fields, "source"),
        language=_one(fields, "language"),
        tags=_list(fields, "tags"),
        groups=groups,
        metadata=_metadata(fields),
    )


def wait_for(x: Exchange) -> WaitFor:
    """What the client wants to wait for."""
    values = x.query().get("wait", ["committed"])
    if values == ["embedded"]:
        return "embedded"
    if values == ["committed"]:
        return "committed"
    raise InvalidRequest("wait is committed or embedded.", param="wait")


def _raw(x: Exchange, declared: str, document_id: str) -> _Content:
    named = _one(x.query(), "filename") or _disposition_name(x.headers.get("content-disposition"))
    kind = declared.partition(";")[0].strip().lower()
    return _Content(
        data=x.body,
        name=named or document_id,
        media_type=None if not kind or kind in _SAYS_NOTHING else declared,
        fields={},
    )


def _disposition_name(header: str | None) -> str | None:
    if header is None:
        return None
    envelope = Message()
    envelope["content-disposition"] = header
    return envelope.get_filename()


async def _multipart(x: Exchange, document_id: str) -> _Content:
    async def slices() -> AsyncGenerator[bytes, None]:
        # The parser is Python: a turn for others after each slice, about a millisecond of work.
        for at in range(0, len(x.body), _SLICE_BYTES):
            yield x.body[at : at + _SLICE_BYTES]
            await asyncio.sleep(0)

    headers = Headers(raw=x.scope["headers"])
    try:
        form = await MultiPartParser(headers, slices(), max_files=1, max_fields=32).parse()
    except (MultiPartException, KeyError, UnicodeDecodeError) as error:
        raise InvalidRequest("the multipart body cannot be read.") from error
    files: list[UploadFile] = []
    fields: dict[str, list[str]] = {}
    for name, value in form.multi_items():
        if isinstance(value, UploadFile):
            files.append(value)
        else:
            fields.setdefault(name, []).append(value)
    try:
        if len(files) != 1:
            raise InvalidRequest("a multipart upload has exactly one file.", param="file")
        [file] = files
        kind = (file.content_type or "").partition(";")[0].strip().lower()
        return _Content(
            data=await file.read(),
            name=_one(fields, "filename") or file.filename or document_id,
            media_type=None if not kind or kind in _SAYS_NOTHING else file.content_type,
            fields=fields,
        )
    finally:
        await form.close()


def _one(fields: Mapping[str, list[str]], name: str) -> str | None:
    values = fields.get(name)
    if not values:
        return None
    if len(values) > 1:
        raise InvalidRequest(f"{name} is given twice.", param=name)
    return values[0]


def _list(fields: Mapping[str, list[str]], name: str) -> tuple[str, ...] | None:
    values = fields.get(name)
    if values is None:
        return None
    parts = (part.strip() for value in values for part in value.split(","))
    return tuple(dict.fromkeys(part for part in parts if part))


def _metadata(fields: Mapping[str, list[str]]) -> Mapping[str, Any]:
    text = _one(fields, "metadata")
    if not text:
        return {}
    try:
        return _METADATA.decode(text.encode())
    except (InvalidRequest, UnicodeEncodeError):
        raise InvalidRequest(
            "metadata is a JSON object whose values are strings.", param="metadata"
        ) from None
