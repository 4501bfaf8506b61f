"""Forwarded addresses, foreign hosts, foreign pages."""

from __future__ import annotations

import pytest

from forebay.gateway.peers import PeerRules
from forebay.kernel.errors import ConfigError, PermissionDenied

PROXIED = PeerRules(["10.0.0.0/8", "127.0.0.1"], [], [])
PLAIN = PeerRules([], [], [])
LOCAL = ("127.0.0.1", 5)


def test_addresses_without_proxies() -> None:
    assert PLAIN.peer(LOCAL, {}) == PLAIN.peer(("127.0.0.1", 9), {})
    assert PLAIN.peer(LOCAL, {}).local
    assert not PLAIN.peer(("10.1.1.1", 5), {}).local
    assert PLAIN.peer(None, {}).local


def test_forwarded_addresses_count_from_trusted_proxies_only() -> None:
    headers = {"x-forwarded-for": "1.2.3.4"}
    assert PLAIN.peer(("10.0.0.1", 5), headers).address == "10.0.0.1"
    assert PROXIED.peer(("10.0.0.1", 5), headers).address == "1.2.3.4"
    assert PROXIED.peer(("11.0.0.1", 5), headers).address == "11.0.0.1"


def test_the_last_untrusted_hop_is_the_client() -> None:
    headers = {"x-forwarded-for": "6.6.6.6, 1.2.3.4, 10.0.0.7"}
    assert PROXIED.peer(("10.0.0.1", 5), headers).address == "1.2.3.4"
    spoofed = {"x-forwarded-for": "127.0.0.1"}
    assert not PROXIED.peer(("10.0.0.1", 5), spoofed).local
    nonsense = {"x-forwarded-for": "<script>"}
    assert PROXIED.peer(("10.0.0.1", 5), nonsense).address == "10.0.0.1"


def test_an_address_has_one_spelling() -> None:
    assert PLAIN.peer(("::ffff:1.2.3.4", 5), {}).address == "1.2.3.4"
    assert PLAIN.peer(("2001:db8::1", 5), {}).address == "2001:db8::1"
    for hop in ("2001:DB8:0::1", "2001:db8::0001"):
        proxied = PROXIED.peer(("::ffff:10.0.0.1", 5), {"x-forwarded-for": hop})
        assert proxied.address == "2001:db8::1"


@pytest.mark.parametrize(
    "headers",
    [
        {"x-forwarded-for": "1.2.3.4"},
        {"forwarded": "for=1.2.3.4"},
        {"x-real-ip": "1.2.3.4"},
        {"via": "1.1 proxy"},
    ],
)
def test_what_was_forwarded_is_not_local(headers: dict[str, str]) -> None:
    assert not PLAIN.peer(LOCAL, headers).local


@pytest.mark.parametrize("host", ["localhost", "localhost:8400", "127.0.0.1:1", "[::1]:8400", ""])
def test_loopback_hosts_pass(host: str) -> None:
    PLAIN.check_keyless("POST", {"host": host})


@pytest.mark.parametrize("host", ["evil.org", "evil.org:8400", "127.0.0.1.evil.org", "a@evil.org"])
def test_other_hosts_are_dns_rebinding(host: str) -> None:
    with pytest.raises(PermissionDenied) as caught:
        PLAIN.check_keyless("GET", {"host": host})
    assert caught.value.code == "host_not_allowed"
    PeerRules([], ["Evil.org", "127.0.0.1.evil.org"], []).check_keyless("GET", {"host": "evil.org"})


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.org"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"origin": "http://localhost.evil.org"},
    ],
)
def test_pages_of_other_sites_may_not_act(headers: dict[str, str]) -> None:
    PLAIN.check_keyless("GET", headers)
    with pytest.raises(PermissionDenied) as caught:
        PLAIN.check_keyless("POST", headers)
    assert caught.value.code == "origin_not_allowed"


def test_own_pages_and_allowed_origins_may() -> None:
    PLAIN.check_keyless("POST", {"origin": "http://localhost:3000"})
    PLAIN.check_keyless("POST", {"sec-fetch-site": "same-origin"})
    PeerRules([], [], ["https://app.org"]).check_keyless("PUT", {"origin": "https://app.org"})


def test_a_wrong_network_is_a_configuration_error() -> None:
    with pytest.raises(ConfigError, match="trusted_proxies"):
        PeerRules(["10.0.0.0/99"], [], [])
