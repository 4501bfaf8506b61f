"""Where a laboratory command's result goes: the terminal, JSON, a file, an HTML report."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from forebay.app.output import Output
from forebay.kernel.errors import ConfigError
from forebay.lab.measure.result import OK, Figures, RunResult, encode_result
from forebay.lab.report.numbers import seconds
from forebay.lab.report.words import Words


class Delivery:
    """What ``--json``, ``--out``, ``--html`` and ``--lang`` ask for.

    Built before the work begins: ``ConfigError`` when a file could not be written afterwards.
    """

    def __init__(self, output: Output, out: Path | None, html: Path | None, language: str) -> None:
        self.output = output
        self._out = out
        self._html = html
        self.language = Words(language)
        for path in (out, html):
            if path is not None and (path.is_dir() or not path.resolve().parent.is_dir()):
                raise ConfigError(f"{path} cannot be written: name a file in a folder that exists.")

    def give(
        self, data: bytes, draw: Callable[[Path, Words], None], tell: Callable[[Output], None]
    ) -> None:
        """Write the files, then print: ``data`` as JSON, or what ``tell`` says to people."""
        failed = self._write(data, draw)
        if self.output.as_json:
            self.output.encoded(data)
        else:
            tell(self.output)
            for path in (self._out, self._html):
                if path is not None and not failed:
                    self.output.note(f"written: {path}")
        if failed:
            self.output.alarm(f"forebay: {failed}")
            raise SystemExit(1)

    def _write(self, data: bytes, draw: Callable[[Path, Words], None]) -> str:
        """Write the files; what went wrong is told afterwards, for the result must not be lost."""
        for path, write in (
            (self._out, lambda path: path.write_bytes(data + b"\n")),
            (self._html, lambda path: draw(path, self.language)),
        ):
            try:
                if path is not None:
                    write(path)
            except OSError as error:
                return f"{path} cannot be written: {error.strerror}."
        return ""

    def give_run(self, result: RunResult) -> int:
        """Deliver a run; 1 when it was none or its generator too slow, so that scripts notice."""
        from forebay.lab.report.runs import write_report

        def draw(path: Path, words: Words) -> None:
            write_report(result, path, words)

        self.give(encode_result(result), draw, lambda output: tell_run(result, output))
        return self.warn(result)

    def warn(self, result: RunResult) -> int:
        """Say loudly, in every mode, what makes a result no success; the exit status."""
        health = result.generator
        if not result.total.sent + result.total.not_sent:
            self.output.alarm(
                "NOTHING WAS COUNTED: no request was meant to start in the time that counts; "
                "let the load last longer, or the warm-up less."
            )
            return 1
        failed = not result.total.ok and result.total.sent > result.total.disconnected
        if failed:
            self.output.alarm(
                f"NOTHING WAS ANSWERED: {_not_whole(result)}; look at the target's address, model "
                "and key."
            )
        if health is not None and not health.valid:
            failed = True
            self.not_valid(self.language.reasons(health.why, health.why_not))
        return int(failed)

    def not_valid(self, why_not: Sequence[str]) -> None:
        """Say loudly that a result says nothing of what was measured."""
        self.output.alarm(f"{self.language('not_valid').upper()}: {'; '.join(why_not)}.")


def tell_run(result: RunResult, output: Output) -> None:
    """Print a run for people: what it was, how much was good, how long it took."""
    run, total = result.run, result.total
    name = str(run.workload.get("name") or "")
    origin = (run.target, name, f"{result.duration_s:g} s", f"seed {run.seed}")
    output.line(" · ".join(part for part in origin if part))
    asked = total.sent + total.not_sent - total.disconnected
    output.line(
        f"good {total.goodput_share:.2%} ({total.good:,} of {asked:,}): "
        f"{total.goodput_per_s:.4g}/s of {result.offered_per_s:.4g}/s offered"
    )
    if failed := _not_whole(result):
        output.line(f"not whole: {failed}")
    for name, message in result.messages.items():
        output.line(f"  {name}: {message}")
    output.line()
    figures: Mapping[str, Figures] = result.by_kind
    if len(figures) != 1:
        figures = {"all": total, **figures}
    output.table(
        ("kind", "sent", "good", "", "P50", "P90", "P99", "P99.9", "max"),
        [row for kind, item in figures.items() for row in _rows(kind, item)],
    )


def _not_whole(result: RunResult) -> str:
    """What became of the others, by name; empty when all were answered whole."""
    statuses = result.total.statuses.items()
    return ", ".join(f"{name} {count:,}" for name, count in statuses if name != OK and count)


def _rows(kind: str, item: Figures) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for name, found in (("TTFT", item.ttft), ("ITL", item.itl), ("total", item.total)):
        first = not rows
        values = (found.p50_s, found.p90_s, found.p99_s, found.p999_s, found.max_s)
        cells = [seconds(value) for value in values] if found.count else ["-"] * len(values)
        rows.append(
            (
                kind if first else "",
                f"{item.sent:,}" if first else "",
                f"{item.goodput_share:.1%}" if first else "",
                name,
                *cells,
            )
        )
    return rows
