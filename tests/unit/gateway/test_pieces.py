"""The head of a response leaves with what comes in the same turn of the loop, and never later."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.flow_control import FlowControl

from forebay.gateway.protocol import Pieces


class Transport:
    def __init__(self) -> None:
        self.written: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def close(self) -> None:
        self.written.append(b"closed")

    def is_closing(self) -> bool:
        return self.written[-1:] == [b"closed"]


def joined() -> tuple[Transport, Pieces]:
    transport = Transport()
    loop = asyncio.get_running_loop()
    return transport, Pieces(transport, loop, FlowControl(transport))  # type: ignore[arg-type]


async def test_head_and_body_of_one_turn_are_one_write_and_later_pieces_their_own() -> None:
    transport, response = joined()
    response.write(b"head ")
    response.write(b"body ")
    response.write(b"more")
    await asyncio.sleep(0)
    response.write(b"end")
    assert transport.written == [b"head body ", b"more", b"end"]


async def test_a_head_whose_body_is_late_leaves_alone() -> None:
    transport, response = joined()
    response.write(b"head")
    assert transport.written == []
    await asyncio.sleep(0)
    assert transport.written == [b"head"]
    response.write(b"body")
    assert transport.written == [b"head", b"body"]


async def test_closing_writes_what_waits() -> None:
    transport, response = joined()
    response.write(b"head")
    response.close()
    await asyncio.sleep(0)
    assert transport.written == [b"head", b"closed"]
    transport, response = joined()
    response.close()
    assert transport.written == [b"closed"]


async def test_leave_to_send_a_body_goes_at_once_and_the_head_still_waits_for_its_body() -> None:
    transport, response = joined()
    response.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    assert transport.written == [b"HTTP/1.1 100 Continue\r\n\r\n"]
    response.write(b"head ")
    response.write(b"body")
    assert transport.written[1:] == [b"head body"]
    assert not response.is_closing()
    response.close()
    assert response.is_closing()


async def test_pieces_of_a_body_that_has_begun_are_written_without_waiting() -> None:
    transport, response = joined()
    assert not response.ready()
    response.write(b"head ")
    assert not response.ready()
    response.write(b"body ")
    assert response.ready()
    response.write_piece(b"x" * 17)
    assert transport.written[-1] == b"11\r\n" + b"x" * 17 + b"\r\n"
    response._flow.pause_writing()
    assert not response.ready(), "the client does not read"
    response._flow.resume_writing()
    assert response.ready()
    response.close()
    assert not response.ready()
