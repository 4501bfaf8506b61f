"""A client that speaks to the socket itself, for what well-behaved clients cannot do."""

from __future__ import annotations

import json
import socket
from typing import Any
from urllib.parse import urlsplit


class RawClient:
    """One TCP connection; use as a context manager."""

    def __init__(self, address: str, timeout_s: float = 10.0) -> None:
        parts = urlsplit(address)
        self.socket = socket.create_connection((parts.hostname, parts.port), timeout_s)

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes | str) -> None:
        self.socket.sendall(data.encode() if isinstance(data, str) else data)

    def post(self, path: str, body: Any, *headers: str) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        head = "".join(f"{line}\r\n" for line in ("host: localhost", *headers))
        self.send(
            f"POST {path} HTTP/1.1\r\n{head}content-length: {len(data)}\r\n\r\n".encode() + data
        )

    def read(self) -> bytes:
        """Everything up to the connection's end."""
        pieces = []
        try:
            while piece := self.socket.recv(65536):
                pieces.append(piece)
        except ConnectionResetError:
            pass
        return b"".join(pieces)

    def read_until(self, mark: bytes) -> bytes:
        """Everything up to and with ``mark`` (and what came along)."""
        data = b""
        while mark not in data:
            piece = self.socket.recv(65536)
            assert piece, data
            data += piece
        return data


def status(response: bytes) -> int:
    return int(response.split(b" ", 2)[1])


def json_body(response: bytes) -> Any:
    return json.loads(response.partition(b"\r\n\r\n")[2])
