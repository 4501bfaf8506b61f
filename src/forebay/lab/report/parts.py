"""Parts that several reports share."""

from __future__ import annotations

import json

from forebay.lab.measure.result import Run
from forebay.lab.report.words import Words


def origin(run: Run, duration_s: float | None, words: Words) -> list[str]:
    """Two lines: what was run, and where."""
    machine = run.machine
    told = [
        str(run.workload.get("name") or ""),
        f"{words('seed')} {run.seed}",
        f"{duration_s:g} s" if duration_s is not None else "",
        words(run.source),
        run.started_at,
        f"{words('commit')} {run.commit}" if run.commit else "",
    ]
    where = [
        machine.cpu,
        words("cores").format(count=machine.cores) if machine.cores else "",
        f"{machine.memory_bytes / 2**30:.0f} GiB" if machine.memory_bytes else "",
        machine.system,
        machine.python,
    ]
    lines = [" · ".join(part for part in line if part) for line in (told, where)]
    return [line for line in lines if line]


def json_text(value: object) -> str:
    """Indented JSON for people."""
    return json.dumps(value, ensure_ascii=False, indent=2, default=str)
