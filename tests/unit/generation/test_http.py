"""The HTTP client of engines: bodies however they come, connections kept or not, bounds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from forebay.generation.http import (
    HEAD_BYTES_MAX,
    HELD_BYTES_MAX,
    Endpoint,
    HttpClient,
    HttpError,
    Response,
)

CHUNKED = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=x\r\n"
CHUNKED += b"Transfer-Encoding: chunked\r\n\r\n"


def framed(*pieces: bytes) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(one), one) for one in pieces)


class Engine:
    """Answers the n-th request of a connection with the n-th of ``answers``, piece by piece."""

    def __init__(self, *answers: Sequence[bytes], close: bool = False) -> None:
        self.answers = answers
        self.close = close
        self.heads: list[bytes] = []
        self.connections = 0
        self.gone = asyncio.Event()

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            for pieces in self.answers:
                head = await reader.readuntil(b"\r\n\r\n")
                self.heads.append(head)
                length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                await reader.readexactly(length)
                for piece in pieces:
                    writer.write(piece)
                    await asyncio.sleep(0.002)
            if not self.close:
                await reader.read()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.gone.set()
            writer.close()


@asynccontextmanager
async def served(engine: Engine, idle_s: float = 60.0) -> AsyncIterator[HttpClient]:
    server = await asyncio.start_server(engine, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    client = HttpClient(f"http://127.0.0.1:{port}/v1/x?a=b", connect_timeout_s=5, idle_s=idle_s)
    async with server, asyncio.timeout(20):
        try:
            yield client
        finally:
            client.close()


async def body_of(response: Response) -> bytes:
    data = b""
    while await response.wait():
        data += response.take()
    return data


async def posted(client: HttpClient) -> bytes:
    response = await client.post({}, b"")
    try:
        return await body_of(response)
    finally:
        response.close()


@pytest.mark.parametrize(
    ("pieces", "kept"),
    [
        ([CHUNKED + framed(b"ab", b"c") + framed(b"")], 1),
        ([CHUNKED[:20], CHUNKED[20:], framed(b"a")[:2], framed(b"a")[2:], framed(b"bc", b"")], 1),
        ([b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", b"abc"], 1),
        ([b"HTTP/1.1 100 Continue\r\n\r\n" + CHUNKED + framed(b"abc", b"")], 1),
        ([CHUNKED.replace(b"\r\n", b"\r\nConnection: close\r\n", 1) + framed(b"abc", b"")], 0),
    ],
)
async def test_a_body_is_read_however_it_comes(pieces: list[bytes], kept: int) -> None:
    engine = Engine(pieces, pieces)
    async with served(engine) as client:
        for _ in range(2):
            response = await client.post({"X-A": "b"}, b"{}")
            assert response.status == 200
            assert await body_of(response) == b"abc"
            assert response.whole and not await response.wait()
            response.close()
            assert client.idle == kept
    assert engine.connections == 2 - kept
    line, _, rest = engine.heads[0].partition(b"\r\n")
    assert line == b"POST /v1/x?a=b HTTP/1.1"
    assert b"\r\nX-A: b\r\n" in rest and b"Content-Length: 2" in rest


async def test_a_body_without_length_ends_with_its_connection() -> None:
    engine = Engine([b"HTTP/1.1 200 OK\r\nContent-Type: a/b; c=d\r\n\r\nab", b"c"], close=True)
    async with served(engine) as client:
        response = await client.post({}, b"")
        assert response.content_type == "a/b"
        assert await body_of(response) == b"abc"
        response.close()
        assert client.idle == 0


@pytest.mark.parametrize(
    "pieces",
    [
        [b"SSH-2.0-OpenSSH\r\n"],
        [CHUNKED, b"zz\r\n"],
        [CHUNKED + framed(b"ab")],
        [b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab"],
        [b"HTTP/1.1 200 OK\r\nX: " + b"y" * HEAD_BYTES_MAX],
        [b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n"],
        [],
    ],
)
async def test_what_is_no_whole_response_is_an_error(pieces: list[bytes]) -> None:
    engine = Engine(pieces, close=True)
    async with served(engine) as client:
        with pytest.raises(HttpError):
            await posted(client)
        assert client.idle == 0
    assert engine.connections == 1


async def test_what_nobody_asked_for_ends_a_kept_connection() -> None:
    whole = [CHUNKED + framed(b"a", b"")]
    engine = Engine([*whole, b"HTTP/1.1 200 OK\r\n"], whole)
    async with served(engine) as client:
        response = await client.post({}, b"")
        await body_of(response)
        response.close()
        await engine.gone.wait()
        response = await client.post({}, b"")
        assert await body_of(response) == b"a"
        response.close()
    assert engine.connections == 2


async def test_who_leaves_early_closes_the_connection() -> None:
    engine = Engine([CHUNKED + framed(b"a")])
    async with served(engine) as client:
        response = await client.post({}, b"")
        await response.wait()
        response.close()
        await engine.gone.wait()
        waiting = asyncio.get_running_loop().create_task(client.post({}, b""))
        silent = Engine([])
        engine.answers = silent.answers
        while engine.connections < 2:
            await asyncio.sleep(0)
        engine.gone.clear()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await engine.gone.wait()
        assert client.idle == 0


async def test_idle_connections_are_closed_after_their_time() -> None:
    engine = Engine([CHUNKED + framed(b"a", b"")])
    async with served(engine, idle_s=0.01) as client:
        response = await client.post({}, b"")
        await body_of(response)
        response.close()
        assert client.idle == 1
        await engine.gone.wait()
        assert client.idle == 0


async def test_a_body_that_nobody_reads_is_held_within_a_bound() -> None:
    piece = framed(b"x" * 65_536)
    engine = Engine([CHUNKED, *[piece] * 200, framed(b"")])
    async with served(engine) as client:
        response = await client.post({}, b"")
        await response.wait()
        held = -1
        while held != response._held:
            held = response._held
            await asyncio.sleep(0.1)
        assert held < 4 * HELD_BYTES_MAX
        assert len(await body_of(response)) == 200 * 65_536
        response.close()
        assert client.idle == 1


async def test_what_a_read_brings_is_pushed_at_once_and_until_it_is_declined() -> None:
    pieces = [b"%d," % number for number in range(6)]
    engine = Engine([CHUNKED, *map(framed, pieces), framed(b"")])
    seen: list[bytes] = []

    def take(data: bytes) -> bool:
        seen.append(data)
        return b"3," not in data

    async with served(engine) as client:
        response = await client.post({}, b"")
        await response.push(take)
        before = b"".join(seen)
        assert before.startswith(b"0,1,2,3,")
        rest = await body_of(response)
        assert before + rest == b"".join(pieces)
        assert b"".join(seen) == before
        await response.push(take)
        response.close()


async def test_a_push_ends_where_the_connection_breaks() -> None:
    engine = Engine([CHUNKED + framed(b"a")], close=True)
    async with served(engine) as client:
        response = await client.post({}, b"")
        seen: list[bytes] = []

        def take(data: bytes) -> bool:
            seen.append(data)
            return True

        await response.push(take)
        assert seen == [b"a"]
        with pytest.raises(HttpError):
            await response.wait()
        response.close()


def test_addresses() -> None:
    def head(url: str) -> bytes:
        return Endpoint(url).request({}, b"")

    assert b"\r\nHost: [::1]:81\r\n" in head("http://[::1]:81/v1")
    assert b"\r\nHost: a\r\n" in head("https://a:443/v1")
    assert head("http://a").startswith(b"POST / HTTP/1.1\r\n")
    assert head("http://a/ö b%20c").startswith(b"POST /%C3%B6%20b%20c HTTP/1.1\r\n")
    assert b"\r\nHost: xn--bcher-kva.example\r\n" in head("http://bücher.example/v1")
    assert b"\r\nAuthorization: Basic dTpw\r\n" in head("http://u:p@a/v1")
    for url in ("http:///v1", "http://a:b/v1"):
        with pytest.raises(ValueError, match=r"host|port|cast"):
            Endpoint(url)
    with pytest.raises(ValueError, match="line break"):
        Endpoint("http://a").request({"a": "b\r\nc: d"}, b"")
