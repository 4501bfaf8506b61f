"""Server-sent events, both directions: an encoder of data lines and an incremental decoder.

The decoder follows the event stream format of the HTML standard (fields, comments, the three
line ends, a byte order mark), takes bytes in pieces of any size, and bounds what it holds.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

DONE = b"data: [DONE]\n\n"
"""How OpenAI-compatible servers end a stream that went well."""


class ServerSentEvent(msgspec.Struct, frozen=True, gc=False):
    """One dispatched event; ``data`` has its lines joined by newlines."""

    data: str
    event: str = "message"
    id: str | None = None


class EventTooLong(ValueError):
    """A peer sent one event beyond the bound."""


def encode_data(json: bytes) -> bytes:
    """Frame one JSON text, which has no raw line break, as an event."""
    return b"data: " + json + b"\n\n"


class SseDecoder:
    """Turns bytes into events; ``feed`` as they come, ``close`` at the end of the stream.

    An event that the stream's end cuts off is not dispatched, as the standard says. Bytes that
    are not UTF-8 become replacement marks.
    """

    def __init__(self, max_event_bytes: int = 8 * 1024 * 1024) -> None:
        self._max = max_event_bytes
        self._pending = bytearray()
        self._first = True
        self._after_cr = False
        self._data: list[str] = []
        self._held = 0
        self._event = ""
        self._last_id: str | None = None

    def feed(self, piece: bytes) -> Iterator[ServerSentEvent]:
        """Yield the events that ``piece`` completes; ``EventTooLong`` beyond the bound."""
        self._pending += piece
        while (line := self._next_line()) is not None:
            if self._first:
                self._first = False
                line = line.removeprefix(b"\xef\xbb\xbf")
            event = self._take(line)
            if event is not None:
                yield event
        if len(self._pending) + self._held > self._max:
            raise EventTooLong(f"an event is longer than {self._max} bytes")

    def one_object(self, piece: bytes) -> bytes | None:
        """The data of the one event that ``piece`` is, if that is a line with a JSON object; else
        None.
        """
        if (
            piece.count(b"\n") != 2
            or not piece.startswith(b"data: {")
            or not piece.endswith(b"}\n\n")
            or b"\r" in piece
            or self._pending
            or self._data
            or self._event
            or self._after_cr
        ):
            return None
        self._first = False
        return piece[6:-2]

    def whole_objects(self, piece: bytes) -> list[bytes] | None:
        """The data of the events of ``piece`` if each is one line with a JSON object and no more.

        ``[DONE]`` may be the last. That is what engines send, a token at a time, and ten times as
        fast; None: ``feed`` it, as may be done, too, where an object is none after all.
        """
        if not piece.startswith(b"data: {") or b"\r" in piece:
            return None
        if not piece.endswith((b"}\n\n", b"}\n\n" + DONE)):
            return None
        if self._pending or self._data or self._event or self._after_cr:
            return None
        found = piece[6:-2].split(b"\n\ndata: ")
        if piece.count(b"\n") != 2 * len(found):
            return None
        self._first = False
        return found

    def _next_line(self) -> bytes | None:
        buffer = self._pending
        if self._after_cr and buffer:
            # The line feed of a CR LF pair that a piece's end split.
            if buffer[0] == 0x0A:
                del buffer[:1]
            self._after_cr = False
        feed, carriage = buffer.find(b"\n"), buffer.find(b"\r")
        if feed < 0 and carriage < 0:
            return None
        if carriage < 0 or 0 <= feed < carriage:
            end, width = feed, 1
        else:
            end = carriage
            width = 2 if feed == carriage + 1 else 1
            self._after_cr = carriage + 1 == len(buffer)
        line = bytes(buffer[:end])
        del buffer[: end + width]
        return line

    def _take(self, line: bytes) -> ServerSentEvent | None:
        if not line:
            return self._dispatch()
        if line.startswith(b":"):
            return None
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._held += len(value)
            self._data.append(value.decode("utf-8", "replace"))
        elif name == b"event":
            self._event = value.decode("utf-8", "replace")
        elif name == b"id" and b"\0" not in value:
            self._last_id = value.decode("utf-8", "replace")
        return None

    def _dispatch(self) -> ServerSentEvent | None:
        data, event = self._data, self._event
        self._data, self._event, self._held = [], "", 0
        if not data:
            return None
        return ServerSentEvent("\n".join(data), event or "message", self._last_id)
