"""Layers, provenance, and errors that name key, origin and remedy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import pytest

from forebay.app.configuration import (
    Layer,
    build,
    effective,
    environment_layer,
    file_layer,
    flags_layer,
    merge,
)
from forebay.kernel.errors import ConfigError


class Pool(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    base_urls: tuple[str, ...] = ()


class Server(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    host: str = "127.0.0.1"
    port: Annotated[int, msgspec.Meta(ge=1, le=65535)] = 8400
    api_key: str = ""
    origins: tuple[str, ...] = ()


class Kb(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    paths: tuple[str, ...] = ()


class Root(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    server: Server = Server()
    knowledge: dict[str, Kb] = {}
    pools: tuple[Pool, ...] = ()


def test_later_layers_win_key_by_key_and_are_named() -> None:
    layers = [
        Layer("forebay.toml", {"server": {"port": 1, "host": "a"}, "knowledge": {"h": {}}}),
        environment_layer({"FOREBAY_SERVER__PORT": "2", "HOME": "/x"}),
        flags_layer({"server.port": 3, "server.host": None}),
    ]
    configuration = merge(layers, Root)
    settings = build(configuration, Root)
    assert (settings.server.port, settings.server.host) == (3, "a")
    rows = {key: (value, origin) for key, value, origin in effective(settings, configuration)}
    assert rows["server.port"] == (3, "command line")
    assert rows["server.host"] == ("a", "forebay.toml")
    assert rows["server.origins"] == ((), "default")


def test_environment_text_becomes_numbers_and_lists() -> None:
    layer = environment_layer(
        {"FOREBAY_SERVER__PORT": "8500", "FOREBAY_SERVER__ORIGINS": "http://a, http://b"}
    )
    settings = build(merge([layer], Root), Root)
    assert settings.server.port == 8500
    assert settings.server.origins == ("http://a", "http://b")


def test_secrets_are_masked() -> None:
    configuration = merge([Layer("f", {"server": {"api_key": "hush"}})], Root)
    rows = {k: v for k, v, _ in effective(build(configuration, Root), configuration)}
    assert rows["server.api_key"] == "********"


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"server": {"prot": 1}}, ["server.prot", "did you mean server.port?"]),
        ({"sever": {}}, ["sever", "did you mean server?"]),
        ({"knowledge": {"h": {"path": ["x"]}}}, ["knowledge.h.path", "knowledge.h.paths"]),
        ({"pools": [{"name": "a", "base_url": "x"}]}, ["pools.0.base_url", "base_urls"]),
        ({"server": {"port": 0}}, ["server.port", "forebay.toml"]),
        ({"server": {"port": "many"}}, ["server.port", "must be a whole number, not text"]),
        ({"server": 3}, ["server"]),
    ],
)
def test_errors_name_the_key_and_the_remedy(values: dict[str, object], words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        build(merge([Layer("forebay.toml", values)], Root), Root)
    for word in words:
        assert word in caught.value.message


def test_a_broken_file_is_one_sentence(tmp_path: Path) -> None:
    file = tmp_path / "forebay.toml"
    file.write_text("[server\nport=1")
    with pytest.raises(ConfigError, match="not valid TOML"):
        file_layer(file)
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="UTF-8"):
        file_layer(file)
    with pytest.raises(ConfigError, match="cannot read"):
        file_layer(tmp_path / "absent.toml")


@pytest.mark.parametrize("name", ["FOREBAY_SERVER_PORT", "FOREBAY_SERVER_ACCESS_LOG_PATH"])
def test_one_underscore_where_two_belong_is_an_error_that_says_so(name: str) -> None:
    meant = name.replace("SERVER_", "SERVER__")
    with pytest.raises(ConfigError, match=f"has {name}; write {meant}"):
        environment_layer({name: "1"}, Root.__struct_fields__)


def test_other_names_without_two_underscores_are_somebody_elses() -> None:
    environ = {"FOREBAY_HOME": "/x", "FOREBAY_SERVER": "x", "FOREBAY_SHARED_DATA": "/d"}
    assert environment_layer(environ, Root.__struct_fields__).values == {}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("FOREBAY_SERVER__PORT", "many"),
        ("FOREBAY_SERVER__PROT", "1"),
        ("FOREBAY_SERVER__ORIGINS", "[1,"),
        ("FOREBAY_SERVER__ORIGINS", "[1]"),
    ],
)
def test_what_is_wrong_in_the_environment_names_the_variable(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=rf"environment variable {name}\b"):
        build(merge([environment_layer({name: value})], Root), Root)
