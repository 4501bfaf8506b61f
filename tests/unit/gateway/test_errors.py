"""The one table: every error of the kernel has a status, and nothing inner leaves."""

from __future__ import annotations

import inspect
import json
import logging
import re
from typing import Any

import pytest

from forebay.gateway import errors as table
from forebay.gateway.errors import failure, openai_error, rule_for
from forebay.kernel import errors as kernel
from forebay.kernel.errors import ForebayError
from tests.unit.gateway.client import client
from tests.unit.gateway.fakes import World

EXPECTED = {
    "AllInUse": 503, "KeyRetired": 410,
    "InvalidRequest": 400, "PayloadTooLarge": 413, "ContextTooLong": 400,
    "UnsupportedDocument": 422, "Unauthenticated": 401, "PermissionDenied": 403, "NotFound": 404,
    "ModelNotFound": 404, "Gone": 410, "Conflict": 409, "RateLimited": 429, "Overloaded": 503,
    "Unavailable": 503, "PartFailed": 503, "DeadlineExceeded": 504, "EngineError": 502,
    "EngineRefused": 502, "ReembedNeeded": 409, "StoreError": 500, "StoreBusy": 503,
    "StoreFull": 507, "StoreTooNew": 500, "ConfigError": 500, "ForebayError": 500,
}  # fmt: skip


def instances() -> list[ForebayError]:
    made: list[ForebayError] = []
    for kind in vars(kernel).values():
        if not (inspect.isclass(kind) and issubclass(kind, ForebayError)):
            continue
        needed = inspect.signature(kind).parameters
        extra: dict[str, Any] = {"retry_after_s": 2.2} if "retry_after_s" in needed else {}
        extra |= {"status": 401} if "status" in needed else {}
        extra |= {"reason": "timeout"} if "reason" in needed else {}
        made.append(kind("a sentence.", **extra))
    return made


def test_every_kernel_error_has_its_status() -> None:
    assert {type(e).__name__: failure(e, "r").status for e in instances()} == EXPECTED


@pytest.mark.parametrize("error", instances(), ids=lambda e: type(e).__name__)
def test_the_body_is_openais(error: ForebayError) -> None:
    failed = failure(error, "req-1")
    body = json.loads(openai_error(failed))
    assert set(body) == {"error"}
    assert set(body["error"]) == {"message", "type", "param", "code"}
    assert re.fullmatch("[a-z_]+", body["error"]["type"])
    if failed.status in (429, 503):
        assert re.fullmatch("[1-9][0-9]*", dict(failed.headers)["retry-after"])


def test_retry_after_is_rounded_up() -> None:
    error = kernel.RateLimited("slow down.", retry_after_s=2.2)
    assert dict(failure(error, "r").headers) == {"retry-after": "3"}


@pytest.mark.parametrize(
    ("status", "ours"), [(400, 400), (413, 400), (422, 400), (429, 503), (401, 502), (404, 502)]
)
def test_an_engines_refusal_is_judged_by_its_status(status: int, ours: int) -> None:
    assert rule_for(kernel.EngineRefused("no.", status=status)).status == ours


def test_what_is_unexpected_says_nothing_but_the_request() -> None:
    failed = failure(ValueError("/etc/secret fb-key"), "req-7")
    assert failed.status == 500
    assert failed.unexpected
    assert "req-7" in failed.detail.message
    assert "secret" not in openai_error(failed).decode()
    assert not failure(kernel.StoreError("the store is damaged."), "r").unexpected


def test_a_configuration_error_is_not_for_clients() -> None:
    failed = failure(kernel.ConfigError("cannot read /home/x/forebay.toml."), "r")
    assert failed.status == 500
    assert "/home" not in failed.detail.message


def test_a_bare_timeout_is_the_deadline() -> None:
    assert failure(TimeoutError(), "r").status == 504


def test_gateway_errors_are_in_the_table() -> None:
    assert failure(table.ClientGone("gone."), "r").status == 499
    assert failure(table.SlowRequest("slow."), "r").status == 408
    assert failure(table.ShuttingDown("bye."), "r").status == 503
    allowed = failure(table.MethodNotAllowed("GET, HEAD"), "r")
    assert (allowed.status, dict(allowed.headers)) == (405, {"allow": "GET, HEAD"})


async def test_a_failure_of_the_server_is_in_the_log_with_its_cause(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broken = kernel.StoreError("the disk reported an error; the last commit stands.")
    broken.__cause__ = OSError(5, "Input/output error")
    asked = {"model": "x", "messages": [{"role": "user", "content": "how many days?"}]}
    async with client(World(script=[broken]), x_request_id="mine-2") as http:
        response = await http.post("/v1/chat/completions", json=asked)
    assert response.status_code == 500
    [record] = [r for r in caplog.records if r.levelno == logging.ERROR]
    assert "mine-2" in record.getMessage() and "Input/output error" in record.getMessage()
    assert "Input/output" not in response.text
