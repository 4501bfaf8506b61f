"""A real server under rude clients: leaving, trickling, flooding, and its own stopping."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import msgspec
import pytest

from forebay.gateway.server import Server, bind
from forebay.gateway.settings import ConnectionSettings, DeadlineSettings, ServerSettings
from forebay.kernel.errors import ConfigError
from tests.unit.gateway.fakes import LiveServer, World, serving, until
from tests.unit.gateway.raw import RawClient, json_body, status

CHAT = "/v1/chat/completions"
ASK = {"model": "x", "messages": [{"role": "user", "content": "how many days?"}]}
STREAM = ASK | {"stream": True}


PATIENT = ConnectionSettings(max_connections=20)
HASTY = ConnectionSettings(header_timeout_s=0.3, body_timeout_s=0.4, keep_alive_s=1)
"""For clients that are slow on purpose: any is on a machine that is busy."""


def quick(**changes: object) -> ServerSettings:
    """Settings of a server that ends soon."""
    settings = ServerSettings(port=0, default_kb="handbook", drain_s=0.3, connections=PATIENT)
    return msgspec.structs.replace(settings, **changes)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with serving(World(settings=quick())) as found:
        yield found


@pytest.fixture(scope="module")
def hasty() -> Iterator[str]:
    with serving(World(settings=quick(connections=HASTY))) as found:
        yield found


# --- clients that leave ---------------------------------------------------------------------


@pytest.mark.parametrize("body", [ASK, STREAM], ids=["plain", "stream"])
def test_a_client_that_leaves_cancels_its_work_at_once(body: dict[str, object]) -> None:
    world = World(script=["first ", None])
    with serving(world) as address:
        with RawClient(address) as client:
            client.post(CHAT, body)
            until(lambda: world.answering.active == 1)
            if "stream" in body:
                client.read_until(b"first")
        until(lambda: world.answering.active == 0, within_s=0.2)
        assert world.answering.closed == 1
        until(lambda: world.app.in_flight == 0)
    outcome = {"outcome": "cancelled"}
    assert world.metrics.registry.get_sample_value("forebay_requests_total", outcome) == 1


def test_a_client_that_leaves_within_its_body_is_forgotten(address: str) -> None:
    with RawClient(address) as client:
        client.send(f"POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n{{")
    assert httpx.get(f"{address}/healthz").status_code == 200


def test_an_answer_is_written_whatever_its_client_reads() -> None:
    world = World(script=["x" * 500] * 1500)
    with serving(world) as address, RawClient(address) as client:
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.post(CHAT, STREAM)
        # Its place is free, although most of the answer waits for the client.
        until(lambda: world.answering.closed == 1)


def test_a_client_that_does_not_read_is_dropped() -> None:
    limits = ConnectionSettings(write_timeout_s=0.3)
    world = World(script=["x" * 100_000] * 500, settings=quick(connections=limits))
    with serving(world) as address, RawClient(address) as client:
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.post(CHAT, STREAM)
        until(lambda: world.answering.active == 1)
        until(lambda: world.answering.closed == 1)
        until(lambda: world.app.in_flight == 0)


# --- deadlines and bounds -------------------------------------------------------------------


def test_a_deadline_is_504_before_and_an_event_after_the_first_token() -> None:
    world = World(script=[None])
    with serving(world) as address:
        response = httpx.post(
            f"{address}{CHAT}", json=STREAM, headers={"x-forebay-deadline-ms": "80"}
        )
        assert response.status_code == 504
        assert response.json()["error"]["type"] == "timeout"
        assert response.json()["error"]["code"] == "deadline_exceeded"
        world.answering.script = ["begun ", None]
        response = httpx.post(
            f"{address}{CHAT}", json=STREAM, headers={"x-forebay-deadline-ms": "800"}
        )
        assert response.status_code == 200
        events = response.text.strip().split("\n\n")
        assert "deadline_exceeded" in events[-1]
        assert "[DONE]" not in response.text
        assert '"finish_reason":"stop"' not in response.text
    assert world.answering.active == 0


def test_the_default_deadline_holds_without_a_header() -> None:
    settings = quick(deadlines=DeadlineSettings(answer_ms=80))
    with serving(World(script=[None], settings=settings)) as address:
        assert httpx.post(f"{address}{CHAT}", json=ASK).status_code == 504


def test_requests_above_the_bound_are_503_with_retry_after() -> None:
    world = World(script=[None], settings=quick(max_in_flight=1))
    with serving(world) as address, RawClient(address) as client:
        client.post(CHAT, ASK)
        until(lambda: world.answering.active == 1)
        refused = httpx.post(f"{address}{CHAT}", json=ASK)
        assert refused.status_code == 503
        assert refused.headers["retry-after"] == "1"
        assert refused.json()["error"]["code"] == "overloaded"
        assert httpx.get(f"{address}/healthz").status_code == 200
        assert httpx.get(f"{address}/metrics").status_code == 200


def test_a_body_over_the_bound_is_413_before_it_is_read(address: str) -> None:
    with RawClient(address) as client:
        client.send(f"POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 999999999\r\n\r\n")
        response = client.read_until(b"}}")
    assert status(response) == 413
    assert json_body(response)["error"]["code"] == "payload_too_large"


def test_a_chunked_body_is_refused_at_the_bound() -> None:
    with serving(World(settings=quick(max_body_bytes=10_000))) as address:
        with RawClient(address) as client:
            client.send(f"POST {CHAT} HTTP/1.1\r\nhost: localhost\r\n")
            client.send("transfer-encoding: chunked\r\n\r\n")
            client.send(b"1388\r\n" + b"x" * 5000 + b"\r\n")
            client.send(b"1389\r\n" + b"x" * 5001 + b"\r\n")
            response = client.read_until(b"}}")
        assert status(response) == 413


@pytest.mark.parametrize("chunked", [False, True])
def test_a_client_that_sends_everything_first_still_reads_its_413(chunked: bool) -> None:
    big = b"x" * 20_000_000
    content = (big[at : at + 65536] for at in range(0, len(big), 65536)) if chunked else big
    with serving(World(settings=quick())) as address, httpx.Client() as client:
        assert client.post(f"{address}{CHAT}", content=content).status_code == 413
        # And the connection is good for another request.
        assert client.get(f"{address}/healthz").status_code == 200


def test_a_refused_body_without_end_is_cut() -> None:
    limits = ConnectionSettings(linger_s=0.2)
    with (
        serving(World(settings=quick(connections=limits))) as address,
        RawClient(address) as client,
    ):
        client.send(f"POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 99999999\r\n\r\n")
        assert status(client.read_until(b"}}")) == 413
        with pytest.raises(OSError, match=r"reset|pipe|Broken"):
            send_for_ever(client)


def send_for_ever(client: RawClient) -> None:
    for _ in range(2000):
        client.send(b"x" * 1000)
        time.sleep(0.005)


def test_an_idle_connection_after_a_refused_body_is_closed() -> None:
    limits = ConnectionSettings(header_timeout_s=2, keep_alive_s=1)
    with (
        serving(World(settings=quick(connections=limits))) as address,
        RawClient(address) as client,
    ):
        client.send("POST /nothing HTTP/1.1\r\nhost: localhost\r\ncontent-length: 8\r\n\r\n")
        assert status(client.read_until(b"}}")) == 404
        client.send(b"x" * 4)
        client.send(b"x" * 4)
        assert client.read() == b""


def test_a_body_within_the_bound_passes_in_chunks(address: str) -> None:
    def pieces() -> Iterator[bytes]:
        body = msgspec.json.encode(ASK)
        yield from (body[at : at + 7] for at in range(0, len(body), 7))

    assert httpx.post(f"{address}{CHAT}", content=pieces()).status_code == 200


# --- slow and malformed requests ------------------------------------------------------------


def test_slow_headers_are_408(hasty: str) -> None:
    with RawClient(hasty) as client:
        client.send("POST /v1/search HTTP/1.1\r\nhost: local")
        response = client.read()
    assert status(response) == 408


def test_trickled_headers_are_408_too(hasty: str) -> None:
    with RawClient(hasty) as client:
        started = time.monotonic()
        response = b""
        client.send("GET /healthz HTTP/1.1\r\n")
        client.socket.settimeout(0.05)
        while not response and time.monotonic() - started < 3:
            try:
                client.send("x-a: b\r\n")
                response = client.socket.recv(4096)
            except TimeoutError:
                continue
    assert status(response) == 408


def test_a_silent_connection_is_closed(hasty: str) -> None:
    with RawClient(hasty) as client:
        assert client.read() == b""


def test_a_slow_body_is_408(hasty: str) -> None:
    with RawClient(hasty) as client:
        client.send(f"POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n{{")
        response = client.read()
    assert status(response) == 408
    assert json_body(response)["error"]["code"] == "request_timeout"


@pytest.mark.parametrize(
    ("request_bytes", "expected"),
    [
        (b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n" + b"a: b\r\n" * 500 + b"\r\n", 431),
        (b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nx: " + b"y" * 100_000 + b"\r\n\r\n", 431),
        (b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nx: " + b"y" * 200_000, 431),
        (b"GET /" + b"z" * 100_000 + b" HTTP/1.1\r\nhost: localhost\r\n\r\n", 431),
        (b"NONSENSE\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\nbad header\r\n\r\n", 400),
        (b"GET /\xff\xfe HTTP/1.1\r\nhost: localhost\r\n\r\n", 400),
        (b"POST /v1/search HTTP/1.1\r\nhost: localhost\r\ncontent-length: x\r\n\r\n", 400),
        (
            (
                b"POST /v1/search HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\n"
                b"transfer-encoding: chunked\r\n\r\n0\r\n\r\n"
            ),
            400,
        ),
    ],
)
def test_header_abuse(address: str, request_bytes: bytes, expected: int) -> None:
    with RawClient(address) as client:
        client.send(request_bytes)
        response = client.read()
    assert status(response) == expected
    assert json_body(response)["error"]["message"]


def test_connections_above_the_bound_are_503() -> None:
    held: list[RawClient] = []
    with serving(World(settings=quick())) as address:
        above_the_bound(address, held)


def above_the_bound(address: str, held: list[RawClient]) -> None:
    try:
        for _ in range(20):
            client = RawClient(address)
            client.send("GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
            client.read_until(b"}")
            held.append(client)
        with RawClient(address) as surplus:
            response = surplus.read()
        assert status(response) == 503
        assert b"retry-after: 1" in response
    finally:
        for client in held:
            client.socket.close()


def test_keep_alive_serves_many_requests_and_head_has_no_body(address: str) -> None:
    with RawClient(address) as client:
        for _ in range(3):
            client.send("GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
            assert b'"ok"' in client.read_until(b"}")
        client.send("HEAD /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        response = client.read()
        assert status(response) == 200
        assert response.endswith(b"\r\n\r\n")


def test_an_unwanted_body_does_not_spoil_the_connection(address: str) -> None:
    with RawClient(address) as client:
        client.send("GET /healthz HTTP/1.1\r\nhost: localhost\r\ncontent-length: 4\r\n\r\nabcd")
        client.read_until(b"}")
        client.send("GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert status(client.read_until(b"}")) == 200


# --- stopping -------------------------------------------------------------------------------


def test_drain_lets_a_running_stream_finish() -> None:
    world = World(script=["one ", None, "two"], settings=quick(drain_s=5.0))
    live = LiveServer(world)
    address = live.start()
    with RawClient(address) as client, RawClient(address) as idle:
        idle.send("GET /readyz HTTP/1.1\r\nhost: localhost\r\n\r\n")
        idle.read_until(b"}")
        client.post(CHAT, STREAM)
        client.read_until(b"one")
        stopping = threading.Thread(target=live.stop)
        stopping.start()
        until(lambda: world.app.draining)
        idle.send("GET /readyz HTTP/1.1\r\nhost: localhost\r\n\r\n")
        draining = idle.read_until(b"}")
        assert status(draining) == 503
        assert b"draining" in draining
        idle.post(CHAT, ASK)
        refused = idle.read_until(b"}}")
        assert status(refused) == 503
        assert b"shutting_down" in refused
        with pytest.raises(OSError, match="refused"):
            RawClient(address)
        assert live.server is not None and live.server._loop is not None
        live.server._loop.call_soon_threadsafe(world.answering.released.set)
        rest = client.read()
        assert rest.rstrip().endswith(b"0")
        assert b"[DONE]" in rest
        stopping.join(5)


def test_drain_ends_what_does_not_finish_with_an_error_event() -> None:
    world = World(script=["one ", None], settings=quick(drain_s=0.2))
    live = LiveServer(world)
    address = live.start()
    with RawClient(address) as client:
        client.post(CHAT, STREAM)
        client.read_until(b"one")
        live.stop()
        rest = client.read()
    assert b'"code":"shutting_down"' in rest
    assert b"[DONE]" not in rest
    assert b'"finish_reason":"stop"' not in rest
    assert world.answering.active == 0


PROCESS = """
import asyncio, sys
from forebay.gateway.server import Server
from tests.unit.gateway.fakes import World
from tests.unit.gateway.test_server import quick

async def main():
    world = World(script=["one ", None], settings=quick(drain_s=float(sys.argv[1])))
    server = Server(world.app)
    print(server.addresses[0], flush=True)
    await server.serve()
    print("clean end", flush=True)

asyncio.run(main())
"""


def start_process(
    tmp_path: Path, repository: Path, drain_s: float
) -> tuple[subprocess.Popen[str], str]:
    script = tmp_path / "server.py"
    script.write_text(PROCESS)
    process = subprocess.Popen(
        [sys.executable, str(script), str(drain_s)],
        env=os.environ | {"PYTHONPATH": f"{repository / 'src'}:{repository}"},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    address = process.stdout.readline().strip()

    def answers() -> bool:
        try:
            return httpx.get(f"{address}/healthz").status_code == 200
        except httpx.TransportError:
            return False

    until(answers, 20)
    return process, address


def test_sigterm_drains_and_exits_cleanly(tmp_path: Path, repository: Path) -> None:
    process, address = start_process(tmp_path, repository, 0.2)
    with RawClient(address) as client:
        client.post(CHAT, STREAM)
        client.read_until(b"one")
        process.send_signal(signal.SIGTERM)
        assert b"shutting_down" in client.read()
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "clean end" in out


def test_a_second_signal_ends_the_process_at_once(tmp_path: Path, repository: Path) -> None:
    process, address = start_process(tmp_path, repository, 60)
    with RawClient(address) as client:
        client.post(CHAT, STREAM)
        client.read_until(b"one")
        process.send_signal(signal.SIGTERM)

        def refuses() -> bool:
            try:
                RawClient(address).socket.close()
            except OSError:
                return True
            return False

        until(refuses)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert process.returncode == -signal.SIGTERM


# --- where it listens -----------------------------------------------------------------------


def test_without_keys_only_loopback_can_be_bound() -> None:
    for host in ("0.0.0.0", "::", "192.0.2.1"):
        world = World(settings=ServerSettings(host=host, port=0))
        with pytest.raises(ConfigError) as caught:
            Server(world.app)
        assert caught.value.param == "server.host"
    with socket.socket() as wide:
        wide.bind(("0.0.0.0", 0))
        with pytest.raises(ConfigError):
            Server(World().app, [wide])


def test_a_taken_port_is_a_sentence() -> None:
    with bind("127.0.0.1", 0) as first:
        first.listen()
        with pytest.raises(ConfigError, match=r"server\.port"):
            bind("127.0.0.1", first.getsockname()[1])
