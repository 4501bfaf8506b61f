"""Targets behind TLS: verified by default, unverified on request."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from pathlib import Path

import pytest

from forebay.lab.bench.run import run_bench
from forebay.lab.measure.result import CONNECT_FAILED, OK
from tests.unit.lab.bench.targets import options, raw_target, ready, whole_stream


@pytest.fixture
def context(tmp_path: Path) -> ssl.SSLContext:
    """A server's side with a certificate that nobody signed."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl command to make a certificate with")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt"),
            *("ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"),
            *("-keyout", str(key), "-out", str(certificate)),
        ],
        check=True,
        capture_output=True,
        timeout=30,
    )
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(certificate, key)
    return made


async def test_an_unknown_certificate_is_refused_unless_it_may_pass(
    context: ssl.SSLContext,
) -> None:
    async with raw_target(ready(whole_stream()), context) as target:
        refused = await run_bench(options(target))
        passed = await run_bench(options(target, verify_tls=False))
    assert refused.total.statuses == {CONNECT_FAILED: 10}
    assert "certificate" in refused.messages[CONNECT_FAILED].lower()
    assert passed.total.statuses == {OK: 10}
    assert passed.total.output_tokens == 30
