"""``forebay simulate serve`` as a process: start, signals, a port in use."""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any

from tests.integration.support import COMMAND, environment
from tests.ports import unused_ports


@contextmanager
def serving(*words: str) -> Iterator[tuple[subprocess.Popen[str], Any]]:
    """The process and what it printed once its ports were open."""
    with subprocess.Popen(
        [*COMMAND, "simulate", "serve", "--json", *words],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            text = ""
            while not text.rstrip().endswith("}"):
                line = process.stdout.readline()
                assert line, process.stderr.read() if process.stderr else ""
                text += line
            yield process, json.loads(text)
        finally:
            process.kill()


def sent(port: int, **fields: Any) -> http.client.HTTPConnection:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    body = {"model": "sim", "messages": [{"role": "user", "content": "hello"}], **fields}
    connection.request("POST", "/v1/chat/completions", json.dumps(body))
    return connection


def ask(port: int, **fields: Any) -> http.client.HTTPResponse:
    return sent(port, **fields).getresponse()


def read_what_was_sent(port: int) -> None:
    """What came before is read before these are answered: a loop takes connections in turn."""
    for _ in range(3):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as page:
            page.read()


def test_a_signal_lets_the_answers_under_way_end() -> None:
    port = unused_ports()
    with serving("--port", str(port), "--output", "cap") as (process, addresses):
        assert addresses["replicas"] == [f"http://127.0.0.1:{port}"]
        with closing(ask(port, stream=True, max_tokens=100)) as response:
            assert response.readline().startswith(b"data: ")
            process.send_signal(signal.SIGTERM)
            # About 0.8 s of steps are still to come.
            assert response.read().endswith(b"data: [DONE]\n\n")
        assert process.wait(30) == 0
        assert process.stderr is not None and process.stderr.read() == ""


def test_what_hangs_does_not_keep_the_process() -> None:
    port = unused_ports()
    words = ("--port", str(port), "--output", "cap", "--set", "drain_s=1", "--fault", "stall")
    with serving(*words) as (process, _), closing(sent(port, max_tokens=5)) as waiting:
        read_what_was_sent(port)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
        assert waiting.getresponse().status == 200


def test_answers_that_take_too_long_are_cut_and_told() -> None:
    port = unused_ports()
    words = ("--port", str(port), "--output", "cap", "--set", "drain_s=1")
    with serving(*words) as (process, _), closing(ask(port, stream=True, max_tokens=4000)) as late:
        assert late.readline().startswith(b"data: ")
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 1
        with suppress(http.client.IncompleteRead, ConnectionError):
            assert b"[DONE]" not in late.read()
        assert process.stderr is not None and "Traceback" not in process.stderr.read()


def test_a_port_in_use_is_one_sentence() -> None:
    port = unused_ports()
    with serving("--port", str(port)):
        ran = subprocess.run(
            [*COMMAND, "simulate", "serve", "--port", str(port)],
            env=environment(),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert ran.returncode == 2
    lines = ran.stderr.strip().splitlines()
    assert len(lines) == 1
    assert f"port {port} on 127.0.0.1 cannot be used" in lines[0] and "--port" in lines[0]
