"""The process that parses and chunks: limited, without network, one file after the other."""

from __future__ import annotations

import importlib
import os
import resource
import sys
from pathlib import Path
from typing import BinaryIO

import msgspec

from forebay.ingest.chunker import StructureChunker
from forebay.ingest.frames import (
    LENGTH,
    Batch,
    CounterChoice,
    Refused,
    Reply,
    Setup,
    Task,
    document_of,
    sentences_of,
    spans_of,
)
from forebay.ingest.meaning import MeaningChunker, prose_spans
from forebay.ingest.registry import parse
from forebay.kernel.documents import Extracted
from forebay.kernel.errors import UnsupportedDocument
from forebay.kernel.stages import Chunker, TokenCounter

_FORBIDDEN = frozenset(
    "socket.connect socket.getaddrinfo socket.sendto subprocess.Popen os.system os.exec "
    "os.posix_spawn os.fork os.forkpty".split()
)


def main() -> None:
    """Serve batches from standard input until it ends."""
    sys.dont_write_bytecode = True
    requests, replies = _channels()
    setup = msgspec.msgpack.decode(_read(requests), type=Setup)
    counter = _counter(setup.counter)
    _restrict(setup)
    decoder = msgspec.msgpack.Decoder(Batch)
    encoder = msgspec.msgpack.Encoder()
    while frame := _read(requests):
        for task in decoder.decode(frame).tasks:
            _limit_cpu(setup.cpu_s)
            last: Reply | None = None
            for reply in _run(task, setup, counter):
                last = reply
                data = encoder.encode(reply)
                replies.write(LENGTH.pack(len(data)))
                replies.write(data)
            replies.flush()
            if isinstance(last, Refused) and last.exits:
                return


def _channels() -> tuple[BinaryIO, BinaryIO]:
    """Standard input and output, the latter kept from whatever a library may print."""
    replies = os.fdopen(os.dup(1), "wb", buffering=1 << 16)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 1)
    requests = os.fdopen(os.dup(0), "rb", buffering=1 << 16)
    os.dup2(null, 0)
    return requests, replies


def _read(stream: BinaryIO) -> bytes:
    """One frame, empty at the end of the stream."""
    header = stream.read(LENGTH.size)
    if len(header) < LENGTH.size:
        return b""
    (size,) = LENGTH.unpack(header)
    return stream.read(size)


def _counter(choice: CounterChoice) -> TokenCounter:
    """The counter that the choice's factory makes."""
    module, _, attribute = choice.factory.partition(":")
    make = getattr(importlib.import_module(module), attribute)
    counter: TokenCounter = make() if choice.argument is None else make(choice.argument)
    return counter


def _restrict(setup: Setup) -> None:
    """Bound memory, forbid writing files, core dumps, network and other processes."""
    os.nice(setup.nice)
    # macOS accepts but does not enforce RLIMIT_AS: there the pool's watchdog does.
    for kind, value in (
        (resource.RLIMIT_AS, setup.memory_bytes),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        try:
            hard = resource.getrlimit(kind)[1]
            wanted = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.setrlimit(kind, (wanted, hard))
        except (ValueError, OSError):
            continue

    def refuse(event: str, _arguments: tuple[object, ...]) -> None:
        if event in _FORBIDDEN:
            raise PermissionError(f"{event} is not allowed while parsing")

    sys.addaudithook(refuse)


def _limit_cpu(seconds: int) -> None:
    """Allow ``seconds`` of processor time from now on; the kernel ends the process after that."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    limit = int(usage.ru_utime + usage.ru_stime) + 1 + seconds
    limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
    try:
        resource.setrlimit(resource.RLIMIT_CPU, (limit, hard))
    except (ValueError, OSError):
        return


def _run(task: Task, setup: Setup, counter: TokenCounter) -> list[Reply]:
    try:
        extracted = _parse(task, setup)
        sentences: list[tuple[int, int]] = []
        if setup.chunks.kind == "meaning" and task.breaks is None:
            sentences = prose_spans(extracted)
        chunks = _chunker(task, setup, counter).chunk(extracted)
    except UnsupportedDocument as error:
        return [Refused(error.message, error.code)]
    except MemoryError:
        # What is left of the process after this is not worth keeping.
        return [Refused(memory_reason(setup.memory_bytes), "too_large", exits=True)]
    # Parsers meet hostile input and raise what they like: any error is this file's own.
    except Exception:
        return [Refused("The document could not be read; it is damaged or unusual.", "damaged")]
    return [*document_of(extracted), *sentences_of(sentences), *spans_of(chunks)]


def _parse(task: Task, setup: Setup) -> Extracted:
    data = task.data
    if data is None:
        data = _read_file(task.path or "", setup.limits.max_file_bytes)
    return parse(data, name=task.name, media_type=task.media_type, settings=setup.limits)


def _chunker(task: Task, setup: Setup, counter: TokenCounter) -> Chunker:
    """By meaning only where somebody has found out where it changes."""
    if task.breaks:
        return MeaningChunker(setup.chunks, counter, task.breaks)
    return StructureChunker(setup.chunks, counter)


def _read_file(path: str, most: int) -> bytes:
    try:
        with Path(path).open("rb") as file:
            data = file.read(most + 1)
    except OSError as error:
        raise UnsupportedDocument(
            f"The file cannot be read: {error.strerror or 'input error'}.", code="unreadable"
        ) from error
    if len(data) > most:
        raise UnsupportedDocument(f"The file is over the limit of {most} bytes.", code="too_large")
    return data


def memory_reason(memory_bytes: int) -> str:
    """The sentence for a file that wants too much memory."""
    return (
        f"The document needs more than {memory_bytes // 1_000_000} MB of memory to read; split it."
    )


if __name__ == "__main__":
    main()
