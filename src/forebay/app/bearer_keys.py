"""Bearer keys for engines that stand in the environment or in a file, not in the configuration."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import msgspec

from forebay.embedding.settings import EmbeddingSettings
from forebay.generation.settings import GenerationSettings
from forebay.kernel.errors import ConfigError

_MOST_BYTES = 64 * 1024
_SOURCES = ("api_key", "api_key_env", "api_key_file")


class Keyed(Protocol):
    """Settings that name a key in one of three ways."""

    @property
    def api_key(self) -> str: ...

    @property
    def api_key_env(self) -> str: ...

    @property
    def api_key_file(self) -> str: ...


def generation_keys(settings: GenerationSettings, environ: Mapping[str, str]) -> GenerationSettings:
    """The settings with every pool's key; those of a backend not in use are not looked up."""
    if settings.backend != "openai":
        return settings
    pools = tuple(
        msgspec.structs.replace(
            pool, api_key=bearer_key(pool, f"generation.pools.{number}", environ)
        )
        for number, pool in enumerate(settings.pools)
    )
    return msgspec.structs.replace(settings, pools=pools)


def embedding_keys(settings: EmbeddingSettings, environ: Mapping[str, str]) -> EmbeddingSettings:
    """The settings with the endpoint's key, where an endpoint is in use."""
    if settings.backend != "openai":
        return settings
    return msgspec.structs.replace(settings, api_key=bearer_key(settings, "embedding", environ))


def bearer_key(named: Keyed, where: str, environ: Mapping[str, str]) -> str:
    """The key of one endpoint; empty when none is named. Blocking: reads a small file.

    Raises ``ConfigError`` for a variable that is not set, a file that cannot be read, an empty
    key, and for two ways at once.
    """
    given = [name for name in _SOURCES if getattr(named, name)]
    if len(given) > 1:
        raise ConfigError(f"{where} has both {given[0]} and {given[1]}; keep one.", param=where)
    if named.api_key_env:
        key = environ.get(named.api_key_env, "").strip()
        param = f"{where}.api_key_env"
        if not key:
            raise ConfigError(
                f"{param} names {named.api_key_env}, which the environment does not hold; set it.",
                param=param,
            )
        return _printable(key, param)
    if named.api_key_file:
        param = f"{where}.api_key_file"
        return _printable(_read(Path(named.api_key_file), param), param)
    return named.api_key


def _read(path: Path, param: str) -> str:
    try:
        with path.open("rb") as file:
            key = file.read(_MOST_BYTES).decode("ascii", "replace").strip()
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ConfigError(f"{param} cannot be read: {path}: {reason}.", param=param) from error
    if not key:
        raise ConfigError(f"{param} names {path}, which is empty.", param=param)
    return key


def _printable(key: str, param: str) -> str:
    """A key goes into a header: a line end in it would be another header."""
    if not (key.isascii() and key.isprintable()):
        raise ConfigError(
            f"{param} leads to a key with line ends or characters that no header takes; "
            "it must be one line of ASCII.",
            param=param,
        )
    return key
