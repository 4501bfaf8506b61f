"""Colours and letters of charts, light and dark, as Vega-Lite configurations."""

from __future__ import annotations

from typing import Any

FONT = (
    'system-ui, -apple-system, "Segoe UI", "PingFang SC", "Microsoft YaHei", '
    '"Noto Sans CJK SC", sans-serif'
)
_CATEGORIES = {
    "light": [
        "#2b6cb0",
        "#dd7a1f",
        "#2f9e60",
        "#b4436c",
        "#7356bf",
        "#0f8b8d",
        "#8a6d3b",
        "#5d6b7a",
    ],
    "dark": [
        "#6aa9f0",
        "#f2a65a",
        "#63cc94",
        "#ee86ab",
        "#ab94f2",
        "#4fc8ca",
        "#cbb07a",
        "#a4b1c0",
    ],
}
_INK = {"light": "#3c4a58", "dark": "#b6c2cf"}
_LINE = {"light": "#dde2e8", "dark": "#303a46"}
_HEAT = {"light": "blues", "dark": "viridis"}


def configuration(mode: str, background: str = "transparent") -> dict[str, Any]:
    """The configuration of one mode, ``light`` or ``dark``."""
    ink, line = _INK[mode], _LINE[mode]
    return {
        "background": background,
        "font": FONT,
        "view": {"stroke": line},
        "axis": {
            "labelColor": ink,
            "titleColor": ink,
            "gridColor": line,
            "domainColor": line,
            "tickColor": line,
            "labelFontSize": 11,
            "titleFontSize": 12,
            "titleFontWeight": "normal",
        },
        "legend": {
            "labelColor": ink,
            "titleColor": ink,
            "titleFontWeight": "normal",
            "orient": "bottom",
            "symbolStrokeWidth": 2,
        },
        "title": {"color": ink, "anchor": "start", "fontSize": 14},
        "text": {"color": ink},
        "range": {"category": _CATEGORIES[mode], "heatmap": {"scheme": _HEAT[mode]}},
    }
