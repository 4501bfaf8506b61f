"""Templates and the memory of requests: exact, bounded, ended by another table."""

from __future__ import annotations

from typing import Any

import pytest

from forebay.gateway.replay import Replay, Replays, Telling, Template, head_of
from forebay.kernel.context import Principal, RequestContext
from forebay.pipeline.messages import AnswerDelta, AnswerEnd


class Never:
    def again(self, ctx: RequestContext) -> bool:
        del ctx
        return False

    def told(self) -> tuple[AnswerDelta, AnswerEnd]:
        raise NotImplementedError


def replay(tables: tuple[object, ...], size: int = 100) -> Replay:
    telling = Telling(Template(b"x" * size, ()), (), "k", "m", 1, streamed=False)
    return Replay(tables, Principal(), "127.0.0.1", Never(), telling)


def message(body: bytes) -> dict[str, Any]:
    return {"type": "http.request", "body": body}


HEAD = head_of({"client": ("127.0.0.1", 1), "headers": [(b"host", b"h")]})


@pytest.mark.parametrize(
    ("data", "filled"),
    [
        (b"M0 and M1 and M0", b"one and two and one"),
        (b"M1M0", b"twoone"),
        (b"nothing", b"nothing"),
        (b"", b""),
        ("退款 M0 天".encode(), "退款 one 天".encode()),
    ],
)
def test_a_template_has_its_values_wherever_the_marks_were(data: bytes, filled: bytes) -> None:
    assert Template(data, (b"M0", b"M1")).filled((b"one", b"two")) == filled


def test_a_head_is_all_that_may_count_and_nothing_that_only_names_a_request() -> None:
    def head(*headers: tuple[bytes, bytes], client: str = "a") -> object:
        return head_of({"client": (client, 1), "headers": list(headers)})

    key = (b"authorization", b"Bearer k")
    assert head(key) == head(key, (b"x-request-id", b"1"), (b"traceparent", b"2"))
    assert head(key) != head((b"authorization", b"Bearer l"))
    assert head(key) != head(key, (b"x-forebay-groups", b"hr"))
    assert head(key) != head(key, client="b")
    assert head_of({"headers": []})[0] == ""


def test_it_is_found_by_the_same_bytes_while_the_tables_are_the_same() -> None:
    tables: tuple[object, ...] = (object(), None)
    replays = Replays(1 << 20, lambda: tables)
    kept = replay(replays.tables())
    replays.keep(HEAD, b"body", kept)
    assert replays.find(HEAD, message(b"body")) is kept
    assert replays.find(HEAD, message(b"body ")) is None
    assert replays.find(HEAD, None) is None
    assert replays.find(HEAD, {**message(b"body"), "more_body": True}) is None
    tables = (object(), None)
    assert replays.find(HEAD, message(b"body")) is None
    assert replays.statistics() == {"entries": 0, "bytes": 0, "told": 0}


def test_bytes_are_bounded_and_the_longest_unused_goes_first() -> None:
    replays = Replays(20_000, lambda: ())
    for number in range(50):
        replays.keep(HEAD, b"%d" % number, replay(()))
        replays.find(HEAD, message(b"0"))
        assert replays.statistics()["bytes"] <= 20_000
    assert replays.find(HEAD, message(b"0")) is not None
    assert replays.find(HEAD, message(b"1")) is None
    assert replays.find(HEAD, message(b"49")) is not None
    replays.keep(HEAD, b"big", replay((), size=10_000))
    assert replays.find(HEAD, message(b"big")) is None


def test_keeping_it_again_replaces_it() -> None:
    replays = Replays(20_000, lambda: ())
    replays.keep(HEAD, b"a", replay(()))
    before = replays.statistics()["bytes"]
    replays.keep(HEAD, b"a", replay(()))
    assert replays.statistics()["bytes"] == before
    replays.forget(HEAD, b"a")
    replays.forget(HEAD, b"a")
    assert replays.statistics()["bytes"] == 0
