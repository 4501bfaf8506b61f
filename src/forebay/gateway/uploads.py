"""A document out of a PUT request: raw body or multipart form, with what is said about it."""

from __future__ import annotations

import asyncio
import re
import unicodedata
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
    Parameter("groups", "Groups that may read it; else what it or its kb says.", _LISTS),
    Parameter("filename", "File name, a hint for the format.", {"type": "string"}),
    Parameter("metadata", "JSON object of strings.", {"type": "string"}),
)
_SAYS_NOTHING = frozenset({"application/octet-stream", "application/x-www-form-urlencoded"})
_SLICE_BYTES = 64 * 1024
_METADATA: JsonDecoder[dict[str, str]] = JsonDecoder(dict[str, str])
_KNOWN = frozenset(parameter.name for parameter in PARAMETERS)
_LANGUAGE = re.compile(r"[A-Za-z0-9]+([_-][A-Za-z0-9]+)*")
_MAX_TITLE = 1000
_MAX_SOURCE = 2000
_MAX_LANGUAGE = 35
_MAX_NAME = 1000
_MAX_ITEM = 200
_MAX_ITEMS = 100
_MAX_METADATA_VALUE = 4000
_NOT_IN_A_LINE = frozenset({"Cc", "Zl", "Zp", "Cs"})


class _Content(msgspec.Struct, frozen=True):
    data: bytes
    name: str
    media_type: str | None
    fields: Mapping[str, list[str]]


async def read_upload(x: Exchange, document_id: str) -> Upload:
    """Return the document; ``InvalidRequest`` or ``PermissionDenied`` say what is wrong.

    Parameters that are not known are refused: a misspelt ``groups`` would open a document.
    """
    if "content-range" in x.headers:
        raise InvalidRequest("a document is put whole, without content-range.")
    declared = x.headers.get("content-type", "")
    if declared.lower().startswith("multipart/form-data"):
        content = await _multipart(x, document_id)
    else:
        content = _raw(x, declared, document_id)
    fields = {**content.fields, **x.query()}
    if unknown := sorted(fields.keys() - _KNOWN):
        raise InvalidRequest(
            f"there is no parameter {unknown[0][:100]!r}; known here: {', '.join(sorted(_KNOWN))}.",
            param="query",
        )
    groups = _groups(fields)
    mine = x.principal.groups
    if groups and mine is not None and not mine.issuperset(groups):
        raise PermissionDenied("this key lacks a group that it names.", param="groups")
    return Upload(
        document_id=document_id,
        data=content.data,
        name=_line(content.name, "filename", _MAX_NAME),
        media_type=content.media_type,
        title=_said(fields, "title", _MAX_TITLE),
        source=_said(fields, "source", _MAX_SOURCE),
        language=_language(fields),
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
    items = tuple(dict.fromkeys(_line(part, name, _MAX_ITEM) for part in parts if part))
    if len(items) > _MAX_ITEMS:
        raise InvalidRequest(f"{name} has more than {_MAX_ITEMS} entries.", param=name)
    return items


def _groups(fields: Mapping[str, list[str]]) -> tuple[str, ...] | None:
    groups = _list(fields, "groups")
    if groups is not None and not groups:
        # An unset variable of a script must not open a document to everybody.
        raise InvalidRequest(
            "groups is empty; name a group, or leave groups out to keep those that the document "
            "or its knowledge base says.",
            param="groups",
        )
    return groups


def _said(fields: Mapping[str, list[str]], name: str, limit: int) -> str | None:
    text = _one(fields, name)
    return None if text is None else _line(text, name, limit)


def _language(fields: Mapping[str, list[str]]) -> str | None:
    text = _said(fields, "language", _MAX_LANGUAGE)
    if text and _LANGUAGE.fullmatch(text) is None:
        raise InvalidRequest("language is a code such as en or zh-CN.", param="language")
    return text


def _line(text: str, name: str, limit: int) -> str:
    """``text`` if it is one line of at most ``limit`` characters: it is shown and prompted with."""
    if len(text) > limit:
        raise InvalidRequest(f"{name} has more than {limit} characters.", param=name)
    if any(unicodedata.category(character) in _NOT_IN_A_LINE for character in text):
        raise InvalidRequest(f"{name} has control characters.", param=name)
    return text


def _metadata(fields: Mapping[str, list[str]]) -> Mapping[str, Any]:
    text = _one(fields, "metadata")
    if not text:
        return {}
    try:
        metadata = _METADATA.decode(text.encode())
    except (InvalidRequest, UnicodeEncodeError):
        raise InvalidRequest(
            "metadata is a JSON object whose values are strings.", param="metadata"
        ) from None
    if len(metadata) > _MAX_ITEMS:
        raise InvalidRequest(f"metadata has more than {_MAX_ITEMS} entries.", param="metadata")
    for key, value in metadata.items():
        _line(key, "metadata", _MAX_ITEM)
        _line(value, "metadata", _MAX_METADATA_VALUE)
    return metadata
