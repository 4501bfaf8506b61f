"""The report of a run: nothing is fetched, charts compile, nothing breaks out of the page."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import vl_convert
from selectolax.lexbor import LexborHTMLParser as HTMLParser

from forebay.kernel.errors import ConfigError
from forebay.lab.measure.result import Run, RunResult
from forebay.lab.report.numbers import seconds
from forebay.lab.report.page import VEGA_LITE
from forebay.lab.report.runs import run_page, write_report
from forebay.lab.report.words import Words
from tests.unit.lab.report.samples import INVALID, result

HOSTILE = '</script><script src="https://evil.example/x.js"></script><!--'


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    path: Path = tmp_path_factory.mktemp("report") / "report.html"
    write_report(result(kind=HOSTILE, generator=INVALID), path, Words("zh"))
    return path.read_text(encoding="utf-8")


def test_nothing_is_fetched(page: str) -> None:
    tree = HTMLParser(page)
    assert not tree.css("[src], [href], link, img, iframe, object, embed, base, form")
    assert all(not node.attributes.get("src") for node in tree.css("script"))
    style = "".join(node.text() for node in tree.css("style"))
    assert "url(" not in style and "@import" not in style
    (policy,) = tree.css('meta[http-equiv="Content-Security-Policy"]')
    allowed = policy.attributes["content"] or ""
    assert "default-src 'none'" in allowed and "http" not in allowed and "connect" not in allowed
    specs = "".join(node.text() for node in tree.css("script.spec"))
    assert '"url"' not in specs


def test_a_hostile_name_stays_text(page: str) -> None:
    tree = HTMLParser(page)
    assert "evil.example" in page
    # The specifications, the library, the few lines that draw.
    drawn = len(tree.css("script.spec"))
    assert len(tree.css("script")) == drawn + 2
    assert drawn == len(tree.css(".figure"))


def test_every_chart_compiles(page: str) -> None:
    specs = [json.loads(node.text()) for node in HTMLParser(page).css("script.spec")]
    assert len(specs) == 10
    for spec in specs:
        vl_convert.vegalite_to_vega(spec, vl_version=VEGA_LITE)


def test_a_result_that_is_not_valid_says_so_first(page: str) -> None:
    banner = HTMLParser(page).css_first(".banner")
    assert banner is not None
    assert "本次结果无效" in banner.text() and "1,203 of 9,000" in banner.text()
    valid = run_page(result(400), Words())
    assert not valid.alarm and not valid.reasons


def test_a_page_is_small_and_names_what_ran(page: str) -> None:
    assert len(page.encode()) < 1_600_000
    for told in ("a CPU", "0123abc", "http://127.0.0.1:8500/v1", "acme", "vector+bm25"):
        assert told in page


def test_size_does_not_follow_the_number_of_requests() -> None:
    def size(requests: int) -> int:
        shown = run_page(result(requests), Words())
        return sum(len(item.spec_json) for part in shown.sections for item in part.figures)

    assert size(20_000) < 1.5 * size(4_000)


def test_a_run_without_requests_has_a_page_too() -> None:
    empty = RunResult(
        run=Run(source="simulation"),
        duration_s=0.0,
        elapsed_s=0.0,
        offered_per_s=0.0,
        sent_per_s=0.0,
        total=result(100).total,
    )
    shown = run_page(empty, Words())
    assert not shown.alarm
    assert not any(part.figures for part in shown.sections)


def test_english_and_chinese_say_the_same() -> None:
    measured = result(400)
    english, chinese = (run_page(measured, Words(name)) for name in ("en", "zh"))
    assert [len(part.figures) for part in english.sections] == [
        len(part.figures) for part in chinese.sections
    ]
    assert not re.search(r"[一-鿿]", json.dumps([item.title for item in english.sections]))
    assert all(re.search(r"[一-鿿]", part.title) for part in chinese.sections)


def test_an_unknown_language_is_refused() -> None:
    with pytest.raises(ConfigError, match="en or zh, not 'fr'"):
        Words("fr")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.00085, "850 µs"),
        (0.0123, "12.3 ms"),
        (0.9996, "1 s"),
        (4.561, "4.56 s"),
        (1234.0, "1,234 s"),
    ],
)
def test_durations_are_readable(value: float, text: str) -> None:
    assert seconds(value) == text
