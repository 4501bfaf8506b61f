"""The limits on what is longest, widest and most hidden."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.check_tail import MAX_FILE_LINES, check_paths, check_source, main

HERE = Path("example.py")


def messages(source: str) -> list[str]:
    return [finding.message for finding in check_source(HERE, source)]


def function(lines: int) -> str:
    return "def long():\n" + "    x = 1\n" * (lines - 1)


def test_a_function_may_have_sixty_lines() -> None:
    assert messages(function(60)) == []


def test_a_function_of_sixty_one_lines_is_found() -> None:
    assert messages(function(61)) == ["long has 61 lines, 60 are allowed: split it"]


def test_nested_and_async_functions_count_too() -> None:
    body = "        x = 1\n" * 61
    source = f"class A:\n    async def run(self):\n{body}"
    assert messages(source) == ["run has 62 lines, 60 are allowed: split it"]


def test_six_parameters_pass_and_self_is_none_of_them() -> None:
    assert messages("class A:\n    def f(self, a, b, c, *, d, e, f): ...\n") == []


def test_seven_parameters_are_found() -> None:
    assert messages("def f(a, b, c, /, d, *, e, f, g): ...\n") == [
        "f takes 7 parameters, 6 are allowed: group them"
    ]


def test_the_options_of_a_command_are_not_counted() -> None:
    assert messages("@app.command()\ndef serve(a, b, c, d, e, f, g): ...\n") == []


def test_a_file_over_its_limit_is_found() -> None:
    assert messages("x = 1\n" * MAX_FILE_LINES) == []
    assert len(messages("x = 1\n" * (MAX_FILE_LINES + 1))) == 1


def test_global_is_found() -> None:
    assert messages("def f():\n    global a, b\n    a = 1\n") == [
        "global a, b: pass it as an argument"
    ]


@pytest.mark.parametrize(
    "caught", [" Exception", " BaseException as e", "", " (OSError, Exception)"]
)
def test_a_broad_except_needs_its_reason(caught: str) -> None:
    assert len(messages(f"try:\n    f()\nexcept{caught}:\n    pass\n")) == 1


@pytest.mark.parametrize(
    "handler",
    [
        "except Exception:  # a plugin's error costs its file only\n    pass\n",
        "except Exception:\n    # a plugin's error costs its file only\n    pass\n",
        "# a plugin's error costs its file only\nexcept Exception:\n    pass\n",
        "except Exception:\n    close()\n    raise\n",
        "except OSError:\n    pass\n",
    ],
)
def test_a_reason_or_a_raise_is_enough(handler: str) -> None:
    assert messages("try:\n    f()\n" + handler) == []


def test_a_bare_noqa_is_no_reason() -> None:
    assert len(messages("try:\n    f()\nexcept Exception:  # noqa: BLE001\n    pass\n")) == 1


def test_the_command_names_file_line_and_limit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = tmp_path / "bad.py"
    bad.write_text("def f():\n    global a\n", encoding="utf-8")
    assert main([str(tmp_path)]) == 1
    assert capsys.readouterr().out == f"{bad}:2: global a: pass it as an argument\n"


def test_this_repository_keeps_the_limits(repository: Path) -> None:
    folders = [repository / name for name in ("src", "tests", "tools", "benchmarks")]
    assert [str(finding) for finding in check_paths(folders)] == []
