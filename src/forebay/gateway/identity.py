"""Who asks: API keys, what they grant, and how a request may narrow that.

Keys are 256 random bits, so a plain SHA-256 is the right hash at rest: there is nothing to
guess that a slow hash would protect, and a slow hash on every request would be a door for
floods. The table is looked up by the presented key's hash; whoever times the lookup learns
about hashes that nobody can steer, and the final comparison is constant-time.

Narrowing headers:

- ``x-forebay-groups`` leaves the groups named *and* granted; naming a group one lacks is no
  error (a proxy may forward all groups of a user), it just grants nothing.
- ``x-forebay-user`` from a key without ``act_for_users`` is refused, unless it is the key's own.
- ``x-forebay-priority`` can lower; asking for more leaves what was granted.

What is granted depends on the key, on the user it acts for and on the route (``PriorityBook``).
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
import secrets
from collections.abc import Mapping, Sequence
from functools import lru_cache

import msgspec

from forebay.gateway.settings import KeySettings, TenantSettings
from forebay.kernel.context import Plan, Principal, Priority
from forebay.kernel.errors import (
    ConfigError,
    InvalidRequest,
    PermissionDenied,
    Unauthenticated,
)
from forebay.policy.admission import PlanChange
from forebay.policy.admission.priorities import PRIORITIES, PriorityBook, lowest

_KEY_BYTES = 32
_USER = re.compile(r"[\x21-\x7e]{1,256}")


class NewKey(msgspec.Struct, frozen=True):
    """A fresh API key, to be shown once, and the hash that goes into ``[[tenants]]``."""

    key: str
    hash: str


class Grant(msgspec.Struct, frozen=True):
    """What one key gives: the principal before narrowing, and how far it may act for others."""

    digest: bytes
    principal: Principal
    act_for_users: bool
    tenant_groups: frozenset[str]
    priority: Priority | None = None
    users: Mapping[str, Priority] = {}
    ceiling: Priority = "high"


class IdentityTable(msgspec.Struct, frozen=True):
    """Every key of the configuration; none at all means loopback with all rights."""

    grants: Mapping[bytes, Grant]
    tenants: Mapping[str, TenantSettings]

    @property
    def keyless(self) -> bool:
        """Whether nobody has a key, so that only this machine may ask."""
        return not self.grants


MOST_KNOWN = 64
_NONE = PriorityBook()
_AS_CONFIGURED: Mapping[str, PlanChange] = {}
_KEYLESS = Grant(b"", Principal(), act_for_users=True, tenant_groups=frozenset())


class Identity:
    """The table in force; ``replace`` swaps it between two requests, never within one."""

    def __init__(self, table: IdentityTable) -> None:
        self._table = table

    @property
    def table(self) -> IdentityTable:
        """The table in force."""
        return self._table

    def replace(self, table: IdentityTable) -> None:
        """Put another table in force; refuses to take the last key from a server with keys."""
        if table.keyless and not self._table.keyless:
            raise ConfigError("the new configuration has no key; the old keys stay in force.")
        self._table = table

    def authenticate(
        self,
        headers: Mapping[str, str],
        route: str = "",
        priorities: PriorityBook = _NONE,
        plans: Mapping[str, PlanChange] = _AS_CONFIGURED,
    ) -> Principal:
        """Return who asks; ``Unauthenticated``, ``PermissionDenied`` or ``InvalidRequest``.

        ``plans`` are what was changed at run time, by tenant.
        """
        table = self._table
        if table.keyless:
            grant, reachable = _KEYLESS, None
        else:
            grant = _grant(table, headers.get("authorization"))
            base = grant.principal
            reachable = grant.tenant_groups if grant.act_for_users else base.groups
        if plans and (change := plans.get(grant.principal.tenant)) is not None:
            grant = _changed(grant, change)
        principal = _narrowed(grant.principal, headers, grant.act_for_users, reachable)
        priority = _priority(grant, principal, headers, route, priorities)
        if priority == principal.priority:
            return principal
        return msgspec.structs.replace(principal, priority=priority)


def hash_key(key: str) -> str:
    """What the configuration keeps of a key."""
    return "sha256:" + hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()


def new_key() -> NewKey:
    """Make a key of 256 random bits."""
    key = "fb-" + secrets.token_urlsafe(_KEY_BYTES)
    return NewKey(key, hash_key(key))


def build_table(tenants: Sequence[TenantSettings]) -> IdentityTable:
    """Check the tenants and index their keys; ``ConfigError`` names what contradicts."""
    grants: dict[bytes, Grant] = {}
    names: dict[str, TenantSettings] = {}
    for tenant in tenants:
        if tenant.name in names:
            raise ConfigError(f"tenant {tenant.name} is configured twice.", param="tenants")
        names[tenant.name] = tenant
        check_group_names(tenant.groups, f"tenant {tenant.name}", "tenants.groups")
        knowledge = None if tenant.knowledge == "*" else frozenset(tenant.knowledge)
        if tenant.default_kb and knowledge is not None and tenant.default_kb not in knowledge:
            raise ConfigError(
                f"tenant {tenant.name}: default_kb {tenant.default_kb} is not in its knowledge.",
                param="tenants.default_kb",
            )
        users = _users_of(tenant)
        for key in tenant.keys:
            grant = _grant_of(tenant, key, users)
            if grant.digest in grants:
                other = grants[grant.digest].principal.tenant
                raise ConfigError(
                    f"tenants {other} and {tenant.name} have the same key.", param="tenants.keys"
                )
            grants[grant.digest] = grant
    if tenants and not grants:
        raise ConfigError(
            "[[tenants]] are configured, but no key; make one with `forebay key new`.",
            param="tenants.keys",
        )
    return IdentityTable(grants, names)


def check_group_names(groups: Sequence[str], owner: str, param: str) -> None:
    """Refuse groups that neither a header nor an upload could name."""
    for group in groups:
        if not group or group != group.strip() or "," in group or not group.isprintable():
            raise ConfigError(
                f"{owner} has the group {group!r}; a group is a name without commas, control "
                "characters or spaces around it.",
                param=param,
            )


def check_binding(host: str, table: IdentityTable) -> None:
    """Refuse to serve beyond this machine without keys."""
    if table.keyless and not is_loopback(host):
        raise ConfigError(
            f"server.host {host} is reachable from other machines, but no API key is configured; "
            "add [[tenants]] with a key from `forebay key new`, or bind to 127.0.0.1.",
            param="server.host",
        )


def is_loopback(host: str) -> bool:
    """Whether an address or host name is this machine's own."""
    # Every request asks it of the same few; what is longer is no address to remember.
    return _is_loopback(host) if len(host) <= MOST_KNOWN else _is_loopback.__wrapped__(host)


@lru_cache(maxsize=1024)
def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return _address(host).is_loopback
    except ValueError:
        return False


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    address = ipaddress.ip_address(host.strip("[]").partition("%")[0])
    mapped = getattr(address, "ipv4_mapped", None)
    return mapped or address


def _users_of(tenant: TenantSettings) -> Mapping[str, Priority]:
    users = {user.name: user.priority for user in tenant.users}
    if len(users) < len(tenant.users):
        raise ConfigError(f"tenant {tenant.name} has a user twice.", param="tenants.users")
    return users


def _grant_of(tenant: TenantSettings, key: KeySettings, users: Mapping[str, Priority]) -> Grant:
    groups = frozenset(tenant.groups)
    own = groups if key.groups is None else frozenset(key.groups)
    if not own <= groups:
        missing = ", ".join(sorted(own - groups))
        raise ConfigError(
            f"tenant {tenant.name}: a key has groups that the tenant lacks: {missing}.",
            param="tenants.keys.groups",
        )
    if key.business_line and key.business_line not in tenant.business_lines:
        raise ConfigError(
            f"tenant {tenant.name}: a key books on {key.business_line}, which is none of its "
            "business_lines.",
            param="tenants.keys.business_line",
        )
    default = tenant.default_kb or (
        tenant.knowledge[0] if tenant.knowledge and tenant.knowledge != "*" else ""
    )
    principal = Principal(
        tenant=tenant.name,
        key_id=key.name or f"{tenant.name}-{key.hash.removeprefix('sha256:')[:8]}",
        user=key.user,
        groups=own,
        knowledge=None if tenant.knowledge == "*" else frozenset(tenant.knowledge),
        default_kb=default or None,
        admin=key.admin,
        operator=key.operator,
        business_line=key.business_line,
        plan=Plan(
            tokens_per_minute=tenant.plan.tokens_per_minute,
            burst_tokens=tenant.plan.burst_tokens,
            max_in_flight=tenant.plan.max_in_flight,
            weight=tenant.plan.weight,
        ),
    )
    digest = bytes.fromhex(key.hash.removeprefix("sha256:"))
    ceiling = tenant.plan.priority_ceiling
    return Grant(digest, principal, key.act_for_users, groups, key.priority, users, ceiling)


def _grant(table: IdentityTable, authorization: str | None) -> Grant:
    if authorization is None:
        raise Unauthenticated(
            "an API key is needed: authorization: Bearer <key>.", param="authorization"
        )
    scheme, _, presented = authorization.partition(" ")
    if scheme.lower() != "bearer" or not presented.strip():
        raise Unauthenticated(
            "the authorization header must read: Bearer <key>.", code="invalid_authorization"
        )
    digest = hashlib.sha256(presented.strip().encode("utf-8", "surrogateescape")).digest()
    grant = table.grants.get(digest)
    if grant is None or not hmac.compare_digest(grant.digest, digest):
        raise Unauthenticated("this API key is not known here.")
    return grant


def _changed(grant: Grant, change: PlanChange) -> Grant:
    """The grant under another plan."""
    principal = grant.principal
    return msgspec.structs.replace(
        grant,
        principal=msgspec.structs.replace(principal, plan=change.over(principal.plan)),
        ceiling=change.priority_ceiling or grant.ceiling,
    )


def _narrowed(
    base: Principal,
    headers: Mapping[str, str],
    act_for_users: bool,
    reachable: frozenset[str] | None,
) -> Principal:
    user, named = headers.get("x-forebay-user"), headers.get("x-forebay-groups")
    if user is None and named is None:
        return base
    changes: dict[str, object] = {}
    if user is not None and user != base.user:
        if _USER.fullmatch(user) is None:
            raise InvalidRequest(
                "x-forebay-user takes 1 to 256 printable ASCII characters.", param="x-forebay-user"
            )
        if not act_for_users:
            raise PermissionDenied("this key may not act for users.", param="x-forebay-user")
        changes["user"] = user
    if named is not None:
        groups = frozenset(part.strip() for part in named.split(",")) - {""}
        changes["groups"] = groups if reachable is None else groups & reachable
    return msgspec.structs.replace(base, **changes)


def _priority(
    grant: Grant,
    principal: Principal,
    headers: Mapping[str, str],
    route: str,
    priorities: PriorityBook,
) -> Priority:
    own = (grant.priority, grant.users.get(principal.user or ""))
    granted = priorities.priority(
        [one for one in own if one is not None],
        tenant=principal.tenant,
        key=principal.key_id,
        user=principal.user,
        route=route,
    )
    wanted = headers.get("x-forebay-priority")
    asked = "high" if wanted is None else _asked(wanted)
    return lowest((granted, grant.ceiling, asked))


def _asked(text: str) -> Priority:
    for priority in PRIORITIES:
        if text.strip().lower() == priority:
            return priority
    raise InvalidRequest("x-forebay-priority is low, normal or high.", param="x-forebay-priority")
