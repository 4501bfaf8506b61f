"""The pages: what is marked as tested can be found, both READMEs keep step, records keep shape."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tools.snippets import marked_blocks

FIELDS = ("Context", "Choice", "Runner-up", "Why", "Revisit when")


def test_a_marked_block_is_found_and_an_unmarked_one_is_not() -> None:
    page = "text\n```sh\nno\n```\n<!-- tested: one -->\n```sh\nmake x\nmake y\n```\n"
    assert marked_blocks(page) == {"one": "make x\nmake y\n"}


def test_a_blank_line_may_stand_between_mark_and_block() -> None:
    assert marked_blocks("<!-- tested: a -->\n\n~~~\nx\n~~~\n") == {"a": "x\n"}


@pytest.mark.parametrize(
    "page",
    [
        "<!-- tested: a -->\nno block\n",
        "<!-- tested: a -->\n```\n```\n<!-- tested: a -->\n```\n```\n",
    ],
)
def test_a_mark_that_marks_nothing_is_an_error(page: str) -> None:
    with pytest.raises(ValueError, match="tested: a"):
        marked_blocks(page)


def test_ci_takes_its_test_command_from_the_readme(repository: Path) -> None:
    printed = subprocess.run(
        [sys.executable, "tools/snippets.py", "README.md", "test"],
        cwd=repository,
        check=True,
        capture_output=True,
        text=True,
    )
    assert printed.stdout == "make test\n"
    assert "snippets.py README.md test" in (repository / ".ci" / "run").read_text(encoding="utf-8")


def test_both_readmes_mark_the_same_commands(repository: Path) -> None:
    english = marked_blocks((repository / "README.md").read_text(encoding="utf-8"))
    chinese = marked_blocks((repository / "README.zh-CN.md").read_text(encoding="utf-8"))
    assert english.keys() == chinese.keys()
    assert "test" in english


def records(repository: Path) -> list[Path]:
    return sorted((repository / "docs" / "decisions").glob("[0-9]*.md"))


def test_decisions_are_numbered_without_a_gap(repository: Path) -> None:
    numbers = [int(record.name[:4]) for record in records(repository)]
    assert numbers
    assert numbers == list(range(1, len(numbers) + 1))


def test_every_decision_has_a_title_and_its_five_lines(repository: Path) -> None:
    for record in records(repository):
        lines = record.read_text(encoding="utf-8").splitlines()
        title, blank, *body = lines
        assert re.match(rf"^# {int(record.name[:4])}\. \S", title), record.name
        assert blank == ""
        names = [line.removeprefix("- **").partition(":**")[0] for line in body]
        assert names == list(FIELDS), record.name


def test_every_runtime_package_has_its_decision(repository: Path) -> None:
    import tomllib

    declared = tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))
    project = declared["project"]
    names = sum(project["optional-dependencies"].values(), project["dependencies"])
    written = "\n".join(record.read_text(encoding="utf-8") for record in records(repository))
    for name in names:
        package = re.split(r"[^A-Za-z0-9._-]", name)[0]
        assert f"`{package}`" in written, f"no record in docs/decisions speaks of {package}"


def test_no_tracked_file_names_a_package_index_or_a_folder_of_one_machine(repository: Path) -> None:
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=repository, check=False, capture_output=True, text=True
    )
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    words = ("py" + "pi.org", "files.python" + "hosted.org", "npmjs" + ".org", "/wo" + "rk/")
    for name in listed.stdout.split("\0"):
        file = repository / name
        if not name or not file.is_file() or file.stat().st_size > 2**20:
            continue
        text = file.read_bytes().decode("utf-8", errors="ignore")
        for word in words:
            assert word not in text, f"{name} says {word}"
