"""Every setting of admission is read by the code that it is said to steer.

A field counts as read where some code other than the checks of a settings struct names it. That
those of retrieval's line reach it is shown by ``tests/unit/policy/test_line.py``, one by one.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, get_args

import msgspec

import forebay
from forebay.app.configuration import field_types
from forebay.policy.admission import AdmissionSettings
from forebay.policy.admission.settings import DIMENSIONS

ROOT = Path(forebay.__file__).parent


def structs(root: type[msgspec.Struct]) -> Iterator[tuple[type[msgspec.Struct], str, Any]]:
    """Every field under a struct, with its owner; depth first."""
    for name, kind in field_types(root).items():
        yield root, name, kind
        for inner in _structs_in(kind):
            yield from structs(inner)


def _structs_in(kind: Any) -> Iterator[type[msgspec.Struct]]:
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        yield kind
    for inner in get_args(kind):
        yield from _structs_in(inner)


@cache
def read_names() -> frozenset[str]:
    """Attributes that code reads, but for the checks that settings make when they are built."""
    found: set[str] = set(DIMENSIONS)  # limits are looked up by dimension
    for path in sorted(ROOT.rglob("*.py")):
        _read(ast.parse(path.read_text(encoding="utf-8")), found)
    return frozenset(found)


def _read(node: ast.AST, found: set[str]) -> None:
    if isinstance(node, ast.FunctionDef) and node.name == "__post_init__":
        return
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
        found.add(node.attr)
    for one in ast.iter_child_nodes(node):
        _read(one, found)


def test_every_setting_of_admission_is_read() -> None:
    unread = {
        f"{owner.__name__}.{name}"
        for owner, name, _ in structs(AdmissionSettings)
        if name not in read_names()
    }
    assert unread == set()
