"""The YAML or TOML block in front of a Markdown text."""

from __future__ import annotations

import re
from datetime import date, datetime
from typing import NamedTuple

_YAML = re.compile(r"\A\ufeff?---[ \t]*\r?\n(.*?)(?:^---|^\.\.\.)[ \t]*(?:\r?\n|\Z)", re.S | re.M)
_TOML = re.compile(r"\A\ufeff?\+\+\+[ \t]*\r?\n(.*?)^\+\+\+[ \t]*(?:\r?\n|\Z)", re.S | re.M)
_PAIR = re.compile(r"^([A-Za-z][\w -]{0,40}):[ \t]*(.*?)[ \t]*$", re.M)
_MAX_CHARACTERS = 20_000
_CLOSING = {"[": "]", "{": "}", '"': '"', "'": "'"}
_BROKEN_YAML = "The front matter is not valid YAML; it was read line by line."
_BROKEN_TOML = "The front matter is not valid TOML; it was read as text."
_SYNONYMS = {
    "lang": "language",
    "locale": "language",
    "tag": "tags",
    "keywords": "tags",
    "categories": "tags",
    "group": "groups",
    "access_groups": "groups",
}


class FrontMatter(NamedTuple):
    """Flat strings (lists joined by commas), the text behind them, what was wrong with them."""

    values: dict[str, str]
    body: str
    warning: str = ""


def split_front_matter(text: str) -> FrontMatter:
    """Return the front matter of ``text`` and the rest.

    YAML that is not well-formed is read line by line, except for a title that ends nowhere; a
    block that has no pairs, and TOML that is not well-formed, are left in place.
    """
    for pattern, load in ((_YAML, _load_yaml), (_TOML, _load_toml)):
        match = pattern.match(text)
        if match is None or match.end(1) > _MAX_CHARACTERS:
            continue
        values, warning = load(match.group(1))
        if values or warning:
            body = text if warning == _BROKEN_TOML else text[match.end() :]
            return FrontMatter(_flatten(values), body, warning)
    return FrontMatter({}, text)


def _load_yaml(block: str) -> tuple[dict[str, object], str]:
    import yaml

    try:
        values = yaml.safe_load(block)
    # PyYAML's constructors raise plain ValueError for dates such as 2023-99-99, and a hostile
    # nesting ends in RecursionError; the lines can still be read.
    except (yaml.YAMLError, ValueError, RecursionError):
        values = None
    if isinstance(values, dict):
        return {str(key): value for key, value in values.items()}, ""
    pairs: dict[str, object] = {
        key: value.strip("'\"")
        for key, value in _PAIR.findall(block)
        if key.lower() != "title" or not _endless(value)
    }
    return pairs, _BROKEN_YAML if _PAIR.search(block) else ""


def _endless(value: str) -> bool:
    """Whether a value opens what its line does not close."""
    close = _CLOSING.get(value[:1])
    return close is not None and (len(value) < 2 or not value.endswith(close))


def _load_toml(block: str) -> tuple[dict[str, object], str]:
    import tomllib

    try:
        return tomllib.loads(block), ""
    except (tomllib.TOMLDecodeError, RecursionError):
        return {}, _BROKEN_TOML


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
