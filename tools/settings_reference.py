"""Writes docs/settings.md and docs/settings.zh-CN.md from the settings structs.

``python -m tools.settings_reference`` writes both pages; ``--check`` exits 1 when a page is stale
or a description has no translation in docs/i18n/settings.zh-CN.json; ``--missing`` prints the
descriptions that want one.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from forebay.app.reference import markdown, rows
from forebay.app.settings import Settings

ROOT = Path(__file__).resolve().parent.parent
TRANSLATIONS = ROOT / "docs" / "i18n" / "settings.zh-CN.json"
ENGLISH = {
    "title": "Settings",
    "intro": (
        "[中文](settings.zh-CN.md)\n\n"
        "Every key of `forebay.toml`, generated from the code. An environment variable "
        "`FOREBAY_SECTION__KEY` and the flag `--set section.key=value` set the same keys; "
        "`[]` stands for an item of a list of tables, `<name>` for a name you choose. "
        "`forebay config` shows the values in force and where each came from."
    ),
    "key": "key",
    "type": "type",
    "default": "default",
    "meaning": "meaning",
}
CHINESE = {
    "title": "配置参考",
    "intro": (
        "[English](settings.md)\n\n"
        "`forebay.toml` 的全部配置项，由代码生成。环境变量 `FOREBAY_SECTION__KEY` 和命令行参数 "
        "`--set section.key=value` 设置的是同样的键；`[]` 表示表数组中的一项，"
        "`<name>` 表示自定的名称。"
        "`forebay config` 显示当前生效的值及其来源。"
    ),
    "key": "键",
    "type": "类型",
    "default": "默认值",
    "meaning": "含义",
}


def translations() -> dict[str, str]:
    """Chinese by English description."""
    if not TRANSLATIONS.exists():
        return {}
    loaded: dict[str, str] = json.loads(TRANSLATIONS.read_text(encoding="utf-8"))
    return loaded


def missing() -> list[str]:
    """Descriptions without a translation, in page order."""
    known = translations()
    return [
        text
        for text in dict.fromkeys(row.description for row in rows(Settings))
        if text not in known
    ]


def pages() -> dict[Path, str]:
    """Both pages by path."""
    return {
        ROOT / "docs" / "settings.md": markdown(Settings, ENGLISH, {}),
        ROOT / "docs" / "settings.zh-CN.md": markdown(Settings, CHINESE, translations()),
    }


def main(arguments: list[str]) -> int:
    """Write, check, or list what is missing."""
    if arguments == ["--missing"]:
        print(json.dumps(missing(), ensure_ascii=False, indent=1))
        return 0
    if arguments == ["--check"]:
        stale = [
            path.name
            for path, text in pages().items()
            if not path.exists() or path.read_text(encoding="utf-8") != text
        ]
        for name in stale:
            print(f"{name} is stale; run python -m tools.settings_reference", file=sys.stderr)
        for text in missing():
            print(f"no translation: {text}", file=sys.stderr)
        return 1 if stale or missing() else 0
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
