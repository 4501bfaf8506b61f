"""Base URLs as people write them."""

from __future__ import annotations

import re

import pytest

from forebay.kernel.errors import ConfigError, Unavailable
from forebay.lab.bench.address import parse_base_url, resolve


@pytest.mark.parametrize(
    ("url", "full", "authority"),
    [
        ("http://127.0.0.1:8400", "http://127.0.0.1:8400/v1", "127.0.0.1:8400"),
        ("http://127.0.0.1:8400/", "http://127.0.0.1:8400/v1", "127.0.0.1:8400"),
        ("http://h/v1", "http://h/v1", "h"),
        ("https://h/v1/", "https://h/v1", "h"),
        ("https://h:8443/api/v3", "https://h:8443/api/v3", "h:8443"),
        ("http://h/openai", "http://h/openai/v1", "h"),
        ("http://h/v1/chat/completions", "http://h/v1", "h"),
        ("http://[::1]:80/v1", "http://[::1]/v1", "[::1]"),
        ("https://h:443", "https://h/v1", "h"),
        ("http://h/v1beta", "http://h/v1beta", "h"),
    ],
)
def test_with_or_without_the_version(url: str, full: str, authority: str) -> None:
    address = parse_base_url(url)
    assert (address.url, address.authority) == (full, authority)


@pytest.mark.parametrize(
    "url",
    ["", "h:80", "ftp://h", "http://", "http://h:x", "http://u:p@h", "http://h?x=1", "http://h/ü"],
)
def test_what_is_no_base_url(url: str) -> None:
    with pytest.raises(ConfigError):
        parse_base_url(url)


def test_a_password_is_not_repeated() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_base_url("http://user:hunter2@h/v1")
    assert "hunter2" not in caught.value.message


@pytest.mark.parametrize("host", ["nowhere.invalid", "a..invalid", "a" * 70 + ".invalid"])
async def test_a_host_nobody_knows(host: str) -> None:
    with pytest.raises(Unavailable, match=rf"{re.escape(host)} is not known"):
        await resolve(parse_base_url(f"http://{host}"), verify_tls=True)


async def test_numbers_need_no_look_up() -> None:
    destination = await resolve(parse_base_url("https://127.0.0.1"), verify_tls=False)
    assert destination.hosts == ("127.0.0.1",)
    assert destination.context is not None and not destination.context.check_hostname
