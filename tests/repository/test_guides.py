"""The guides: both languages keep step, settings in them load, metrics in them exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from forebay.app.settings import load_settings
from forebay.telemetry.metrics import Metrics
from tools.snippets import LANGUAGES, blocks, language_blocks, marked_blocks

ROOT = Path(__file__).resolve().parents[2]
PAGES = (
    ROOT / "README.md",
    ROOT / "examples" / "README.md",
    ROOT / "docs" / "architecture.md",
    ROOT / "docs" / "figures.md",
    *sorted(path for path in (ROOT / "docs" / "guides").glob("*.md") if "zh-CN" not in path.name),
)
TOML = [
    pytest.param(block.text, id=f"{path.relative_to(ROOT)}:{block.line}")
    for page in PAGES
    for path in (page, page.with_suffix(".zh-CN.md"))
    for block in language_blocks(path.read_text(encoding="utf-8"))
    if block.name == "toml"
]
_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\((?!https?://)([^)#\s]*)(?:#([^)\s]*))?\)")
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
# Made from the code when the documents are built.
GENERATED = {ROOT / "docs" / name for name in ("settings.md", "settings.zh-CN.md")}


def chinese(page: Path) -> Path:
    return page.with_suffix(".zh-CN.md")


def prose(path: Path) -> str:
    return _FENCE.sub("", path.read_text(encoding="utf-8"))


def anchors(path: Path) -> set[str]:
    """What a page's headings are called in a link."""
    return {
        re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
        for heading in _HEADING.findall(prose(path))
    }


def without_comments(code: str) -> str:
    return re.sub(r"(^|\s+)#(?!!).*$", "", code, flags=re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_both_languages_have_the_same_headings_tables_and_code(page: Path) -> None:
    here, there = prose(page), prose(chinese(page))
    for pattern in (r"^#+ ", r"^\|.*\|$", r"^- \*\*F[0-9.]+\*\*"):
        count = [len(re.findall(pattern, text, re.MULTILINE)) for text in (here, there)]
        assert count[0] == count[1], pattern
    english = [
        (block.name, without_comments(block.text))
        for block in blocks(page.read_text(encoding="utf-8"))
    ]
    translated = [
        (block.name, without_comments(block.text))
        for block in blocks(chinese(page).read_text(encoding="utf-8"))
    ]
    assert english == translated


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for path in (page, chinese(page)):
        for target, part in _LINK.findall(prose(path)):
            found = (path.parent / target).resolve() if target else path
            assert found.exists() or found in GENERATED, f"{path.name}: {target}"
            if part and found not in GENERATED:
                assert part in anchors(found), f"{path.name}: {target}#{part}"


@pytest.mark.parametrize("text", TOML)
def test_settings_shown_in_a_page_are_settings(text: str, tmp_path: Path) -> None:
    file = tmp_path / "forebay.toml"
    file.write_text(text, encoding="utf-8")
    load_settings(file, {}, {})


def test_the_operations_guide_names_every_metric() -> None:
    shown = set(
        re.findall(
            r"`(forebay_[a-z_]+)`",
            (PAGES[0].parent / "docs/guides/operations.md").read_text(encoding="utf-8"),
        )
    )
    metrics = Metrics()
    exported = {
        family.name + ("_total" if family.type == "counter" else "")
        for family in metrics.registry.collect()
    }
    assert exported <= shown


def test_a_language_may_be_used_more_than_once_on_a_page() -> None:
    assert {"sh", "python", "toml"} == LANGUAGES
    page = "<!-- tested: sh -->\n```sh\na\n```\n<!-- tested: sh -->\n```sh\nb\n```\n"
    assert [(block.line, block.text) for block in language_blocks(page)] == [(1, "a\n"), (5, "b\n")]
    assert marked_blocks(page) == {}
