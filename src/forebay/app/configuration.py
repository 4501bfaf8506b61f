"""Layered configuration: defaults < ``forebay.toml`` < environment < flags, with provenance.

Values land in frozen structs that live beside their consumers. Unknown keys are errors that
suggest the nearest name; every error names the key, where it came from and what was expected.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from forebay.kernel.errors import ConfigError
from forebay.wire.choices import choices

T = TypeVar("T")
ENV_PREFIX = "FOREBAY_"
ENVIRONMENT = "environment"
SECRET_NAMES = ("api_key", "password", "redis_url", "secret", "token")

_EXPECTED = re.compile(r"Expected `([^`]+)`(.*?)(?:, got `([^`]+)`)?", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `([^`]+)`")
_KINDS = {
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "array": "a list",
    "object": "a table",
}


class Layer(msgspec.Struct, frozen=True):
    """One source of values: ``origin`` is what a person reads in ``forebay config``."""

    origin: str
    values: Mapping[str, Any]
    textual: bool = False


class Configuration(msgspec.Struct, frozen=True):
    """Merged raw values and, for each dotted key, the layer that set it."""

    values: Mapping[str, Any]
    origins: Mapping[str, str]


def file_layer(path: Path) -> Layer:
    """Read a TOML file; raise ``ConfigError`` with line and column when it is not TOML."""
    try:
        with path.open("rb") as handle:
            return Layer(str(path), tomllib.load(handle))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path.name} is not valid TOML: {error}.") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path.name} is not UTF-8 text; save it as UTF-8.") from error
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ConfigError(f"cannot read {path}: {reason}.") from error


def environment_layer(environ: Mapping[str, str], sections: Collection[str] = ()) -> Layer:
    """Turn ``FOREBAY_SECTION__KEY=value`` into nested values; one name level per ``__``.

    A name without ``__`` is not a setting, and may be anybody's; but where it begins with one of
    ``sections`` it was meant as one, and is a ``ConfigError`` that says how it is written.
    """
    values: dict[str, Any] = {}
    for name in sorted(environ):
        if not name.startswith(ENV_PREFIX):
            continue
        if "__" not in name:
            _check_underscores(name, sections)
            continue
        path = name.removeprefix(ENV_PREFIX).lower().split("__")
        _put(values, path, environ[name])
    return Layer(ENVIRONMENT, values, textual=True)


def _check_underscores(name: str, sections: Collection[str]) -> None:
    section, underscore, key = name.removeprefix(ENV_PREFIX).partition("_")
    if underscore and key and section.lower() in sections:
        raise ConfigError(
            f"the environment has {name}; write {ENV_PREFIX}{section}__{key}, with two underscores "
            "between a section and its key, or unset it."
        )


def flags_layer(flags: Mapping[str, Any]) -> Layer:
    """Turn ``{"server.port": 8400}`` into nested values; None means the flag was not given."""
    values: dict[str, Any] = {}
    for name, value in flags.items():
        if value is not None:
            _put(values, name.split("."), value)
    return Layer("command line", values, textual=True)


def _put(tree: dict[str, Any], path: list[str], value: Any) -> None:
    for part in path[:-1]:
        child = tree.setdefault(part, {})
        if not isinstance(child, dict):
            raise ConfigError(f"{'.'.join(path)} contradicts an earlier value of {part}.")
        tree = child
    tree[path[-1]] = value


def merge(layers: list[Layer], root: type[msgspec.Struct]) -> Configuration:
    """Merge layers, later ones winning key by key; lists are replaced whole."""
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for layer in layers:
        _check_names(layer.values, root, (), layer.origin)
        _merge_into(values, layer, layer.values, root, (), origins)
    return Configuration(values, origins)


def _merge_into(
    target: dict[str, Any],
    layer: Layer,
    source: Mapping[str, Any],
    kind: Any,
    path: tuple[str, ...],
    origins: dict[str, str],
) -> None:
    for name, value in source.items():
        here = (*path, name)
        inner = _child_type(kind, name)
        if isinstance(value, Mapping) and _is_table(inner):
            child = target.setdefault(name, {})
            _merge_into(child, layer, value, inner, here, origins)
            if not value:
                origins[".".join(here)] = layer.origin
        else:
            target[name] = _from_text(value, inner, here) if layer.textual else value
            origins[".".join(here)] = layer.origin


def _check_names(values: Mapping[str, Any], kind: Any, path: tuple[str, ...], origin: str) -> None:
    if not isinstance(kind, type) or not issubclass(kind, msgspec.Struct):
        item = _mapping_value_type(kind)
        if item is not None:
            for name, value in values.items():
                if isinstance(value, Mapping):
                    _check_names(value, item, (*path, name), origin)
        return
    known = {field.encode_name for field in msgspec.structs.fields(kind)}
    for name, value in values.items():
        here = (*path, name)
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
            hint = f"did you mean {'.'.join((*path, near[0]))}?" if near else _known(known)
            told = _told(origin, ".".join(here))
            raise ConfigError(f"unknown setting {'.'.join(here)} ({told}); {hint}")
        inner = _child_type(kind, name)
        if isinstance(value, Mapping):
            _check_names(value, inner, here, origin)
        elif isinstance(value, list):
            _check_items(value, inner, here, origin)


def _check_items(values: list[Any], kind: Any, path: tuple[str, ...], origin: str) -> None:
    item = _item_type(kind)
    for position, value in enumerate(values):
        if item is not None and isinstance(value, Mapping):
            _check_names(value, item, (*path, str(position)), origin)


def _known(names: set[str]) -> str:
    return "known here: " + ", ".join(sorted(names)) + "."


def strip_annotations(kind: Any) -> Any:
    """The plain type under ``Annotated`` and an optional ``| None``."""
    while hasattr(kind, "__metadata__"):
        kind = get_args(kind)[0]
    options = [option for option in get_args(kind) if option is not type(None)]
    if len(options) == 1 and type(None) in get_args(kind):
        return strip_annotations(options[0])
    return kind


def field_types(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Resolved annotations of a settings struct, ``Annotated`` kept."""
    return get_type_hints(kind, include_extras=True)


def _child_type(kind: Any, name: str) -> Any:
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return strip_annotations(field_types(kind).get(name, Any))
    return _mapping_value_type(kind) or Any


def _mapping_value_type(kind: Any) -> Any:
    if isinstance(get_origin(kind), type) and issubclass(get_origin(kind), Mapping):
        return strip_annotations(get_args(kind)[1])
    return None


def _item_type(kind: Any) -> Any:
    origin = get_origin(kind)
    if origin in (list, tuple) and get_args(kind):
        return strip_annotations(get_args(kind)[0])
    return None


def _is_table(kind: Any) -> bool:
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return True
    return _mapping_value_type(kind) is not None


def _from_text(value: Any, kind: Any, path: tuple[str, ...]) -> Any:
    """Environment values are text: lists are JSON or comma-separated, scalars convert later."""
    if not isinstance(value, str):
        return value
    if _item_type(kind) is not None:
        if value.lstrip().startswith("["):
            try:
                return msgspec.json.decode(value)
            except msgspec.DecodeError as error:
                name = _told(ENVIRONMENT, ".".join(path))
                raise ConfigError(f"the list in {name} is not valid JSON: {error}.") from error
        return [part.strip() for part in value.split(",") if part.strip()]
    if kind in (int, float, bool):
        try:
            return msgspec.convert(value.strip().lower(), kind, strict=False)
        except msgspec.ValidationError:
            return value
    return value


def build(configuration: Configuration, root: type[T]) -> T:
    """Validate the merged values into ``root``; raise ``ConfigError`` naming key and origin."""
    try:
        return msgspec.convert(_filled(configuration.values, root), root)
    except msgspec.ValidationError as error:
        message = str(error)
        key = ""
        if " - at `$" in message:
            message, _, tail = message.partition(" - at `$")
            key = tail.rstrip("`").lstrip(".")
        allowed, origin = _allowed(root, key), _origin_of(configuration.origins, key)
        key = key.replace("[...]", ".<name>")
        if missing := _MISSING.fullmatch(message):
            name = f"{key}.{missing.group(1)}".lstrip(".")
            raise ConfigError(f"setting {name} is missing ({origin}); give it a value.") from error
        where = f"setting {key} ({origin})" if key else "the configuration"
        raise ConfigError(f"{where} is wrong: {_plain(message)}{allowed}.") from error


def _plain(message: str) -> str:
    """What msgspec says of a value, in words of the file it stands in."""
    if not (said := _EXPECTED.fullmatch(message)):
        message = message.replace("Invalid enum value", "it cannot be")
        return message[0].lower() + message[1:]
    kinds, bound, got = said.groups()
    wanted = " or ".join(_KINDS.get(kind, kind) for kind in kinds.split(" | ") if kind != "null")
    return f"it must be {wanted}{bound}" + (f", not {_KINDS.get(got, got)}" if got else "")


def own_default(field: msgspec.structs.FieldInfo, table: Any = None) -> Any:
    """What a field has where nothing is said; ``NODEFAULT`` where something must be.

    ``table`` is the value that the table it stands in has by default: two tables of one type may
    differ in theirs.
    """
    if table is not None:
        return getattr(table, field.name)
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return field.default


def _filled(values: Any, kind: Any, table: Any = None) -> Any:
    """``values`` with what a table given in part has by default; ``convert`` knows only the type's.

    ``table`` as in ``own_default``.
    """
    if isinstance(values, list | tuple):
        item = _item_type(kind)
        return values if item is None else [_filled(value, item) for value in values]
    if not isinstance(values, Mapping):
        return values
    if not isinstance(kind, type) or not issubclass(kind, msgspec.Struct):
        item = _mapping_value_type(kind)
        return {name: _filled(value, item) for name, value in values.items()}
    filled = dict(values)
    for field in msgspec.structs.fields(kind):
        name, default = field.encode_name, own_default(field, table)
        if name in filled:
            inner = strip_annotations(field.type)
            own = default if isinstance(default, msgspec.Struct) else None
            filled[name] = _filled(filled[name], inner, own)
        elif table is not None:
            filled[name] = msgspec.to_builtins(default)
    return filled


def _allowed(root: Any, key: str) -> str:
    """The words a setting may have, where it is one of a few."""
    words = choices(root, key)
    return "; one of " + ", ".join(f'"{word}"' for word in words) if words else ""


def _told(origin: str, key: str) -> str:
    """Where a value comes from, as somebody finds it who has to change it."""
    if origin != ENVIRONMENT:
        return origin
    return f"environment variable {ENV_PREFIX}{key.upper().replace('.', '__')}"


def _origin_of(origins: Mapping[str, str], key: str) -> str:
    """The source of what is wrong at ``key``, with the variable's name if it is one."""
    plain = key.split("[", 1)[0]
    for name, origin in origins.items():
        if name == plain or name.startswith(plain + ".") or plain.startswith(name + "."):
            return _told(origin, name)
    return "default"


def effective(settings: msgspec.Struct, configuration: Configuration) -> list[tuple[str, Any, str]]:
    """Every setting as (dotted key, value, origin); secrets are masked."""
    rows: list[tuple[str, Any, str]] = []

    def walk(value: Any, path: tuple[str, ...]) -> None:
        if isinstance(value, msgspec.Struct):
            for name in value.__struct_fields__:
                walk(getattr(value, name), (*path, name))
        elif isinstance(value, Mapping) and value:
            for name, item in value.items():
                walk(item, (*path, str(name)))
        elif isinstance(value, list | tuple) and value and isinstance(value[0], msgspec.Struct):
            for position, item in enumerate(value):
                walk(item, (*path, str(position)))
        else:
            key = ".".join(path)
            secret = path and path[-1] in SECRET_NAMES and value
            rows.append((key, "********" if secret else value, _exact(configuration.origins, key)))

    walk(settings, ())
    return rows


def _exact(origins: Mapping[str, str], key: str) -> str:
    while key:
        if key in origins:
            return origins[key]
        key = key.rpartition(".")[0]
    return "default"
