"""What the commands do: each opens what it needs, does one thing, prints it, returns a status."""

from __future__ import annotations

import asyncio
import difflib
import logging
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import msgspec

from forebay.app.configuration import effective
from forebay.app.output import Output
from forebay.app.settings import Settings, load_settings
from forebay.kernel.clock import Deadline, SystemClock
from forebay.kernel.context import Principal, RequestContext
from forebay.kernel.documents import KbInfo
from forebay.kernel.errors import ForebayError, InvalidRequest, NotFound
from forebay.kernel.stages import Message, SearchRequest
from forebay.pipeline.knowledge import shown
from forebay.pipeline.messages import AnswerDelta, AnswerEnd, AnswerRequest

T = TypeVar("T")
COMMAND_DEADLINE_S = 300.0


def load(config: Path | None, flags: dict[str, Any]) -> Settings:
    """The settings of a command."""
    return load_settings(config, flags)[0]


def context(clock: SystemClock) -> RequestContext:
    """The context of a command: all rights, a long deadline."""
    return RequestContext(
        request_id=uuid4().hex,
        principal=Principal(admin=True),
        deadline=Deadline.after(COMMAND_DEADLINE_S, clock),
        clock=clock,
    )


def run(work: Awaitable[T]) -> T:
    """Run one command's coroutine; logs go to standard error, warnings and worse."""
    logging.basicConfig(level=logging.WARNING, format="forebay: %(message)s")

    async def main() -> T:
        return await work

    return asyncio.run(main())


def choose_kb(settings: Settings, asked: str | None, existing: tuple[str, ...]) -> str:
    """The kb a command means: the one named, the only configured one, the only one there is."""
    if asked is not None:
        if asked not in existing:
            raise no_such_kb(asked, existing)
        return asked
    configured = [name for name in settings.knowledge if name in existing]
    for candidates in (configured, list(existing)):
        if len(candidates) == 1:
            return candidates[0]
    if not existing:
        raise NotFound("the store holds no knowledge base; run `forebay ingest PATH`.")
    raise InvalidRequest(f"say which knowledge base with --kb: {', '.join(existing)}.")


def no_such_kb(asked: str, existing: Sequence[str]) -> NotFound:
    """What a command says of a kb that is not there: what is, and which was probably meant."""
    near = difflib.get_close_matches(asked, existing, n=1)
    hint = f" (did you mean {near[0]}?)" if near else ""
    names = ", ".join(existing) or "none yet"
    return NotFound(f"there is no knowledge base {asked!r}{hint}; there are: {names}.", param="kb")


def check_kb(settings: Settings, name: str) -> None:
    """Raise ``NotFound`` with the names there are when the store has no kb of that name."""
    _with_reader(settings, lambda reader: _in_kb(reader, name, lambda: reader.kb(name)))


def _in_kb(reader: Any, name: str, work: Callable[[], T]) -> T:
    try:
        return work()
    except NotFound as error:
        if error.param != "kb":
            raise
        raise no_such_kb(name, [kb.name for kb in reader.kbs()]) from error


def search(
    config: Path | None, flags: dict[str, Any], words: tuple[str | None, str, int], output: Output
) -> int:
    """Find passages and print them."""
    from forebay.app.composition import open_reading

    settings = load(config, flags)
    asked, query, top_k = words

    async def work() -> int:
        async with open_reading(settings) as service:
            kb = choose_kb(settings, asked, service.kb_names())
            await _note_if_empty(service, kb, output)
            ctx = context(SystemClock())
            found = await service.answering.search(ctx, SearchRequest(kb, query, top_k))
        if output.as_json:
            output.result(
                {
                    "hits": [_hit(hit) for hit in found.hits],
                    "rung": found.rung,
                    "kb_version": found.kb_version,
                }
            )
            return 0
        if not found.hits:
            output.line("Nothing found.")
        for number, hit in enumerate(found.hits, 1):
            page = f", page {hit.chunk.page}" if hit.chunk.page else ""
            output.line(f"[{number}] {hit.chunk.source}{page}  {hit.score:.3f}")
            output.line("    " + " ".join(hit.chunk.text.split())[:300])
        return 0

    return run(work())


async def _note_if_empty(service: Any, kb: str, output: Output) -> None:
    """Nothing can be found in a knowledge base without documents: say so, and what to do."""
    info: KbInfo = await asyncio.to_thread(service.process.reading.reader.kb, kb)
    if not info.documents:
        output.note(f"forebay: {kb} holds no documents yet; run `forebay ingest PATH --kb {kb}`.")


def _hit(hit: Any) -> dict[str, Any]:
    chunk = hit.chunk
    return {
        "document_id": chunk.document_id,
        "chunk_id": str(chunk.chunk_id),
        "text": chunk.text,
        "score": hit.score,
        "source": chunk.source,
        "title": chunk.title,
        "page": chunk.page,
        "start": chunk.start,
        "end": chunk.end,
    }


def ask(
    config: Path | None, flags: dict[str, Any], words: tuple[str | None, str], output: Output
) -> int:
    """Answer a question; the text streams, sources follow."""
    from forebay.app.composition import open_reading

    settings = load(config, flags)
    asked, question = words

    async def work() -> int:
        async with open_reading(settings) as service:
            kb = choose_kb(settings, asked, service.kb_names())
            await _note_if_empty(service, kb, output)
            request = AnswerRequest(kb, (Message("user", question),))
            text: list[str] = []
            end: AnswerEnd | None = None
            async for event in service.answering.answer(context(SystemClock()), request):
                if isinstance(event, AnswerDelta):
                    text.append(event.text)
                    if not output.as_json:
                        output.text(event.text)
                else:
                    end = event
        if end is None:
            raise ForebayError("the answer ended before it was complete.")
        if output.as_json:
            value = msgspec.to_builtins(end)
            output.result({"answer": "".join(text), **value})
            return 0
        output.line()
        for citation in end.citations:
            page = f", page {citation.page}" if citation.page else ""
            output.line(f"  [{citation.index}] {citation.source}{page}")
        return 0

    return run(work())


def kb_list(config: Path | None, flags: dict[str, Any], output: Output) -> int:
    """Every knowledge base."""
    settings = load(config, flags)

    def work(reader: Any) -> tuple[KbInfo, ...]:
        from forebay.app.sentence_record import KbsWithSentences

        counting = KbsWithSentences(reader, settings)
        return tuple(counting.counted(info) for info in reader.kbs())

    kbs = _with_reader(settings, work)
    if output.as_json:
        output.result(kbs)
    else:
        output.table(
            ("name", "version", "documents", "chunks", "embedded", "sentences"),
            [
                (kb.name, kb.version, kb.documents, kb.chunks, kb.embedded_chunks, _sentences(kb))
                for kb in kbs
            ],
        )
    return 0


def kb_show(config: Path | None, flags: dict[str, Any], name: str, output: Output) -> int:
    """One knowledge base and its documents."""
    settings = load(config, flags)

    def work(reader: Any) -> tuple[KbInfo, list[Any]]:
        from forebay.app.sentence_record import KbsWithSentences

        counting = KbsWithSentences(reader, settings)
        info = _in_kb(reader, name, lambda: counting.kb(name))
        documents: list[Any] = []
        after: str | None = None
        while page := reader.documents(name, after=after, limit=1000):
            documents.extend(shown(document) for document in page)
            after = page[-1].document_id
        return info, documents

    info, documents = _with_reader(settings, work)
    if output.as_json:
        output.result({"kb": info, "documents": documents})
        return 0
    embedder = info.embedder or "no embedder yet"
    output.line(
        f"{info.name}: version {info.version}, {info.documents} documents, {info.chunks} chunks, "
        f"{info.embedded_chunks} embedded by {embedder}, sentences of {_sentences(info)}"
    )
    output.table(
        ("document", "title", "language", "chunks", "groups"),
        [(d.document_id, d.title, d.language, d.chunks, ",".join(d.groups)) for d in documents],
    )
    return 0


def _sentences(info: KbInfo) -> str:
    """Of how many chunks the sentences have vectors, of those that get them."""
    count = info.sentences
    return "none" if count is None else f"{count.kept}/{count.chunks}"


def _with_reader(settings: Settings, work: Callable[[Any], T]) -> T:
    from forebay.store import StoreReader

    folder = Path(settings.store.path)
    if not folder.exists():
        raise NotFound(f"there is no store at {folder}; run `forebay ingest PATH` first.")
    reader = StoreReader(folder, settings.store.record)
    try:
        return work(reader)
    finally:
        reader.close()


def kb_export(
    config: Path | None, flags: dict[str, Any], words: tuple[str, Path], output: Output
) -> int:
    """Write one knowledge base to one file, beside whatever runs."""
    settings = load(config, flags)
    name, file = words
    _with_reader(
        settings, lambda reader: _in_kb(reader, name, lambda: reader.export_kb(name, file))
    )
    if output.as_json:
        output.result({"kb": name, "file": str(file), "bytes": file.stat().st_size})
    else:
        output.line(f"{name} was written to {file}.")
    return 0


def show_config(config: Path | None, flags: dict[str, Any], schema: bool, output: Output) -> int:
    """The settings in force and where each came from, or the JSON schema."""
    if schema:
        output.result(msgspec.json.schema(Settings))
        return 0
    from forebay.gateway.identity import build_table, check_binding
    from forebay.generation.pools import check_pools

    settings, configuration = load_settings(config, flags)
    check_binding(settings.server.host, build_table(settings.tenants))
    if settings.generation.backend == "openai":
        check_pools(settings.generation.pools, settings.generation.engine)
    rows = effective(settings, configuration)
    if output.as_json:
        output.result(
            [{"key": key, "value": value, "origin": origin} for key, value, origin in rows]
        )
    else:
        output.table(
            ("setting", "value", "from"),
            [(key, msgspec.json.encode(value).decode(), origin) for key, value, origin in rows],
        )
    return 0


def key_new(output: Output) -> int:
    """Make an API key; it is shown once, its hash goes into the configuration."""
    from forebay.gateway.identity import new_key

    made = new_key()
    if output.as_json:
        output.result(made)
        return 0
    output.line(f"key:  {made.key}")
    output.line(f"hash: {made.hash}")
    output.note("Keep the key; put the hash into [[tenants]] keys. It cannot be shown again.")
    return 0


def mcp_stdio(config: Path | None, flags: dict[str, Any]) -> int:
    """Serve the Model Context Protocol on standard input and output; logs go to standard error."""
    from forebay.app.composition import mcp_tools, open_reading

    settings = load(config, flags)

    async def work() -> int:
        async with open_reading(settings) as answerer:
            await mcp_tools(answerer).serve_stdio()
        return 0

    return run(work())
