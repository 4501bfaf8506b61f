"""Keys, what they grant, and how far headers can change that."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from forebay.gateway.identity import (
    Identity,
    build_table,
    check_binding,
    hash_key,
    is_loopback,
    new_key,
)
from forebay.gateway.settings import KeySettings, PlanSettings, TenantSettings, UserSettings
from forebay.kernel.context import Plan, Principal
from forebay.kernel.errors import (
    ConfigError,
    InvalidRequest,
    PermissionDenied,
    Unauthenticated,
)
from forebay.policy.admission import PlanChange, PriorityBook, PriorityGrant

PLAIN, SERVICE, ADMIN = "fb-plain", "fb-service", "fb-admin"
TENANT = TenantSettings(
    "acme",
    keys=(
        KeySettings(hash_key(PLAIN), user="ann", groups=("hr", "sales")),
        KeySettings(hash_key(SERVICE), name="portal", groups=("hr",), act_for_users=True),
        KeySettings(hash_key(ADMIN), admin=True, priority="high"),
    ),
    knowledge=("handbook", "faq"),
    groups=("hr", "sales", "legal"),
    plan=PlanSettings(priority_ceiling="normal"),
)


def who(key: str | None, **headers: str) -> Principal:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    if key is not None:
        sent["authorization"] = f"Bearer {key}"
    return Identity(build_table([TENANT])).authenticate(sent)


def test_a_key_gives_its_tenants_rights() -> None:
    principal = who(PLAIN)
    assert principal.tenant == "acme"
    assert principal.user == "ann"
    assert set(principal.groups or ()) == {"hr", "sales"}
    assert set(principal.knowledge or ()) == {"handbook", "faq"}
    assert principal.default_kb == "handbook"
    assert not principal.admin
    assert re.fullmatch("acme-[0-9a-f]{8}", principal.key_id)
    assert who(SERVICE).key_id == "portal"
    assert who(ADMIN).admin
    assert set(who(ADMIN).groups or ()) == {"hr", "sales", "legal"}


@pytest.mark.parametrize(
    ("authorization", "code"),
    [
        (None, "invalid_api_key"),
        ("Bearer", "invalid_authorization"),
        ("Bearer  ", "invalid_authorization"),
        ("Basic abc", "invalid_authorization"),
        ("Bearer fb-other", "invalid_api_key"),
        ("Bearer fb-plai\xff", "invalid_api_key"),
        (f"Bearer {hash_key(PLAIN)}", "invalid_api_key"),
    ],
)
def test_what_is_no_key(authorization: str | None, code: str) -> None:
    headers = {} if authorization is None else {"authorization": authorization}
    with pytest.raises(Unauthenticated) as caught:
        Identity(build_table([TENANT])).authenticate(headers)
    assert caught.value.code == code
    assert "fb-" not in caught.value.message


def test_the_scheme_may_be_written_in_any_case() -> None:
    headers = {"authorization": f"bearer   {PLAIN} "}
    assert Identity(build_table([TENANT])).authenticate(headers).user == "ann"


@pytest.mark.parametrize(
    ("key", "named", "groups"),
    [
        (PLAIN, "hr", {"hr"}),
        (PLAIN, "hr, legal ,board", {"hr"}),
        (PLAIN, "legal", set()),
        (PLAIN, "", set()),
        (SERVICE, "legal,board", {"legal"}),
    ],
)
def test_groups_narrow_and_never_widen(key: str, named: str, groups: set[str]) -> None:
    assert set(who(key, x_forebay_groups=named).groups or ()) == groups


def test_only_a_service_key_names_users() -> None:
    assert who(SERVICE, x_forebay_user="bob").user == "bob"
    assert who(PLAIN, x_forebay_user="ann").user == "ann"
    with pytest.raises(PermissionDenied):
        who(PLAIN, x_forebay_user="bob")
    for bad in ("", "a b", "x" * 300, "\xe9"):
        with pytest.raises(InvalidRequest):
            who(SERVICE, x_forebay_user=bad)


def test_priority_only_falls() -> None:
    assert who(ADMIN).priority == "normal"
    assert who(PLAIN, x_forebay_priority="high").priority == "normal"
    assert who(PLAIN, x_forebay_priority="LOW").priority == "low"
    with pytest.raises(InvalidRequest):
        who(PLAIN, x_forebay_priority="urgent")


VIP, BATCH = "fb-vip", "fb-batch"
GRANTED = TenantSettings(
    "acme",
    keys=(
        KeySettings(hash_key(PLAIN), name="plain", user="ann"),
        KeySettings(hash_key(VIP), name="vip", priority="high"),
        KeySettings(hash_key(BATCH), name="batch", user="eve", priority="low"),
        KeySettings(hash_key(SERVICE), name="portal", act_for_users=True),
    ),
    users=(UserSettings("boss", "high"), UserSettings("eve", "normal")),
)
GRANTS = (
    PriorityGrant("user", "acme/ann", "high"),
    PriorityGrant("user", "other/guest", "high"),
    PriorityGrant("key", "acme/batch", "low"),
    PriorityGrant("route", "search", "low"),
    PriorityGrant("route", "retrieval", "normal", cap=True),
    PriorityGrant("route", "mcp", "high"),
)


@pytest.mark.parametrize(
    ("key", "user", "route", "sent", "expected"),
    [
        (PLAIN, None, "chat", None, "high"),  # the user's, from [admission]
        (PLAIN, None, "chat", "low", "low"),
        (PLAIN, None, "retrieval", None, "normal"),  # capped there
        (VIP, None, "search", None, "high"),  # the highest of key and route
        (VIP, None, "retrieval", None, "normal"),
        (VIP, None, "retrieval", "high", "normal"),
        (BATCH, None, "chat", None, "normal"),  # the user's, from [[tenants]]
        (BATCH, None, "mcp", None, "high"),
        (BATCH, None, "mcp", "normal", "normal"),
        (SERVICE, None, "chat", "high", "normal"),
        (SERVICE, None, "search", None, "low"),  # nothing else is granted
        (SERVICE, "boss", "chat", None, "high"),
        (SERVICE, "guest", "chat", "high", "normal"),  # another tenant's
    ],
)
def test_the_highest_grant_of_key_user_and_route_wins(
    key: str, user: str | None, route: str, sent: str | None, expected: str
) -> None:
    headers = {"authorization": f"Bearer {key}"}
    headers |= {} if user is None else {"x-forebay-user": user}
    headers |= {} if sent is None else {"x-forebay-priority": sent}
    identity, book = Identity(build_table([GRANTED])), PriorityBook(GRANTS)
    assert identity.authenticate(headers, route, book).priority == expected


def test_no_grant_goes_above_the_plan() -> None:
    bounded = msgspec.structs.replace(GRANTED, plan=PlanSettings(priority_ceiling="normal"))
    identity, book = Identity(build_table([bounded])), PriorityBook(GRANTS)
    for key in (PLAIN, VIP):
        headers = {"authorization": f"Bearer {key}"}
        assert identity.authenticate(headers, "mcp", book).priority == "normal"


def test_a_plan_that_is_changed_holds_for_its_tenant_and_leaves_the_rest() -> None:
    plan = PlanSettings(tokens_per_minute=600, burst_tokens=900, max_in_flight=4)
    tenants = [
        msgspec.structs.replace(GRANTED, plan=plan),
        TenantSettings("other", keys=(KeySettings(hash_key("fb-other")),), plan=plan),
    ]
    identity, book = Identity(build_table(tenants)), PriorityBook(GRANTS)
    change = PlanChange(burst_tokens=50, weight=3.0, priority_ceiling="low")

    def asked(key: str, plans: Mapping[str, PlanChange]) -> Principal:
        return identity.authenticate({"authorization": f"Bearer {key}"}, "mcp", book, plans)

    before = Plan(tokens_per_minute=600, burst_tokens=900, max_in_flight=4, weight=1.0)
    for plans in ({}, {GRANTED.name: change}, {}):
        changed = msgspec.structs.replace(before, burst_tokens=50, weight=3.0)
        acme, other = asked(VIP, plans), asked("fb-other", plans)
        assert acme.plan == (changed if plans else before)
        assert acme.priority == ("low" if plans else "high")
        assert (other.plan, other.priority) == (before, "high")
    with pytest.raises(ConfigError, match="what changes"):
        PlanChange()


def test_without_keys_routes_have_priorities_too() -> None:
    identity, book = Identity(build_table([])), PriorityBook(GRANTS)
    assert identity.authenticate({}, "search", book).priority == "low"
    assert identity.authenticate({}, "mcp", book).priority == "high"


def test_contradictory_grants_are_refused() -> None:
    with pytest.raises(ConfigError, match="use chat, search, retrieval, mcp"):
        PriorityGrant("route", "embeddings", "low")
    with pytest.raises(ConfigError, match="only a route's can"):
        PriorityGrant("user", "ann", "low", cap=True)
    twice = (UserSettings("a", "low"), UserSettings("a", "high"))
    with pytest.raises(ConfigError, match="twice"):
        build_table([msgspec.structs.replace(GRANTED, users=twice)])


def test_without_keys_everything_is_allowed_and_can_be_narrowed() -> None:
    identity = Identity(build_table([]))
    assert identity.authenticate({"authorization": "Bearer whatever"}) == Principal()
    narrowed = identity.authenticate({"x-forebay-groups": "hr", "x-forebay-user": "eve"})
    assert set(narrowed.groups or ()) == {"hr"}
    assert narrowed.user == "eve"


def test_new_keys_are_long_random_and_match_their_hash() -> None:
    made = {new_key().key for _ in range(50)}
    assert len(made) == 50
    key = new_key()
    assert len(key.key) > 40
    assert key.hash == hash_key(key.key)
    assert key.key not in key.hash


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"keys": (KeySettings(hash_key("k"), groups=("board",)),)}, "board"),
        ({"default_kb": "secret"}, "default_kb"),
        ({"keys": ()}, "forebay key new"),
    ],
)
def test_contradictions_are_refused(changes: dict[str, Any], word: str) -> None:
    fields = {"keys": TENANT.keys, "knowledge": TENANT.knowledge, "groups": TENANT.groups}
    with pytest.raises(ConfigError, match=word):
        build_table([TenantSettings("acme", **(fields | changes))])


def test_twice_the_same_tenant_or_key_is_refused() -> None:
    with pytest.raises(ConfigError, match="twice"):
        build_table([TENANT, TENANT])
    other = TenantSettings("other", keys=(KeySettings(hash_key(PLAIN)),))
    with pytest.raises(ConfigError, match="acme and other"):
        build_table([TENANT, other])


def test_reload_swaps_the_table_and_never_opens_the_door() -> None:
    identity = Identity(build_table([TENANT]))
    fresh = TenantSettings("acme", keys=(KeySettings(hash_key("fb-new")),), knowledge="*")
    identity.replace(build_table([fresh]))
    assert identity.authenticate({"authorization": "Bearer fb-new"}).knowledge is None
    with pytest.raises(Unauthenticated):
        identity.authenticate({"authorization": f"Bearer {PLAIN}"})
    with pytest.raises(ConfigError):
        identity.replace(build_table([]))


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("[::1]", True),
        ("localhost", True), ("::ffff:127.0.0.1", True), ("0.0.0.0", False), ("::", False),
        ("10.0.0.1", False), ("example.org", False), ("localhost.evil.org", False), ("", False),
    ],
)  # fmt: skip
def test_what_is_loopback(host: str, local: bool) -> None:
    assert is_loopback(host) is local


def test_binding_beyond_loopback_needs_keys() -> None:
    check_binding("0.0.0.0", build_table([TENANT]))
    check_binding("127.0.0.1", build_table([]))
    with pytest.raises(ConfigError, match="forebay key new"):
        check_binding("0.0.0.0", build_table([]))
