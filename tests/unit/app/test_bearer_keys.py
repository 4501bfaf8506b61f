"""Keys from the environment and from files, and what is said when they are not there."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from forebay.app.bearer_keys import embedding_keys, generation_keys
from forebay.embedding.settings import EmbeddingSettings
from forebay.generation.settings import GenerationSettings, PoolSettings
from forebay.kernel.errors import ConfigError


def pools(*named: dict[str, str], backend: str = "openai") -> GenerationSettings:
    plain = PoolSettings("p", ("http://127.0.0.1:1/v1",), "m")
    made = tuple(msgspec.structs.replace(plain, **each) for each in named)
    return GenerationSettings(backend=backend, pools=made)  # type: ignore[arg-type]


def test_each_pool_gets_its_key_from_where_it_says(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("from-file\n")
    settings = pools(
        {}, {"api_key": "plain"}, {"api_key_env": "ENGINE_KEY"}, {"api_key_file": str(file)}
    )
    found = generation_keys(settings, {"ENGINE_KEY": " from-env "})
    keys = [pool.api_key for pool in found.pools]
    assert keys == ["", "plain", "from-env", "from-file"]


def test_the_embedders_key_too() -> None:
    settings = EmbeddingSettings(backend="openai", api_key_env="E")
    assert embedding_keys(settings, {"E": "k"}).api_key == "k"


def test_what_is_not_in_use_is_not_looked_up() -> None:
    settings = pools({"api_key_env": "ABSENT"}, backend="extractive")
    assert generation_keys(settings, {}) == settings
    local = EmbeddingSettings(api_key_env="ABSENT")
    assert embedding_keys(local, {}) == local


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ({"api_key_env": "ABSENT"}, "generation.pools.0.api_key_env names ABSENT"),
        ({"api_key_env": "BLANK"}, "names BLANK, which the environment does not hold"),
        ({"api_key_env": "LINES"}, "one line of ASCII"),
        ({"api_key_file": "absent"}, "generation.pools.0.api_key_file cannot be read: .*No such"),
        ({"api_key_file": "empty"}, "which is empty"),
        ({"api_key_file": "."}, "directory"),
        ({"api_key": "a", "api_key_env": "B"}, "both api_key and api_key_env; keep one"),
    ],
)
def test_a_key_that_is_not_there_is_a_sentence(
    named: dict[str, str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(ConfigError, match=message):
        generation_keys(pools(named), {"BLANK": " ", "LINES": "a\nb"})
