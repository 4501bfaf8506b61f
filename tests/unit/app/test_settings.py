"""Contradictions of a configuration are found when it is read, whatever reads it."""

from __future__ import annotations

from pathlib import Path

import pytest

from forebay.app.operations import show_config
from forebay.app.output import Output
from forebay.app.settings import load_settings
from forebay.kernel.errors import ConfigError

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
