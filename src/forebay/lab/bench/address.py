"""The target's address, read from a base URL once."""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from urllib.parse import urlsplit

import msgspec

from forebay.kernel.errors import ConfigError, Unavailable

_VERSION = re.compile(r"/v\d+\w*$")


class Address(msgspec.Struct, frozen=True):
    """Host, port and path prefix of an OpenAI-compatible API."""

    host: str
    port: int
    tls: bool
    prefix: str
    """Path up to and with the API's version, no slash at its end: ``/v1``."""

    @property
    def authority(self) -> str:
        """For the ``host`` header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.tls else 80) else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        """The base URL in full."""
        return f"{'https' if self.tls else 'http'}://{self.authority}{self.prefix}"


def parse_base_url(url: str) -> Address:
    """Read ``url``; ``ConfigError`` says what is wrong with it."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ConfigError(f"{url!r} is not a URL ({error}); write http://host:port/v1") from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"{url!r} is not an http or https URL; write http://host:port/v1")
    if parts.username is not None or parts.query or parts.fragment:
        raise ConfigError(
            f"{parts.scheme}://{parts.hostname} must come without user, query and fragment; "
            "give the key by the option for keys"
        )
    if re.search(r"[^\x21-\x7e]", parts.path):
        raise ConfigError("the path of the target's URL has characters that must be %-encoded")
    path = parts.path.rstrip("/").removesuffix("/chat/completions")
    tls = parts.scheme == "https"
    return Address(
        host=parts.hostname,
        port=port or (443 if tls else 80),
        tls=tls,
        prefix=path if _VERSION.search(path) else path + "/v1",
    )


def tls_context(address: Address, verify: bool) -> ssl.SSLContext | None:
    """The context for ``address``; None for plain HTTP."""
    if not address.tls:
        return None
    context = ssl.create_default_context()
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


class Destination(msgspec.Struct, frozen=True):
    """An address made ready: numeric hosts in the system's order, and TLS if it is wanted."""

    address: Address
    hosts: tuple[str, ...]
    context: ssl.SSLContext | None


async def resolve(address: Address, verify_tls: bool, within_s: float = 10.0) -> Destination:
    """Look the host up; ``Unavailable`` when it has no address.

    Names are resolved once, before the first request: no latency of ours is a resolver's.
    """
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(within_s):
            found = await loop.getaddrinfo(
                address.host, address.port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP
            )
    except (OSError, TimeoutError, UnicodeError) as error:
        # UnicodeError: parts of the name are empty, too long or of letters that no name has.
        raise Unavailable(
            f"the name {address.host} is not known here; check the target's URL"
        ) from error
    hosts = tuple(dict.fromkeys(str(entry[4][0]) for entry in found))
    return Destination(address, hosts, tls_context(address, verify_tls))
