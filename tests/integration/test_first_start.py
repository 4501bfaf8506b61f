"""A server that has not indexed its folders yet: what it says, and what it refuses to say."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.integration.support import LEXICAL, Reply, Served, served, until

ALPHA = "# Alpha\n\nThe alpha valve is in the cellar. It is red. It leaks. It is old.\n"
OMEGA = "# Omega\n\nThe omega valve is in the attic. It is blue. It holds. It is new.\n"
ASKS = 8
"""Whichever of two processes on one port is met, it says so."""


class Embedding(ThreadingHTTPServer):
    """An embeddings endpoint that answers for texts with a held word when that is let go."""

    daemon_threads = True

    def __init__(self, *held: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.held = {word: threading.Event() for word in held}


class _Handler(BaseHTTPRequestHandler):
    server: Embedding

    def do_POST(self) -> None:
        texts = json.loads(self.rfile.read(int(self.headers["content-length"])))["input"]
        for word, let_go in self.server.held.items():
            if any(word in text for text in texts):
                let_go.wait()
        rows = [
            {"index": at, "embedding": [1.0, len(text) % 7, 1.0]} for at, text in enumerate(texts)
        ]
        body = json.dumps({"data": rows, "model": "m"}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nobody reads it."""


@contextmanager
def embedding(*held: str) -> Iterator[Embedding]:
    with Embedding(*held) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            for let_go in server.held.values():
                let_go.set()
            server.shutdown()
            thread.join()


def config(folder: Path, server: Embedding) -> str:
    """Two folders whose files are cut by meaning, one after the other, and a kb without any."""
    return f"""
[embedding]
backend = "openai"
base_url = "http://127.0.0.1:{server.server_address[1]}/v1"
model = "m"
timeout_s = 600
encoding = "float"
[ingest.chunks]
kind = "meaning"
[ingest.folders]
max_batch_files = 1
commit_documents = 1
[knowledge.first]
paths = ["{folder}/first"]
[knowledge.later]
paths = ["{folder}/later"]
[knowledge.uploads]
[[cache.answers.rules]]
name = "all"
"""


def search(server: Served, kb: str) -> Reply:
    return server.ask("POST", "/v1/search", {"kb": kb, "query": "Where is the alpha valve?"})


def chat(server: Served, kb: str, *, stream: bool = False) -> Reply:
    asked = [{"role": "user", "content": "Where is the alpha valve?"}]
    body = {"model": f"forebay/{kb}", "messages": asked, "stream": stream}
    return server.ask("POST", "/v1/chat/completions", body)


def lacks(reply: Reply) -> set[str]:
    """Why an answer is not what it may be, of what this is about."""
    assert reply.status == 200, reply.body
    told = reply.json.get("forebay", reply.json)["degradations"]
    return {step["reason"] for step in told} & {"indexing", "not_indexed"}


def refused(reply: Reply, code: str) -> bool:
    error = reply.json["error"]
    assert (reply.status, error["code"], error["type"]) == (503, code, "overloaded_error")
    return bool(reply.headers["retry-after"] == "1")


@pytest.mark.parametrize("workers", [1, 2])
def test_nothing_is_answered_from_what_is_not_there_yet(tmp_path: Path, workers: int) -> None:
    for kb in ("first", "later"):
        (tmp_path / kb).mkdir()
        (tmp_path / kb / "a.md").write_text(ALPHA)
        (tmp_path / kb / "b.md").write_text(OMEGA)
    with embedding("alpha valve is", "omega valve is") as vectors:
        alpha, omega = vectors.held.values()
        server = Served(tmp_path, config(tmp_path, vectors), ("--workers", str(workers)))
        try:
            until(lambda: _reachable(server), within_s=60)
            for _ in range(ASKS):
                for kb in ("first", "later"):
                    assert refused(search(server, kb), "indexing")
                    assert refused(chat(server, kb), "indexing")
                    assert refused(chat(server, kb, stream=True), "indexing")
                assert not lacks(search(server, "uploads")), "nothing will come of itself"
                ready = server.ask("GET", "/readyz")
                assert ready.status == 503 and "indexing first" in ready.json["reasons"]
            alpha.set()
            until(lambda: server.ask.version("first"), within_s=60)
            for _ in range(ASKS):
                assert refused(search(server, "later"), "indexing")
                reply = search(server, "first")
                assert lacks(reply) == {"indexing"} and len(reply.json["hits"]) == 1
                reply = chat(server, "first")
                assert lacks(reply) == {"indexing"} and "cellar" in reply.body.decode()
                assert reply.headers["x-forebay-cache"] != "hit"
                assert "(indexing)" in reply.headers["x-forebay-degraded"]
            omega.set()
            server.wait_ready()
            for kb in ("first", "later"):
                assert not lacks(search(server, kb))
                assert not lacks(chat(server, kb))
        finally:
            for let_go in vectors.held.values():
                let_go.set()
            assert server.stop() == 0


def _reachable(server: Served) -> bool:
    try:
        return server.ask("GET", "/healthz").status == 200
    except OSError:
        return False


def test_what_could_not_be_indexed_is_not_called_empty(tmp_path: Path) -> None:
    """No room on the disk: not at the first start, and not for a change at a later one."""
    full = "[store]\nreserve_bytes = 1_000_000_000_000_000\n"
    (tmp_path / "kb").mkdir()
    (tmp_path / "kb" / "a.md").write_text(ALPHA)
    knowledge = f'[knowledge.kb]\npaths = ["{tmp_path}/kb"]\n'
    with served(tmp_path, LEXICAL + full + knowledge) as server:
        assert server.ask("GET", "/readyz").json["status"] == "degraded"
        assert refused(search(server, "kb"), "not_indexed")
        server.stop()
        server.configure(LEXICAL + knowledge)
        server.restart()
        assert not lacks(search(server, "kb"))
        server.stop()
        (tmp_path / "kb" / "a.md").write_text(OMEGA)
        server.configure(LEXICAL + full + knowledge)
        server.restart()
        assert lacks(search(server, "kb")) == {"not_indexed"}
        assert lacks(chat(server, "kb")) == {"not_indexed"}
