"""Where a request comes from, and whether a browser was tricked into sending it."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

import msgspec

from forebay.gateway.identity import is_loopback
from forebay.kernel.errors import ConfigError, PermissionDenied
from forebay.policy.admission.settings import address_of

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_FORWARDED = frozenset({"x-forwarded-for", "forwarded", "x-real-ip", "via"})
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


class Peer(msgspec.Struct, frozen=True):
    """The client's address as far as it can be trusted; ``local`` means this machine itself."""

    address: str
    local: bool


class PeerRules:
    """Reads a request's origin under the server's settings."""

    def __init__(
        self, trusted_proxies: Sequence[str], allowed_hosts: Sequence[str], origins: Sequence[str]
    ) -> None:
        self._proxies = tuple(_network(text) for text in trusted_proxies)
        self._hosts = frozenset(host.lower() for host in allowed_hosts)
        self._origins = frozenset(origins)

    def peer(self, client: tuple[str, int] | None, headers: Mapping[str, str]) -> Peer:
        """The last address in x-forwarded-for that no trusted proxy wrote for itself.

        A request that carries the header without coming from a trusted proxy keeps its own
        address, but does not count as local: something forwarded it. So do the other headers
        that proxies add.
        """
        address = _as_counted(client[0]) if client else ""
        forwarded = headers.get("x-forwarded-for")
        if _FORWARDED.isdisjoint(headers):
            return Peer(address, not address or is_loopback(address))
        if forwarded is not None and self._trusted(address):
            hops = [hop.strip() for hop in forwarded.split(",")]
            for hop in reversed(hops):
                if _is_address(hop):
                    address = _as_counted(hop)
                if not self._trusted(hop):
                    break
            return Peer(address, False)
        return Peer(address, False)

    def check_keyless(self, method: str, headers: Mapping[str, str]) -> None:
        """Without keys, only this machine's own programs and pages may ask.

        A foreign Host is DNS rebinding: a page whose name was pointed at loopback. A foreign
        Origin on anything that acts is a page that posts across sites.
        """
        if not self.names_this_machine(headers):
            raise PermissionDenied(
                "this server answers loopback names only while it has no API keys; "
                "add the name to server.allowed_hosts.",
                param="host",
                code="host_not_allowed",
            )
        if method in _SAFE_METHODS:
            return
        origin = headers.get("origin")
        if origin is None:
            if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
                raise _foreign_page()
            return
        name = _host_name(urlsplit(origin).netloc)
        if origin in self._origins or "*" in self._origins:
            return
        if not name or not (is_loopback(name) or name in self._hosts):
            raise _foreign_page()

    def names_this_machine(self, headers: Mapping[str, str]) -> bool:
        """Whether the Host is a loopback name or one of ``allowed_hosts``."""
        host = _host_name(headers.get("host", ""))
        return not host or is_loopback(host) or host in self._hosts

    def _trusted(self, text: str) -> bool:
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            return False
        return any(address in network for network in self._proxies)


def _foreign_page() -> PermissionDenied:
    return PermissionDenied(
        "a page of another site may not use this server; add its origin to server.cors.origins.",
        param="origin",
        code="origin_not_allowed",
    )


def _host_name(netloc: str) -> str:
    netloc = netloc.rpartition("@")[2].strip().lower()
    if netloc.startswith("["):
        return netloc[1:].partition("]")[0]
    return netloc.partition(":")[0]


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _as_counted(address: str) -> str:
    """One spelling of each address: quotas and deny lists know it by its text."""
    return address_of(address) or address if ":" in address else address


def _network(text: str) -> Network:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError as error:
        raise ConfigError(
            f"server.trusted_proxies: {text!r} is no address or network such as 10.0.0.0/8.",
            param="server.trusted_proxies",
        ) from error
