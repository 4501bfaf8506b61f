"""Real processes for tests: commands of ``forebay``, a served store, HTTP requests to it."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import psutil

from tests.ports import unused_ports

T = TypeVar("T")
ROOT = Path(__file__).resolve().parents[2]
COMMAND = (sys.executable, "-c", "from forebay.app.cli import main; main()")
READY_S = 60.0
STOP_S = 45.0


def environment(**more: str) -> dict[str, str]:
    """The environment of a child: this checkout's code, no settings from outside."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FOREBAY_")}
    return {**kept, "PYTHONPATH": str(ROOT / "src"), "PYTHONUNBUFFERED": "1", **more}


def until(reached: Callable[[], T | None], within_s: float = 20.0, every_s: float = 0.02) -> T:
    """Poll until ``reached`` returns something true, return that; fails after ``within_s``."""
    end = time.monotonic() + within_s
    while True:
        value = reached()
        if value:
            return value
        assert time.monotonic() < end, f"not reached within {within_s:g} s: {reached}"
        time.sleep(every_s)


class Ran(NamedTuple):
    """A finished command."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output as the one JSON value it has to be."""
        return json.loads(self.out)


class ForkServer:
    """Commands as forks of one process that has imported what they need."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, Path(__file__).with_name("fork_server.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment(),
        )

    def call(self, request: object) -> bytes:
        """One line there and back."""
        requests, answers = self._process.stdin, self._process.stdout
        assert requests is not None and answers is not None
        with self._lock:
            requests.write(json.dumps(request).encode() + b"\n")
            requests.flush()
            return answers.readline().strip()


@cache
def fork_server() -> ForkServer:
    """The one of this test process; it ends with its standard input."""
    return ForkServer()


class Forked:
    """A running command of the fork server; the part of ``subprocess.Popen`` that tests use."""

    def __init__(self, words: tuple[str | Path, ...], folder: Path, **how: object) -> None:
        call = {"words": [str(word) for word in words], "folder": str(folder)}
        self.pid = int(fork_server().call({"stdin": os.devnull, **call, **how}))
        self._status: int | None = None

    def poll(self) -> int | None:
        """The exit status, None while it runs."""
        if self._status is None and (answer := fork_server().call(self.pid)):
            self._status = int(answer)
        return self._status

    def wait(self, timeout: float = 60.0) -> int:
        """Wait for the end."""
        until(lambda: self.poll() is not None, timeout, every_s=0.01)
        assert self._status is not None
        return self._status

    def send_signal(self, number: int) -> None:
        """Signal it unless it ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End it now."""
        self.send_signal(signal.SIGKILL)


Running = subprocess.Popen[bytes] | Forked


def forebay(*words: str | Path, folder: Path, **env: str) -> Ran:
    """Run one command to its end, without a terminal, in ``folder``."""
    with tempfile.TemporaryDirectory() as place:
        out, err = Path(place, "out"), Path(place, "err")
        how = {"env": environment(**env), "stdout": str(out), "stderr": str(err)}
        status = Forked(words, folder, **how).wait()
        return Ran(status, out.read_text("utf-8"), err.read_text("utf-8"))


def forebay_apart(*words: str | Path, folder: Path) -> Ran:
    """The same as a process from scratch; several may run at once."""
    done = subprocess.run(
        [*COMMAND, *map(str, words)],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        env=environment(),
        check=False,
    )
    return Ran(done.returncode, done.stdout, done.stderr)


def start(*words: str | Path, folder: Path, log: Path, apart: bool = False) -> Running:
    """Start a command that runs on; both of its streams go to ``log``.

    ``apart`` is a process from scratch, else a fork that saves the imports.
    """
    log.touch()
    if not apart:
        return Forked(words, folder, env=environment(), stdout=str(log), stderr=str(log))
    with log.open("ab") as stream:
        return subprocess.Popen(
            [*COMMAND, *map(str, words)],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            env=environment(),
        )


def descendants(pid: int) -> list[psutil.Process]:
    """The living processes below ``pid``."""
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def kill_all(processes: list[psutil.Process]) -> None:
    """End what a test left."""
    for process in processes:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue


class Reply(NamedTuple):
    """An HTTP response, read whole."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


class Client:
    """HTTP requests to one server; a connection each, so that threads may share it."""

    def __init__(self, port: int, headers: Mapping[str, str] | None = None) -> None:
        self.port = port
        self.headers = dict(headers or {})

    def __call__(
        self,
        method: str,
        path: str,
        body: object = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = 60.0,
    ) -> Reply:
        """Send one request; bytes and text as they are, anything else as JSON.

        Raises OSError where the server is gone, also when it went amid its answer.
        """
        sent = {"connection": "close", **self.headers, **(headers or {})}
        data: bytes | None
        if body is None or isinstance(body, bytes):
            data = body
        elif isinstance(body, str):
            data = body.encode()
        else:
            data = json.dumps(body).encode()
            sent["content-type"] = "application/json"
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout_s)
        with closing(connection):
            connection.request(method, path, data, sent)
            answer = connection.getresponse()
            fields = {name.lower(): value for name, value in answer.getheaders()}
            try:
                return Reply(answer.status, fields, answer.read())
            except http.client.IncompleteRead as error:
                raise ConnectionResetError("the answer broke off") from error

    def put(self, kb: str, document_id: str, text: str | bytes, query: str = "") -> Reply:
        """Upload one document."""
        return self("PUT", f"/v1/kb/{kb}/documents/{document_id}{query}", text)

    def delete(self, kb: str, document_id: str) -> Reply:
        """Remove one document."""
        return self("DELETE", f"/v1/kb/{kb}/documents/{document_id}")

    def version(self, kb: str) -> int:
        """The kb's version."""
        version: int = self("GET", f"/v1/kb/{kb}").json["kb_version"]
        return version

    def search(
        self, kb: str, query: str, top_k: int = 5, headers: Mapping[str, str] | None = None
    ) -> list[dict[str, Any]]:
        """The hits of a search that has to succeed."""
        body = {"kb": kb, "query": query, "top_k": top_k}
        reply = self("POST", "/v1/search", body, headers)
        assert reply.status == 200, reply.body
        hits: list[dict[str, Any]] = reply.json["hits"]
        return hits

    def found(self, kb: str, query: str, top_k: int = 10) -> set[str]:
        """The documents a search finds."""
        return {hit["document_id"] for hit in self.search(kb, query, top_k)}

    def ready(self) -> bool:
        """Whether the server answers that it is ready."""
        try:
            return self("GET", "/readyz", timeout_s=5.0).status == 200
        except OSError:
            return False


class Served:
    """A running ``forebay serve`` in a folder of its own."""

    def __init__(
        self,
        folder: Path,
        config: str,
        words: tuple[str | Path, ...] = (),
        *,
        apart: bool = False,
    ) -> None:
        self.folder = folder
        self.port = unused_ports()
        self.store = folder / "store"
        self.config = folder / "forebay.toml"
        self.log_file = folder / "serve.log"
        self.ask = Client(self.port)
        self._words = words
        self._apart = apart
        self.configure(config)
        self.process = self._start()

    def configure(self, config: str) -> None:
        """Write the configuration file; the server reads it at its start and at SIGHUP."""
        self.config.write_text(config, encoding="utf-8")

    def _start(self) -> Running:
        words = ("serve", "--port", str(self.port), "--store", self.store, *self._words)
        return start(*words, folder=self.folder, log=self.log_file, apart=self._apart)

    def restart(self) -> None:
        """Start again on the same folder and port after the process ended."""
        assert self.process.poll() is not None
        self.process = self._start()
        self.wait_ready()

    def log(self) -> str:
        """What the process logged so far."""
        return self.log_file.read_text(encoding="utf-8", errors="replace")

    def wait_ready(self, within_s: float = READY_S) -> None:
        """Wait for /readyz; a process that ended is told with its log."""

        def reached() -> bool:
            assert self.process.poll() is None, self.log()
            return self.ask.ready()

        until(reached, within_s)

    def stop(self) -> int:
        """End it with SIGTERM; return its status, having checked that no child is left."""
        children = descendants(self.process.pid)
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            status = self.process.wait(STOP_S)
            _, alive = psutil.wait_procs(children, timeout=5)
            assert not alive, f"left behind: {[process.cmdline() for process in alive]}"
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()
            kill_all([child for child in children if child.is_running()])
        return status

    def command(self, *words: str | Path) -> Ran:
        """Run a command on the same store and configuration, beside the server."""
        return forebay(*words, "--store", self.store, folder=self.folder)


LEXICAL = '[embedding]\nbackend = "none"\n'
"""The configuration of a server that is up quickly: no embedding model."""


@contextmanager
def served(
    folder: Path,
    config: str = LEXICAL,
    *words: str | Path,
    status: int = 0,
    apart: bool = False,
) -> Iterator[Served]:
    """A ready server; afterwards it ends by SIGTERM with ``status`` and without a traceback."""
    folder.mkdir(parents=True, exist_ok=True)
    server = Served(folder, config, words, apart=apart)
    try:
        server.wait_ready()
        yield server
    finally:
        ended = server.stop()
    assert ended == status, server.log()
    assert "Traceback" not in server.log(), server.log()
