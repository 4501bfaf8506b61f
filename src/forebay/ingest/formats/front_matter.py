"""The YAML or TOML block in front of a Markdown text."""

from __future__ import annotations

import re
from datetime import date, datetime

_YAML = re.compile(r"\A\ufeff?---[ \t]*\r?\n(.*?)(?:^---|^\.\.\.)[ \t]*(?:\r?\n|\Z)", re.S | re.M)
_TOML = re.compile(r"\A\ufeff?\+\+\+[ \t]*\r?\n(.*?)^\+\+\+[ \t]*(?:\r?\n|\Z)", re.S | re.M)
_PAIR = re.compile(r"^([A-Za-z][\w -]{0,40}):[ \t]*(.*?)[ \t]*$", re.M)
_MAX_CHARACTERS = 20_000
_SYNONYMS = {
    "lang": "language",
    "locale": "language",
    "tag": "tags",
    "keywords": "tags",
    "categories": "tags",
    "group": "groups",
    "access_groups": "groups",
}


def split_front_matter(text: str) -> tuple[dict[str, str], str]:
    """Return the front matter as flat strings (lists joined by commas) and the rest of ``text``.

    A block that is not well-formed is read line by line; one that has no pairs is left in place.
    """
    for pattern, load in ((_YAML, _load_yaml), (_TOML, _load_toml)):
        match = pattern.match(text)
        if match is None or match.end(1) > _MAX_CHARACTERS:
            continue
        values = load(match.group(1))
        if values:
            return _flatten(values), text[match.end() :]
    return {}, text


def _load_yaml(block: str) -> dict[str, object]:
    import yaml

    try:
        values = yaml.safe_load(block)
    # PyYAML's constructors raise plain ValueError for dates such as 2023-99-99, and a hostile
    # nesting ends in RecursionError; the lines can still be read.
    except (yaml.YAMLError, ValueError, RecursionError):
        values = None
    if isinstance(values, dict):
        return {str(key): value for key, value in values.items()}
    return {key: value.strip("'\"") for key, value in _PAIR.findall(block)}


def _load_toml(block: str) -> dict[str, object]:
    import tomllib

    try:
        return tomllib.loads(block)
    except (tomllib.TOMLDecodeError, RecursionError):
        return {}


def _flatten(values: dict[str, object]) -> dict[str, str]:
    flat: dict[str, str] = {}
    for key, value in values.items():
        name = key.strip().lower()
        name = _SYNONYMS.get(name, name)
        text = _flat(value)
        if name == "tags" and isinstance(value, str):
            text = _joined(re.split("[,，、;；]", value))
        if text and name not in flat:
            flat[name] = text
    return flat


def _flat(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (str, int, float, date, datetime)):
        return str(value)
    if isinstance(value, list):
        return _joined([str(v) for v in value[:100] if isinstance(v, (str, int, float, date))])
    return ""


def _joined(values: list[str]) -> str:
    """Comma-joined; a comma inside a value would change the list, so it becomes a space."""
    return ",".join(" ".join(v.replace(",", " ").split()) for v in values if v.strip())
