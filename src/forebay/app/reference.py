"""The settings reference, generated from the settings structs so that it cannot drift."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

import msgspec

from forebay.app.configuration import field_types, own_default, strip_annotations


class SettingRow(msgspec.Struct, frozen=True):
    """One line of the reference."""

    key: str
    type: str
    default: str
    description: str


def rows(
    root: type[msgspec.Struct], path: tuple[str, ...] = (), table: Any = None
) -> Iterator[SettingRow]:
    """Every setting under ``root``, depth first; ``<name>`` stands for a name you choose.

    ``table`` as in ``own_default``.
    """
    hints = field_types(root)
    for field in msgspec.structs.fields(root):
        annotated = hints[field.name]
        inner = strip_annotations(annotated)
        here = (*path, field.encode_name)
        nested, suffix = _nested(inner)
        default = own_default(field, table)
        if nested is not None:
            own = default if isinstance(default, msgspec.Struct) else None
            yield from rows(nested, (*here, *suffix), own)
            continue
        yield SettingRow(
            ".".join(here), type_name(annotated), _written(default), _description(annotated)
        )


def _nested(kind: Any) -> tuple[type[msgspec.Struct] | None, tuple[str, ...]]:
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return kind, ()
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (list, tuple) and arguments:
        inner = strip_annotations(arguments[0])
        if isinstance(inner, type) and issubclass(inner, msgspec.Struct):
            return inner, ("[]",)
    if isinstance(origin, type) and issubclass(origin, Mapping) and arguments:
        inner = strip_annotations(arguments[1])
        if isinstance(inner, type) and issubclass(inner, msgspec.Struct):
            return inner, ("<name>",)
    return None, ()


def type_name(kind: Any) -> str:
    """A type as a person reads it, with its bounds."""
    bounds = ""
    while hasattr(kind, "__metadata__"):
        for meta in kind.__metadata__:
            if isinstance(meta, msgspec.Meta):
                bounds += _bounds(meta)
        kind = get_args(kind)[0]
    options = [option for option in get_args(kind) if option is not type(None)]
    if type(None) in get_args(kind) and len(options) == 1:
        return type_name(options[0]) + bounds + " or unset"
    origin = get_origin(kind)
    if origin is Literal:
        return " | ".join(f'"{option}"' for option in get_args(kind))
    if origin is UnionType or origin is Union:
        return " or ".join(type_name(option) for option in get_args(kind)) + bounds
    if origin in (list, tuple):
        return f"list of {type_name(get_args(kind)[0])}{bounds}"
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return f"table of {type_name(get_args(kind)[1])}{bounds}"
    names = {int: "integer", float: "number", str: "text", bool: "true/false"}
    return names.get(kind, getattr(kind, "__name__", str(kind))) + bounds


def _bounds(meta: msgspec.Meta) -> str:
    marks = (("ge", "≥"), ("gt", ">"), ("le", "≤"), ("lt", "<"))
    parts = [f"{mark} {_number(getattr(meta, name))}" for name, mark in marks if _set(meta, name)]
    return f" ({', '.join(parts)})" if parts else ""


def _number(value: float) -> str:
    """Whole numbers in full: a bound in bytes is not read as 1.04858e+06."""
    return str(int(value)) if float(value).is_integer() else f"{value:g}"


def _set(meta: msgspec.Meta, name: str) -> bool:
    return getattr(meta, name) is not None


def _description(kind: Any) -> str:
    found = ""
    while hasattr(kind, "__metadata__"):
        for meta in kind.__metadata__:
            if isinstance(meta, msgspec.Meta) and meta.description:
                found = meta.description
        kind = get_args(kind)[0]
    if not found and type(None) in get_args(kind):
        return next((text for text in map(_description, get_args(kind)) if text), "")
    return found


def _written(default: Any) -> str:
    if default is msgspec.NODEFAULT:
        return "required"
    return "unset" if default is None else msgspec.json.encode(default).decode()


def markdown(
    root: type[msgspec.Struct], words: Mapping[str, str], translations: Mapping[str, str]
) -> str:
    """The reference page; ``words`` are its fixed words, ``translations`` maps descriptions."""
    lines = [f"# {words['title']}", "", words["intro"], ""]
    section = None
    for row in rows(root):
        head = row.key.split(".", 1)[0]
        if head != section:
            section = head
            lines += [
                "",
                f"## `[{head}]`",
                "",
                f"| {words['key']} | {words['type']} | {words['default']} | {words['meaning']} |",
                "|---|---|---|---|",
            ]
        meaning = translations.get(row.description, row.description)
        kind = row.type.replace("|", "\\|")
        lines.append(f"| `{row.key}` | {kind} | `{row.default}` | {meaning} |")
    return "\n".join(lines).rstrip() + "\n"
