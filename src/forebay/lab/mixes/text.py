"""Verdicts as lines of text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import msgspec
import numpy as np

from forebay.lab.mixes.sweep import Report
from forebay.lab.workload.distributions import LogNormal, Tokens


def line(report: Report) -> str:
    """One mix in one line."""
    verdict, mix = report.verdict, report.mix
    return (
        f"{mix.workload.name:>18} {'pass' if verdict.passed else 'FAIL'} "
        f"rule1 {_mark(verdict.safe)} share {verdict.worst_share:.3f} "
        f"second {verdict.worst_second:.3f} ({len(verdict.safeties)}/{len(verdict.shares)} kinds) "
        f"rule2 {_mark(verdict.used)} of_clairvoyant {verdict.of_clairvoyant:.3f} "
        f"of_straight {verdict.of_straight:.3f} "
        f"load {mix.load:.2f} {mix.profile}x{mix.replicas} n {report.requests}"
    )


def details(report: Report) -> str:
    """Sizes, shares and refusals of one mix, and its workload as JSON."""
    verdict, mix = report.verdict, report.mix
    kept = "keeps" if verdict.straight_safe else "breaks"
    lines = [
        f"     {verdict.offered_s:.1f} s of work offered, {verdict.work_s:.1f} s good",
        f"     straight on {verdict.straight_s:.1f} s ({kept} rule 1)",
        f"     clairvoyant {verdict.clairvoyant_s:.1f} s ({report.clairvoyant})",
    ]
    safe = {one.kind: one for one in verdict.safeties}
    for kind in mix.workload.kinds:
        size = _mean(kind.input_tokens), _mean(kind.output_tokens)
        work_ms = 1000 * mix.work.work_s(*size)
        text = (
            f"     {kind.name}: {size[0]} in {size[1]} out, {work_ms:.1f} ms of work, "
            f"deadline {kind.deadline_s} s: good {verdict.shares.get(kind.name, 0):.3f}, "
            f"straight on {report.straight.shares.get(kind.name, 0):.3f}, "
            f"clairvoyant {report.clairvoyant_shares.get(kind.name, 0):.3f}"
        )
        one = safe.get(kind.name)
        if one is not None:
            text += (
                f"; protected, {one.share:.3f} of alone, {one.later_share:.3f} from the third "
                f"second on, worst second {one.worst_second:.3f} at {one.worst_at_s:.0f} s"
            )
        lines.append(text)
    if verdict.reasons:
        lines.append("     " + ", ".join(f"{why} {n}" for why, n in verdict.reasons.items()))
    return "\n".join(lines)


def workload_file(report: Report) -> str:
    """The mix as a workload file, and how to run it."""
    name = f"{report.mix.workload.name}.json"
    body = msgspec.json.format(msgspec.json.encode(report.mix.workload), indent=2).decode()
    return f"# {report.mix.command(name)}\n# {name}:\n{body}"


def summary(reports: Sequence[Report]) -> str:
    """Shares that pass and how the figures are distributed."""
    verdicts = [one.verdict for one in reports]
    count = len(verdicts)
    passed = {
        "both rules": sum(one.passed for one in verdicts),
        "rule 1": sum(one.safe for one in verdicts),
        "rule 2": sum(one.used for one in verdicts),
    }
    told = ", ".join(f"{what} {part} ({part / count:.0%})" for what, part in passed.items())
    lines = [f"{count} mixes: {told}"]
    figures: dict[str, Callable[[int], float]] = {
        "worst share": lambda at: verdicts[at].worst_share,
        "worst second": lambda at: verdicts[at].worst_second,
        "of clairvoyant": lambda at: verdicts[at].of_clairvoyant,
        "of straight on": lambda at: verdicts[at].of_straight,
    }
    for name, figure in figures.items():
        values = [figure(at) for at in range(count)]
        cuts = np.percentile(values, (0, 5, 10, 25, 50))
        lines.append(
            f"{name:>16}: min {cuts[0]:.3f} p5 {cuts[1]:.3f} p10 {cuts[2]:.3f} "
            f"p25 {cuts[3]:.3f} p50 {cuts[4]:.3f}"
        )
    return "\n".join(lines)


def _mean(tokens: Tokens | None) -> int:
    return round(tokens.mean if isinstance(tokens, LogNormal) else cast(int, tokens))


def _mark(kept: bool) -> str:
    return "ok  " if kept else "FAIL"
