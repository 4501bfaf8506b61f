"""Draws ``result.json`` as ``sweep.svg``: recall against rate, and what the width costs.

python benchmarks/ann/plot.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import altair as alt

from forebay.lab.report.page import svg

HERE = Path(__file__).parent
WIDTH_PX, HEIGHT_PX = 400, 300


def rows(report: dict[str, Any]) -> list[dict[str, Any]]:
    """One row a cell of one thread: which index, how wide, how right, how quick."""
    found = []
    for index in report["indexes"]:
        for cell in index["cells"]:
            if cell["threads"] != 1:
                continue
            name = f"HNSW M={index['m']}" if index["index"] == "hnsw" else "IVF-PQ"
            if cell.get("refined"):
                name += ", best 80 compared exactly"
            found.append(
                {
                    "index": f"{name}, {index['rows'] / 1e6:g} M",
                    "width": cell.get("ef") or cell.get("nprobe"),
                    "recall": cell["recall_at_10"],
                    "rate": cell["queries_per_cpu_s"],
                    "p99": cell["cpu_p99_ms"],
                    "bytes": index["bytes_per_vector"],
                }
            )
    return found


def panel(data: list[dict[str, Any]], x: alt.X, y: alt.Y, title: str) -> alt.LayerChart:
    """Lines through the widths of each index, each point with its width."""
    base = alt.Chart(alt.InlineData(values=data)).encode(
        x=x,
        y=y,
        color=alt.Color("index:N", title=None, legend=alt.Legend(columns=2, labelLimit=320)),
        order=alt.Order("width:Q"),
    )
    lines = base.mark_line(point=alt.OverlayMarkDef(size=45))
    labels = base.mark_text(dy=-10, fontSize=10).encode(text="width:Q")
    return alt.layer(lines, labels).properties(width=WIDTH_PX, height=HEIGHT_PX, title=title)


def main() -> None:
    """Write the picture."""
    data = rows(json.loads((HERE / "result.json").read_text(encoding="utf-8")))
    rate = alt.Y("rate:Q", title="queries a second of one core", scale=alt.Scale(type="log"))
    recall = alt.X("recall:Q", title="recall@10", scale=alt.Scale(zero=False, padding=10))
    p99 = alt.Y("p99:Q", title="P99 of a query's processor time, ms", scale=alt.Scale(type="log"))
    width = alt.X("width:Q", title="ef or nprobe", scale=alt.Scale(type="log", base=2))
    beside = alt.hconcat(
        panel(data, recall, rate, "Rate against recall, by ef or nprobe"),
        panel(data, width, p99, "What width costs"),
    ).resolve_scale(color="shared")
    (HERE / "sweep.svg").write_text(svg(beside), encoding="utf-8")


if __name__ == "__main__":
    main()
