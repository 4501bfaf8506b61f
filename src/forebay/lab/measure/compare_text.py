"""The words of a comparison: what differs between two set-ups, what changed, what is doubtful."""

from __future__ import annotations

import math
from typing import Any

from forebay.lab.measure.comparison import Change
from forebay.lab.measure.result import RunResult


def differing_workloads(before: RunResult, after: RunResult) -> list[str]:
    """What the workloads of two results do not share; empty when they are the same."""
    if before.run.fingerprint == after.run.fingerprint:
        return []
    found = list(_differing("", before.run.workload, after.run.workload))
    return found[:10] or ["contents of the files they name"]


def _differing(where: str, before: Any, after: Any) -> list[str]:
    if isinstance(before, dict) and isinstance(after, dict):
        return [
            line
            for name in sorted(before.keys() | after.keys())
            for line in _differing(
                f"{where}.{name}" if where else name, before.get(name), after.get(name)
            )
        ]
    if isinstance(before, list | tuple) and isinstance(after, list | tuple):
        if len(before) == len(after):
            return [
                line
                for number, pair in enumerate(zip(before, after, strict=True), start=1)
                for line in _differing(f"{where} {number}", *pair)
            ]
        return [f"{where} has {len(before)} entries, then {len(after)}"]
    return [] if before == after else [f"{where} is {before!r}, then {after!r}"]


def differing_setups(before: RunResult, after: RunResult) -> list[str]:
    """What else differs between two runs: target, seed, commit, machine, options."""
    one, other = before.run, after.run
    found = []
    for name, first, second in (
        ("source", one.source, other.source),
        ("target", one.target, other.target),
        ("seed", one.seed, other.seed),
        ("commit", one.commit, other.commit),
        ("machine", one.machine.cpu, other.machine.cpu),
        ("cores", one.machine.cores, other.machine.cores),
    ):
        if first != second:
            found.append(f"{name} is {first!r}, then {second!r}")
    return found + _differing("options", one.options, other.options)


def tell_warnings(before: RunResult, after: RunResult, enough: bool) -> list[str]:
    """What makes the comparison itself doubtful."""
    found = []
    for name, result in (("first", before), ("second", after)):
        if result.generator is not None and not result.generator.valid:
            found.append(f"The {name} result is not valid: {'; '.join(result.generator.why_not)}.")
    if not enough:
        found.append(
            "The runs are too short to tell a change from noise: run longer, or record finer "
            "slices."
        )
    return found


_NAMES = {
    "goodput_per_s": "goodput",
    "ok_per_s": "throughput",
    "goodput_share": "the share of good answers",
}


def tell_changes(changes: list[Change]) -> list[str]:
    """What changed beyond noise, a sentence each; one sentence when nothing did."""
    changed = [change for change in changes if change.direction in ("higher", "lower")]
    if changed:
        return [_sentence(change) for change in changed]
    if all(change.direction == "unknown" for change in changes):
        return ["These runs cannot tell whether anything changed."]
    return ["Nothing changed beyond noise."]


def _sentence(change: Change) -> str:
    name = _NAMES.get(change.figure)
    if name is None:
        time, _, quantile = change.figure.partition("_")
        name = f"{quantile.upper()} of {'TTFT' if time == 'ttft' else 'the total time'}"
    of = f" of {change.kind} requests" if change.kind else ""
    verb = "rose" if change.direction == "higher" else "fell"
    judged = "better" if change.better else "worse"
    if change.unit == "share":
        size = f"{abs(change.change) * 100:.1f} points"
        bounds = sorted(abs(bound) * 100 for bound in (change.low, change.high))
        between = f"{bounds[0]:.1f} to {bounds[1]:.1f}"
        values = f"{change.before:.1%} to {change.after:.1%}"
    elif math.isfinite(change.change):
        size = f"{abs(change.change):.0%}"
        bounds = sorted(abs(bound) for bound in (change.low, change.high))
        between = f"{bounds[0]:.0%} to {bounds[1]:.0%}"
        values = f"{change.before:.4g} to {change.after:.4g} {change.unit}"
    else:
        return f"{name}{of} rose from nothing to {change.after:.4g} {change.unit}: {judged}."
    text = f"{name}{of} {verb} by {size} ({between}), from {values}: {judged}."
    return text[0].upper() + text[1:]
