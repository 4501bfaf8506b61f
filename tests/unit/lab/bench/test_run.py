"""Whole runs against targets on loopback: what is sent, and what each kind of end is called."""

from __future__ import annotations

import asyncio
import json

import msgspec
import pytest

from forebay.kernel.errors import ConfigError, Unavailable
from forebay.lab.bench.options import Snapshot
from forebay.lab.bench.run import run_bench
from forebay.lab.measure.result import (
    CONNECT_FAILED,
    CUT,
    DISCONNECTED,
    ERROR_EVENT,
    HTTP_ERROR,
    MALFORMED,
    NOT_SENT,
    OK,
    REFUSED,
    TIMEOUT,
    RunResult,
    encode_result,
)
from tests.unit.lab.bench.targets import (
    OK_STREAM,
    Answer,
    Asked,
    chunked,
    event,
    options,
    raw_target,
    ready,
    sent,
    until,
    whole_stream,
    workload,
)


async def bench(answer: Answer, **more: object) -> RunResult:
    load = more.pop("load", None)
    async with raw_target(answer) as target:
        return await run_bench(options(target, load, **more))  # type: ignore[arg-type]


async def test_a_streamed_run_from_start_to_result() -> None:
    head = (
        OK_STREAM
        + b"x-forebay-cache: embedding=hit, answer=miss\r\nX-Forebay-Rung: vector+bm25\r\n"
    )
    looks: list[Snapshot] = []
    async with raw_target(ready(whole_stream(3), head)) as target:
        result = await run_bench(options(target), looks.append)
    total = result.total
    assert total.statuses == {OK: 10}
    assert (total.sent, total.good, total.output_tokens, total.input_tokens) == (10, 10, 30, 50)
    assert total.ttft.count == total.total.count == 10
    assert total.itl.count == 20
    assert result.cache == {"embedding": {"hit": 10}, "answer": {"miss": 10}}
    assert result.rungs == {"vector+bm25": 10}
    assert result.generator is not None and result.generator.valid
    assert result.generator.sends == result.generator.lateness.count == 10
    assert looks[-1].ok == 10 and looks[-1].in_flight == 0
    run = result.run
    assert run.source == "bench" and run.machine.cores > 0 and run.fingerprint
    assert run.target == target.base_url + "/v1"
    assert json.loads(encode_result(result))["run"]["workload"]["kinds"][0]["name"] == "light"


async def test_what_goes_over_the_wire() -> None:
    load = workload(
        arrivals={"kind": "constant", "rate": 100, "count": 2},
        kinds=[
            {
                "name": "light",
                "input_tokens": 6,
                "output_tokens": 3,
                "deadline_s": 1.5,
                "priority": "low",
            }
        ],
        tenants=[{"name": "acme", "key": "sk-secret", "users": 1}],
    )
    async with raw_target(ready(whole_stream())) as target:
        result = await run_bench(
            options(target, load, headers={"x-mine": "1"}, extra_body={"temperature": 0})
        )
    asked = target.asked[0]
    assert asked.line == "POST /v1/chat/completions HTTP/1.1"
    headers = asked.headers
    assert headers["authorization"] == "bearer sk-secret"
    assert headers["x-forebay-deadline-ms"] == "1500"
    assert headers["x-forebay-priority"] == "low"
    assert headers["x-forebay-user"].startswith("acme-")
    assert headers["x-mine"] == "1"
    assert headers["host"] == target.base_url.removeprefix("http://")
    assert asked.body["model"] == "m" and asked.body["temperature"] == 0
    assert asked.body["max_tokens"] == 3 and asked.body["stream"] is True
    assert asked.body["stream_options"] == {"include_usage": True}
    assert asked.body["messages"][0]["role"] == "user"
    assert b"sk-secret" not in encode_result(result)
    assert result.by_tenant["acme"].ok == 2


async def test_a_plain_run() -> None:
    body = json.dumps(
        {
            "choices": [{"message": {"content": "yes"}}],
            "usage": {"prompt_tokens": 4, "completion_tokens": 2},
        }
    ).encode()
    answer = sent(
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
        % (len(body), body)
    )
    async with raw_target(answer) as target:
        result = await run_bench(options(target, stream=False))
    assert result.total.statuses == {OK: 10}
    assert result.total.output_tokens == 20
    assert result.total.itl.count == result.total.tpot.count == 0
    assert "stream_options" not in target.asked[0].body


BODY = whole_stream(4)


@pytest.mark.parametrize(
    "answer",
    [
        sent(OK_STREAM + b"content-length: %d\r\n\r\n" % len(BODY), BODY[:99], BODY[99:]),
        sent(OK_STREAM + b"transfer-encoding: chunked\r\n\r\n" + chunked(BODY, 3)),
        sent(OK_STREAM + b"connection: close\r\n\r\n", BODY, close=True),
        sent(
            OK_STREAM + b"connection: close\r\ntransfer-encoding: chunked\r\n\r\n",
            chunked(BODY),
            close=True,
        ),
        sent(b"HTTP/1.0 200 OK\r\ncontent-type: text/event-stream\r\n\r\n" + BODY, close=True),
        sent(
            b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n"
            + OK_STREAM
            + b"content-length: %d\r\n\r\n%b" % (len(BODY), BODY)
        ),
        sent(
            *(
                (OK_STREAM + b"transfer-encoding: chunked\r\n\r\n" + chunked(BODY, 9))[at : at + 11]
                for at in range(0, 2_000, 11)
            )
        ),
    ],
    ids=["length", "chunked", "close", "chunked-close", "http10", "early-hints", "split"],
)
async def test_every_framing_of_http(answer: Answer) -> None:
    result = await bench(
        answer, load=workload(arrivals={"kind": "constant", "rate": 50, "count": 4})
    )
    assert result.total.statuses == {OK: 4}
    assert result.total.output_tokens == 16


async def test_connections_are_kept() -> None:
    load = workload(closed_loop={"users": 2, "count": 40})
    async with raw_target(ready(whole_stream())) as target:
        result = await run_bench(options(target, load))
    assert result.total.statuses == {OK: 40}
    assert target.connections <= 2
    assert result.generator is not None
    assert result.generator.connections == target.connections


HEAD = OK_STREAM + b"transfer-encoding: chunked\r\n\r\n"
PART = b"%x\r\n%b\r\n" % (len(event("a")), event("a"))
REFUSAL = b'{"error": {"message": "too many"}}'


@pytest.mark.parametrize(
    ("answer", "status", "code"),
    [
        (sent(HEAD + PART, close=True), CUT, None),
        (sent(b"", close=True), CUT, None),
        (sent(HEAD + PART + b"0\r\n\r\n"), CUT, None),
        (ready(event("a") + b'data: {"error": {"message": "died"}}\n\n'), ERROR_EVENT, None),
        (sent(b"SSH-2.0-OpenSSH_9.9\r\n"), MALFORMED, None),
        (sent(HEAD + b"zz\r\n"), MALFORMED, None),
        (ready(b"data: nonsense\n\n"), MALFORMED, None),
        (
            sent(b"HTTP/1.1 101 Hm\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\nhello"),
            MALFORMED,
            None,
        ),
        (
            sent(b"HTTP/1.1 429 No\r\nretry-after: 1\r\ncontent-length: 34\r\n\r\n" + REFUSAL),
            REFUSED,
            "429",
        ),
        (
            sent(b"HTTP/1.1 503 No\r\nretry-after: 1\r\ncontent-length: 34\r\n\r\n" + REFUSAL),
            REFUSED,
            "503",
        ),
        (
            sent(b"HTTP/1.1 503 No\r\ncontent-length: 34\r\n\r\n" + REFUSAL),
            HTTP_ERROR,
            "503",
        ),
        (sent(b"HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n"), HTTP_ERROR, "500"),
        (sent(b"HTTP/1.1 307 No\r\nlocation: /\r\ncontent-length: 0\r\n\r\n"), HTTP_ERROR, "307"),
        (sent(b"HTTP/1.1 401 No\r\nconnection: close\r\n\r\nno", close=True), HTTP_ERROR, "401"),
    ],
)
async def test_what_each_bad_end_is_called(answer: Answer, status: str, code: str | None) -> None:
    result = await bench(answer)
    assert result.total.statuses == {status: 10}
    assert result.codes == ({code: 10} if code else {})
    assert result.total.goodput_share == 0.0


async def test_the_targets_own_words_are_kept() -> None:
    result = await bench(
        sent(b"HTTP/1.1 429 No\r\nretry-after: 1\r\ncontent-length: 34\r\n\r\n" + REFUSAL)
    )
    assert result.messages == {REFUSED: "too many"}


@pytest.mark.parametrize(
    "answer",
    [sent(), sent(HEAD), sent(HEAD + PART), sent(b"HTTP/1.1 200")],
    ids=["silent", "head", "mid-stream", "half-a-line"],
)
async def test_a_target_that_hangs_runs_into_the_time_out(answer: Answer) -> None:
    result = await bench(answer, timeout_s=0.3)
    assert result.total.statuses == {TIMEOUT: 10}
    assert result.total.total.p50_s > 0.29
    assert result.generator is not None and result.generator.valid


async def test_what_begins_like_no_answer_is_not_waited_for() -> None:
    result = await bench(sent(b"X" * 10), timeout_s=30.0)
    assert result.total.statuses == {MALFORMED: 10}
    assert result.total.total.max_s < 15.0


async def test_slow_heads_count_into_the_first_token() -> None:
    async def slow(asked: Asked, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.15)
        writer.write(HEAD + chunked(whole_stream()))

    result = await bench(slow)
    assert result.total.statuses == {OK: 10}
    assert 0.15 < result.total.ttft.p50_s <= result.total.total.p50_s


async def test_a_deadline_is_waited_for_with_its_grace_and_no_longer() -> None:
    load = workload(
        kinds=[{"name": "light", "input_tokens": 6, "output_tokens": 3, "deadline_s": 0.1}]
    )

    async def late(asked: Asked, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.2)
        writer.write(HEAD + chunked(whole_stream()))

    result = await bench(late, load=load, deadline_grace_s=30.0, timeout_s=60.0)
    assert result.total.statuses == {OK: 10} and result.total.good == 0
    result = await bench(sent(), load=load, deadline_grace_s=0.02, timeout_s=60.0)
    assert result.total.statuses == {TIMEOUT: 10}
    assert result.total.total.max_s < 20.0


async def test_nobody_there() -> None:
    result = await run_bench(options("http://127.0.0.1:9"))
    assert result.total.statuses == {CONNECT_FAILED: 10}
    assert "refused" in result.messages[CONNECT_FAILED].lower()


async def test_a_kept_connection_that_the_target_closes_is_no_error() -> None:
    """The request goes again, once, on a new connection; its latency counts from the start."""

    async def once(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + chunked(whole_stream()))
        await writer.drain()
        writer.close()

    result = await bench(once, load=workload(arrivals={"kind": "constant", "rate": 40, "count": 8}))
    assert result.total.statuses == {OK: 8}


async def test_clients_leave_on_purpose() -> None:
    load = workload(
        kinds=[
            {
                "name": "light",
                "input_tokens": 6,
                "output_tokens": 9,
                "disconnect": {"share": 1.0, "after_tokens": 2},
            }
        ]
    )

    async def endless(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD)
        for _ in range(100):
            writer.write(PART)
            await writer.drain()
            await asyncio.sleep(0.01)

    async with raw_target(endless) as target:
        result = await run_bench(options(target, load))
        await until(lambda: target.left == 10)
    assert result.total.statuses == {DISCONNECTED: 10}
    assert result.total.disconnected == 10 and result.total.goodput_share == 0.0
    assert result.total.output_tokens == 20


async def test_the_wait_for_a_connection_counts() -> None:
    async def slow(asked: Asked, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.05)
        writer.write(HEAD + chunked(whole_stream()))

    async with raw_target(slow) as target:
        result = await run_bench(options(target, max_connections=1))
    assert target.connections == 1
    assert result.total.statuses == {OK: 10}
    assert result.total.total.max_s > 0.35
    assert result.generator is not None and not result.generator.valid
    assert "waited because all 1 connections" in result.generator.why_not[0]


async def test_the_generators_own_bound_makes_the_result_invalid() -> None:
    # So long that all are due before one of them is given up.
    result = await bench(sent(), timeout_s=1.5, max_in_flight=4)
    assert result.total.statuses == {TIMEOUT: 4, NOT_SENT: 6}
    assert result.total.sent == 4 and result.total.not_sent == 6
    generator = result.generator
    assert generator is not None and not generator.valid
    assert "6 requests were not sent" in generator.why_not[0]
    asked_for = await bench(sent(), timeout_s=1.5, max_in_flight=4, accept_not_sent=True)
    assert asked_for.generator is not None and asked_for.generator.valid


async def test_a_late_generator_makes_the_result_invalid() -> None:
    import time

    async def blocking(asked: Asked, writer: asyncio.StreamWriter) -> None:
        # Target and generator share this loop.
        time.sleep(0.05)
        writer.write(HEAD + chunked(whole_stream()))

    result = await bench(blocking, max_lateness_p99_s=0.01)
    assert result.generator is not None and not result.generator.valid
    assert "ms late" in result.generator.why_not[0]


async def test_cancelling_closes_every_connection() -> None:
    load = workload(arrivals={"kind": "constant", "rate": 100, "duration_s": 60.0})
    async with raw_target(sent(HEAD)) as target:
        run = asyncio.ensure_future(run_bench(options(target, load)))
        await until(lambda: len(target.asked) > 5)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        await until(lambda: target.connections == target.left)


async def test_the_model_is_asked_for() -> None:
    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        if asked.line.startswith("GET /v1/models"):
            body = b'{"object": "list", "data": [{"id": "first"}, {"id": "second"}]}'
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
        else:
            writer.write(HEAD + chunked(whole_stream()))

    async with raw_target(answer) as target:
        result = await run_bench(options(target, model=""))
    assert target.asked[-1].body["model"] == "first"
    assert result.run.options["target"]["model"] == "first"


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (sent(b"HTTP/1.1 401 No\r\ncontent-length: 0\r\n\r\n"), "give a key"),
        (sent(b"HTTP/1.1 404 No\r\ncontent-length: 0\r\n\r\n"), "name one by the model option"),
        (sent(b'HTTP/1.1 200 OK\r\ncontent-length: 11\r\n\r\n{"data":[]}'), "names no model"),
    ],
)
async def test_no_model_to_be_had(answer: Answer, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        await bench(answer, model="")


async def test_no_target_to_ask() -> None:
    with pytest.raises(Unavailable, match="nothing answers"):
        await run_bench(options("http://127.0.0.1:9", model=""))


async def test_options_that_cannot_work() -> None:
    for more, says in (
        ({"timeout_s": 0.0}, "the time-out is 0"),
        ({"warmup_s": -1.0}, "warm-up"),
        ({"warmup_s": float("inf")}, "warm-up"),
        ({"max_connections": 0}, "connections is 0"),
        ({"max_connections": 10**9}, "lower the bound of connections"),
        ({"headers": {"Host": "x"}}, "set by the bench"),
        ({"headers": {"a b": "x"}}, "not a header's name"),
        ({"headers": {"a": "x\r\ny: z"}}, "cannot carry"),
    ):
        with pytest.raises(ConfigError, match=says):
            await run_bench(options("http://127.0.0.1:9", **more))


async def test_a_name_no_header_can_carry_ends_the_run_with_a_sentence() -> None:
    load = workload(tenants=[{"name": "客户", "users": 3}])
    with pytest.raises(ConfigError, match="cannot carry"):
        await bench(ready(whole_stream()), load=load)


async def test_warm_up_is_sent_but_not_counted() -> None:
    load = workload(arrivals={"kind": "constant", "rate": 40, "duration_s": 1.0})
    async with raw_target(ready(whole_stream())) as target:
        result = await run_bench(options(target, load, warmup_s=0.5, slice_s=0.25))
    assert len(target.asked) == 40
    assert result.total.sent == 20
    assert result.sent_per_s == pytest.approx(40)
    assert len(result.timeline.slices) >= 4


async def test_a_result_survives_being_written() -> None:
    result = await bench(ready(whole_stream()))
    assert msgspec.json.decode(encode_result(result), type=RunResult) == result
