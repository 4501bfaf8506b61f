"""Workload files: TOML or JSON in, checked values out, one sentence for whatever is wrong."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from forebay.kernel.errors import ConfigError
from forebay.lab.workload.distributions import unreadable

T = TypeVar("T")
MAX_FILE_BYTES = 16 << 20
_PLACE = re.compile(r" - at `(?:key in )?\$\.?([^`]*)`$")
_BOUND = re.compile(r"Expected (\w+) (<=|<|>=|>) (\S+)$")
_MISSING = re.compile(r"Object missing required field (\w+)$")
_KINDS = re.compile(r"Expected ([\w |]+), got (\w+)$")
_NOUNS = {
    "int": "a whole number", "float": "a number", "str": "a text", "object": "a table",
    "array": "a list", "bool": "true or false",
}  # fmt: skip
_COMPARED = {"<=": "of at most", "<": "below", ">=": "of at least", ">": "above"}


def read_values(path: Path) -> dict[str, Any]:
    """The table in a ``.toml`` or ``.json`` file; raises ``ConfigError``."""
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise ConfigError(f"{path.name} is over 16 MiB: that is no workload file.")
        data = path.read_bytes()
    except OSError as error:
        raise unreadable(path, error) from error
    try:
        if path.suffix.lower() == ".json":
            return msgspec.json.decode(data, type=dict[str, Any])
        return tomllib.loads(data.decode("utf-8-sig"))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path.name} is not valid TOML: {error}.") from error
    except (msgspec.DecodeError, RecursionError) as error:
        raise ConfigError(f"{path.name} is not valid JSON: {error}.") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path.name} is not UTF-8 text; save it as UTF-8.") from error


def convert(values: Any, kind: type[T], name: str) -> T:
    """``values`` as ``kind``; ``name`` (of the file) begins every error.

    Unknown keys and unknown words are refused with the nearest known one.
    """
    _check(values, kind, "", name)
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        text = str(error)
        place = _PLACE.search(text)
        key = place.group(1) if place else ""
        what = _plain(_PLACE.sub("", text))
        raise ConfigError(f"{name}: {f'{key}: ' if key else ''}{what}.", param=key) from error


def nearest(word: str, known: Iterable[str]) -> str:
    """What to say after an unknown ``word``: the nearest known one, else all of them."""
    names = list(known)
    near = difflib.get_close_matches(word, names, n=1, cutoff=0.5)
    return f"did you mean {near[0]}?" if near else f"known here: {', '.join(sorted(names))}."


def _plain(message: str) -> str:
    """A validation message in words for people who write TOML."""
    message = message.replace("`", "")
    bound = _BOUND.match(message)
    if bound:
        kind, sign, value = bound.groups()
        return f"expected {_NOUNS.get(kind, kind)} {_COMPARED[sign]} {float(value):g}"
    missing = _MISSING.match(message)
    if missing:
        return f"{missing.group(1)} is missing"
    kinds = _KINDS.match(message)
    if kinds:
        wanted = [_NOUNS.get(kind, kind) for kind in kinds.group(1).split(" | ") if kind != "null"]
        return f"expected {' or '.join(wanted)}, got {_NOUNS.get(kinds.group(2), kinds.group(2))}"
    return message[:1].lower() + message[1:]


def _check(values: Any, kind: Any, path: str, name: str) -> None:
    """Refuse names that ``kind`` does not have, at any depth, before the values are looked at."""
    options = _options(kind)
    if isinstance(values, Mapping):
        struct = _struct(values, options, path, name)
        if struct is not None:
            _check_fields(values, struct, path, name)
    elif isinstance(values, list):
        items = [get_args(option)[0] for option in options if get_origin(option) in (tuple, list)]
        for position, value in enumerate(values):
            if items:
                _check(value, items[0], f"{path}[{position}]", name)
    elif isinstance(values, str):
        words = [word for option in options for word in _words(option)]
        if words and str not in options and values not in words:
            raise ConfigError(f'{name}: {path} = "{values}" is unknown; {nearest(values, words)}')


def _check_fields(
    values: Mapping[Any, Any], struct: type[msgspec.Struct], path: str, name: str
) -> None:
    tag = struct.__struct_config__.tag_field
    fields = {field.encode_name: field.name for field in msgspec.structs.fields(struct)}
    hints = get_type_hints(struct, include_extras=True)
    for key, value in values.items():
        if key == tag:
            continue
        here = f"{path}.{key}" if path else str(key)
        if key not in fields:
            raise ConfigError(
                f"{name}: unknown key {here}; {nearest(str(key), fields)}", param=here
            )
        _check(value, hints[fields[key]], here, name)


def _struct(
    values: Mapping[Any, Any], options: list[Any], path: str, name: str
) -> type[msgspec.Struct] | None:
    structs = [
        option
        for option in options
        if isinstance(option, type) and issubclass(option, msgspec.Struct)
    ]
    if not structs:
        return None
    tag = structs[0].__struct_config__.tag_field
    if tag is None:
        return structs[0]
    by_tag = {str(struct.__struct_config__.tag): struct for struct in structs}
    wanted = values.get(tag)
    here = f"{path}.{tag}" if path else tag
    if wanted is None:
        raise ConfigError(f"{name}: {here} is missing; one of {', '.join(by_tag)}.", param=here)
    if not isinstance(wanted, str) or wanted not in by_tag:
        raise ConfigError(
            f'{name}: {here} = "{wanted}" is unknown; {nearest(str(wanted), by_tag)}', param=here
        )
    return by_tag[wanted]


def _options(kind: Any) -> list[Any]:
    """The types a value may have: unions opened, constraints taken off."""
    while hasattr(kind, "__metadata__"):
        kind = get_args(kind)[0]
    if get_origin(kind) in (Union, UnionType):
        return [option for part in get_args(kind) for option in _options(part)]
    return [kind]


def _words(kind: Any) -> tuple[str, ...]:
    return get_args(kind) if get_origin(kind) is Literal else ()
