"""Fails on the tail: what is longest, widest or most hidden in the code.

Medians look alike in good and in bad code bases; the longest function, the biggest file, module
state and swallowed errors do not. Run as ``python -m tools.check_tail [PATH…]``; prints one line
a finding, ``path:line: sentence``, and exits 1 if there is any.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MAX_FUNCTION_LINES = 60
MAX_PARAMETERS = 6
MAX_FILE_LINES = 500

DEFAULT_PATHS = ("src", "tests", "tools", "benchmarks")
BROAD = frozenset({"Exception", "BaseException"})
COMMAND_DECORATORS = frozenset({"command", "callback"})

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Finding:
    """One breach of a limit."""

    path: Path
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message}"


def check_source(path: Path, source: str) -> list[Finding]:
    """Findings in one file, by line."""
    lines = source.splitlines()
    found: list[Finding] = []
    if len(lines) > MAX_FILE_LINES:
        found.append(
            Finding(path, 1, f"file has {len(lines)} lines, {MAX_FILE_LINES} are allowed: split it")
        )
    for node in ast.walk(ast.parse(source, str(path))):
        for line, message in _of_node(node, lines):
            found.append(Finding(path, line, message))
    return sorted(found, key=lambda finding: finding.line)


def check_paths(paths: list[Path]) -> list[Finding]:
    """Findings in every Python file under ``paths``, files in order of their names."""
    found: list[Finding] = []
    for root in paths:
        files = sorted(root.rglob("*.py")) if root.is_dir() else [root]
        for file in files:
            found += check_source(file, file.read_text(encoding="utf-8"))
    return found


def _of_node(node: ast.AST, lines: list[str]) -> Iterator[tuple[int, str]]:
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            yield from _of_function(node)
        case ast.Global():
            yield node.lineno, f"global {', '.join(node.names)}: pass it as an argument"
        case ast.ExceptHandler() if _is_broad(node) and not _is_explained(node, lines):
            yield (
                node.lineno,
                "broad except without a comment: say why every error may be caught here",
            )
        case _:
            pass


def _of_function(node: Function) -> Iterator[tuple[int, str]]:
    length = (node.end_lineno or node.lineno) - node.lineno + 1
    if length > MAX_FUNCTION_LINES:
        yield (
            node.lineno,
            f"{node.name} has {length} lines, {MAX_FUNCTION_LINES} are allowed: split it",
        )
    count = _parameters(node)
    if count > MAX_PARAMETERS and not _is_command(node):
        yield (
            node.lineno,
            f"{node.name} takes {count} parameters, {MAX_PARAMETERS} are allowed: group them",
        )


def _parameters(node: Function) -> int:
    arguments = node.args
    named = [*arguments.posonlyargs, *arguments.args]
    bound = bool(named) and named[0].arg in {"self", "cls"}
    return len(named) - bound + len(arguments.kwonlyargs)


def _is_command(node: Function) -> bool:
    """Whether the parameters are the options of a command: a person sees each by its name."""
    calls = (item for item in node.decorator_list if isinstance(item, ast.Call))
    return any(
        isinstance(call.func, ast.Attribute) and call.func.attr in COMMAND_DECORATORS
        for call in calls
    )


def _is_broad(node: ast.ExceptHandler) -> bool:
    if node.type is None:
        return True
    caught = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
    return any(isinstance(item, ast.Name) and item.id in BROAD for item in caught)


def _is_explained(node: ast.ExceptHandler, lines: list[str]) -> bool:
    """A comment on the line of the except, right above it, or before the first statement.

    A handler that ends in a bare raise swallows nothing and needs none.
    """
    last = node.body[-1]
    if isinstance(last, ast.Raise) and last.exc is None:
        return True
    first = node.body[0].lineno
    near = lines[max(0, node.lineno - 2) : first]
    return any(_comment_says_something(line) for line in near)


def _comment_says_something(line: str) -> bool:
    _, mark, comment = line.partition("#")
    words = comment.strip()
    if words.startswith(("noqa", "type:")):
        words = words.partition(" - ")[2] or words.partition("# ")[2]
    return bool(mark) and len(words.split()) >= 2


def main(arguments: list[str]) -> int:
    """Check the named paths, or the whole repository."""
    paths = [Path(name) for name in arguments or DEFAULT_PATHS]
    found = check_paths([path for path in paths if path.exists()])
    for finding in found:
        print(finding)
    if not found:
        print("tail: no function, file or handler over its limit")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
