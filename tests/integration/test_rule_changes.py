"""Rules for kept answers that change at SIGHUP: what was kept under the old ones, and where."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.integration.in_process import QUESTION
from tests.integration.support import LEXICAL, served, until
from tests.integration.test_caching import RULE
from tests.integration.test_shared_quotas import keeper


def test_other_rules_of_one_service_end_the_answers_of_another(tmp_path: Path) -> None:
    body = {"model": "forebay/kb", "messages": [{"role": "user", "content": QUESTION}]}
    with keeper() as redis:
        config = f'{LEXICAL}[coordination]\nredis_url = "{redis.connection_url}"\n'
        with served(tmp_path / "a", config) as one, served(tmp_path / "b", config + RULE) as other:
            other.ask.put("kb", "dam.md", "# Dam\n\nThe spillway is 120 metres long.\n")
            other.ask("POST", "/v1/chat/completions", body)
            other.ask.search("kb", "metres")

            def entries(tier: str) -> float:
                found: float = other.command("cache", "stats", "--json").json[tier]["entries"]
                return found

            assert (entries("answer"), entries("retrieval")) == (1, 2)
            one.configure(config + RULE)
            one.process.send_signal(signal.SIGHUP)
            until(lambda: entries("answer") == 0)
            assert entries("retrieval") == 2
