"""What a kind draws: lengths, caps, questions, prefixes, early leavers; and who asks."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forebay.kernel.errors import ConfigError
from forebay.lab.workload.distributions import Uniform
from forebay.lab.workload.kinds import (
    Disconnect,
    Documents,
    Drawn,
    Kind,
    KindSource,
    Tenant,
    Tenants,
)
from forebay.lab.workload.queries import QueriesSpec

SEED = np.random.SeedSequence(5)


def draw(kind: Kind, count: int, folder: Path = Path(), number: int = 0) -> list[Drawn]:
    return KindSource(kind, number, folder, 16).stream(SEED).draw(count)


def light(**options: Any) -> Kind:
    values: dict[str, Any] = {"name": "light", "input_tokens": 24, "output_tokens": 32}
    return Kind(**(values | options))


def test_lengths_are_drawn_and_capped() -> None:
    kind = light(
        input_tokens=Uniform(1, 100),
        output_tokens=Uniform(1, 100),
        input_cap_tokens=50,
        output_cap_tokens=20,
    )
    drawn = draw(kind, 2_000)
    assert max(one.question_tokens for one in drawn) == 50
    assert max(one.output_tokens for one in drawn) == 20
    assert min(one.question_tokens for one in drawn) == 1


def test_questions_keep_their_length_or_are_filled_up(tmp_path: Path) -> None:
    (tmp_path / "q.txt").write_text("why\nwhat is the longest question of all\n")
    queries = QueriesSpec(file="q.txt")
    plain = draw(light(input_tokens=None, queries=queries), 2, tmp_path)
    assert [one.question_tokens for one in plain] == [1, 9]
    filled = draw(light(input_tokens=5, queries=queries), 2, tmp_path)
    assert [(one.text, one.question_tokens) for one in filled] == [
        ("why", 5),
        ("what is the longest question of all", 9),
    ]


def test_some_clients_leave_early() -> None:
    drawn = draw(light(disconnect=Disconnect(share=0.2, after_tokens=Uniform(1, 8))), 10_000)
    left = [one.disconnect for one in drawn if one.disconnect is not None]
    assert abs(len(left) - 2_000) < 3 * math.sqrt(10_000 * 0.2 * 0.8)
    assert set(left) == set(range(1, 9))


def test_a_system_prompt_is_the_same_for_all_and_another_for_each_kind() -> None:
    one, other = draw(light(system_prompt_tokens=100), 2)
    assert one.prefix == other.prefix and len(one.prefix) == 6 and one.prefix_tokens == 100
    (second,) = draw(light(name="b", system_prompt_tokens=100), 1, number=1)
    assert not set(one.prefix) & set(second.prefix)


def test_hot_documents_are_shared_by_many() -> None:
    kind = light(documents=Documents(count=100, tokens=64, zipf=1.0))
    drawn = draw(kind, 5_000)
    assert {len(one.prefix) for one in drawn} == {4} and drawn[0].prefix_tokens == 64
    counts = Counter(one.prefix for one in drawn)
    assert len(counts) <= 100
    # The most popular of 100 has 1 / H(100) = 19.3 % of all requests.
    expected = 5_000 / sum(1 / rank for rank in range(1, 101))
    assert abs(counts.most_common(1)[0][1] - expected) < 4 * math.sqrt(expected)


def test_an_id_stands_for_all_before_it() -> None:
    kind = light(documents=Documents(count=3, tokens=16, zipf=0.0, per_request=2))
    prefixes = {one.prefix for one in draw(kind, 500)}
    assert len(prefixes) == 9
    seconds = [prefix[1] for prefix in prefixes]
    # The same second document after another first one is another block to a prefix cache.
    assert len(set(seconds)) == 9


@pytest.mark.parametrize("tokens", [10, 16, 20, 33])
def test_borders_inside_a_block_do_not_lose_or_repeat_ids(tokens: int) -> None:
    kind = light(
        system_prompt_tokens=tokens, documents=Documents(count=4, tokens=tokens, per_request=3)
    )
    for one in draw(kind, 200):
        assert len(one.prefix) == len(set(one.prefix)) == 4 * tokens // 16


def test_a_kind_draws_the_same_whatever_the_batches() -> None:
    kind = light(input_tokens=Uniform(1, 100))
    stream, again = (KindSource(kind, 0, Path(), 16).stream(SEED) for _ in range(2))
    assert [stream.draw(10) for _ in range(3)] == [again.draw(10) for _ in range(3)]


def test_tenants_have_their_shares_keys_and_users(tmp_path: Path) -> None:
    (tmp_path / "vip.key").write_text("sk-vip\n")
    tenants = Tenants(
        (
            Tenant(name="big", share=3, key="sk-big", users=10),
            Tenant(name="vip", share=1, key_file="vip.key", priority="high"),
        ),
        tmp_path,
    )
    asked = list(tenants.draw(np.random.default_rng(1), 8_000))
    names = Counter(name for name, *_ in asked)
    assert abs(names["vip"] - 2_000) < 3 * math.sqrt(8_000 * 0.25 * 0.75)
    assert {(key, priority) for name, key, _, priority in asked if name == "vip"} == {
        ("sk-vip", "high")
    }
    users = Counter(user for name, _, user, _ in asked if name == "big")
    assert set(users) == {f"big-{number}" for number in range(10)}
    assert {user for name, _, user, _ in asked if name == "vip"} == {""}
    assert tenants.key("vip") == ("sk-vip", "high") and tenants.key("else") == ("", None)


def test_without_tenants_nobody_is_named() -> None:
    asked = Tenants((), Path()).draw(np.random.default_rng(1), 3)
    assert list(itertools.islice(asked, 9)) == [("", "", "", None)] * 3


def test_keys_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="both key and key_file"):
        Tenants((Tenant(name="a", key="x", key_file="y"),), tmp_path)
    with pytest.raises(ConfigError, match="does not exist"):
        Tenants((Tenant(name="a", key_file="y"),), tmp_path)
    (tmp_path / "big").write_text("x" * 5_000)
    with pytest.raises(ConfigError, match="big is no key file"):
        Tenants((Tenant(name="a", key_file="big"),), tmp_path)
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="binary is no key file"):
        Tenants((Tenant(name="a", key_file="binary"),), tmp_path)
