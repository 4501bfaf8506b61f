"""Contradictions of a configuration are found when it is read, whatever reads it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from forebay.app.composition import _server_settings
from forebay.app.configuration import Configuration, build
from forebay.app.operations import show_config
from forebay.app.output import Output
from forebay.app.reference import rows
from forebay.app.settings import Settings, load_settings
from forebay.kernel.errors import ConfigError
from forebay.policy.bulkhead import RETRIEVAL_LINE
from forebay.policy.gate import GateSettings

KEY = f"[[tenants.keys]]\nhash = 'sha256:{'a' * 64}'\n"
TENANT = "[[tenants]]\nname = 'acme'\n"


@pytest.mark.parametrize(
    ("text", "word"),
    [
        (f"{TENANT}knowledge = ['a']\ndefault_kb = 'b'\n{KEY}", "default_kb"),
        (TENANT, "forebay key new"),
        (f"{TENANT}groups = ['a,b']\n{KEY}", "commas"),
        (f"{TENANT}groups = ['']\n{KEY}", "commas"),
        (f"{TENANT}groups = [' a']\n{KEY}", "commas"),
        (f"{TENANT}groups = ['a']\n{KEY}groups = ['b']\n", "lacks: b"),
        (f"{TENANT}knowledge = ['../y']\n{KEY}", "no name"),
        (f"{TENANT}{KEY}{TENANT}{KEY}", "twice"),
        ("[knowledge.a]\ngroups = ['x,y']\n", "commas"),
        ("[knowledge.a]\nshared = true\n", "redis_url"),
        ("[server]\ndefault_kb = '../y'\n", "no name"),
        ("[server]\ntrusted_proxies = ['nowhere']\n", "trusted_proxies"),
        ("[server.deadlines]\nmax_ms = 1000\n", "max_ms"),
    ],
)
def test_a_contradiction_is_refused(tmp_path: Path, text: str, word: str) -> None:
    file = tmp_path / "forebay.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=word):
        load_settings(file, {}, {})


def test_a_sound_configuration_passes(tmp_path: Path) -> None:
    file = tmp_path / "forebay.toml"
    file.write_text(f"{TENANT}knowledge = ['a']\ngroups = ['人事', 'h r']\n{KEY}")
    settings, _ = load_settings(file, {}, {})
    assert settings.tenants[0].groups == ("人事", "h r")


def test_config_refuses_an_open_address_as_serve_does() -> None:
    with pytest.raises(ConfigError, match=r"server\.host"):
        show_config(None, {"server.host": "0.0.0.0"}, False, Output(as_json=True))


def test_config_refuses_pools_as_serve_does() -> None:
    flags = {"generation.backend": "openai"}
    with pytest.raises(ConfigError, match=r"at least one \[\[generation\.pools\]\]"):
        show_config(None, flags, False, Output(as_json=True))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[server]\nport = 'x'\n", r"server\.port .* it must be a whole number, not text\."),
        ("[server]\nport = 70000\n", r"server\.port .* it must be a whole number <= 65535\."),
        ("[server]\ntrusted_proxies = 'x'\n", r"it must be a list, not text\."),
        ("[ingest.pool]\ntask_timeout_s = true\n", r"it must be a number, not true or false\."),
        ("[knowledge]\nhandbook = 'x'\n", r"knowledge\.<name> .* it must be a table, not text"),
        ("[generation]\nbackend = 'x'\n", r"it cannot be 'x'; one of \"extractive\""),
        (
            "[[generation.pools]]\nname = 'a'\nmodel = 'm'\n",
            r"setting generation\.pools\[0\]\.base_urls is missing \(.*toml\); give it a value",
        ),
    ],
)
def test_what_is_wrong_is_said_in_plain_words(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "forebay.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=said):
        load_settings(file, {}, {})


def test_a_table_given_in_part_keeps_its_own_defaults(tmp_path: Path) -> None:
    file = tmp_path / "forebay.toml"
    file.write_text(
        "[admission.retrieval]\nmax_waiting = 9\nlimit.most = 32\n"
        "[admission.pools.short.gate.shed]\nmax_wait_s = 3.0\n"
    )
    admission = load_settings(file, {}, {})[0].admission
    retrieval = admission.retrieval
    assert (retrieval.max_waiting, retrieval.limit.most) == (9, 32)
    rest = msgspec.structs.replace(
        retrieval, max_waiting=RETRIEVAL_LINE.max_waiting, limit=RETRIEVAL_LINE.limit
    )
    assert rest == RETRIEVAL_LINE
    assert msgspec.structs.replace(retrieval.limit, most=64) == RETRIEVAL_LINE.limit
    usual = GateSettings().shed
    assert admission.pools["short"].gate.shed == msgspec.structs.replace(usual, max_wait_s=3.0)


def test_nothing_given_is_what_the_code_says_and_all_of_it_can_be_written_down() -> None:
    assert build(Configuration({}, {}), Settings) == Settings()
    configuration = Configuration(msgspec.to_builtins(Settings()), {})
    assert build(configuration, Settings) == Settings()


def test_the_reference_tells_the_defaults_of_the_table() -> None:
    told = {row.key: row.default for row in rows(Settings)}
    assert told["admission.retrieval.limit.most"] == "64"
    assert told["admission.pools.<name>.gate.limit.most"] == "1024"
    assert told["admission.retrieval.shed.max_wait_s"] == "2.0"
    assert told["tenants.[].name"] == "required"


def test_other_model_names_go_to_the_first_configured_kb(tmp_path: Path) -> None:
    file = tmp_path / "forebay.toml"
    file.write_text("[knowledge.b]\npaths = []\n[knowledge.a]\npaths = []\n")
    settings, _ = load_settings(file, {}, {})
    assert _server_settings(settings).default_kb == "b"
    settings, _ = load_settings(file, {"server.default_kb": "a"}, {})
    assert _server_settings(settings).default_kb == "a"
    assert _server_settings(Settings()).default_kb == ""
