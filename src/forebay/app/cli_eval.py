"""``forebay eval``: how good retrieval and answers are, and whether a change made them better."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from forebay.app.cli_options import (
    ConfigFlag,
    HtmlFlag,
    JsonFlag,
    KbFlag,
    KeyFlag,
    LanguageFlag,
    OutFlag,
    SeedFlag,
)
from forebay.app.output import Output
from forebay.app.words import setting_flags

SHORT_FORM = "run"


class _RunsByDefault(TyperGroup):
    """A group whose words, when the first names no command, are those of ``run``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = [SHORT_FORM, *args]
        return super().parse_args(ctx, args)


eval_app = typer.Typer(
    cls=_RunsByDefault,
    help="Measure retrieval and answers on questions whose answers are known: forebay eval FOLDER.",
)

SetsArgument = Annotated[
    list[Path], typer.Argument(help="BEIR-style folders, or .jsonl files of questions.")
]


@eval_app.command("run")
def eval_run(
    sets: SetsArgument,
    documents: Annotated[
        list[Path] | None,
        typer.Option("--documents", "-d", help="Folder or file to index for sets without any."),
    ] = None,
    no_answer: Annotated[
        list[Path] | None,
        typer.Option(help="A set whose questions these documents do not answer."),
    ] = None,
    no_answer_count: Annotated[
        int, typer.Option(min=1, help="How many of those questions to ask.")
    ] = 100,
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", min=1, help="Ask so many of each set.")
    ] = None,
    url: Annotated[
        str | None, typer.Option(help="Ask this server, such as http://127.0.0.1:8400.")
    ] = None,
    kb: KbFlag = None,
    put: Annotated[
        bool, typer.Option("--put", help="Put the sets' documents into the server first.")
    ] = False,
    key_file: KeyFlag = None,
    store: Annotated[
        Path | None, typer.Option("--store", help="Keep the index here and use it again.")
    ] = None,
    top_k: Annotated[int, typer.Option(min=1, max=100, help="Passages to look for.")] = 20,
    search_only: Annotated[
        bool, typer.Option("--search-only", help="Ask for passages only, not for answers.")
    ] = False,
    at_once: Annotated[int, typer.Option(min=1, help="Questions at a time.")] = 1,
    timeout: Annotated[
        float, typer.Option(min=0.001, help="Seconds a search or an answer may take.")
    ] = 60.0,
    judge: Annotated[
        str | None, typer.Option(help="Have this OpenAI-compatible endpoint judge the passages.")
    ] = None,
    judge_model: Annotated[str, typer.Option(help="The model that judges there.")] = "",
    judge_key_file: Annotated[
        Path | None, typer.Option(help="File that holds the judge's API key and nothing else.")
    ] = None,
    judge_top: Annotated[
        int, typer.Option(min=1, max=20, help="Passages of each question to judge.")
    ] = 5,
    judge_at_once: Annotated[
        int, typer.Option(min=1, max=256, help="Requests to the judge at a time.")
    ] = 4,
    judge_timeout: Annotated[
        float, typer.Option(min=0.001, help="Seconds to wait for the judge, each time.")
    ] = 60.0,
    small_judge: Annotated[
        Path | None, typer.Option(help="Judge by a file that distill-judge has written.")
    ] = None,
    judgements: Annotated[
        Path | None, typer.Option(help="Write what the judge said, with the passages' texts.")
    ] = None,
    seed: SeedFlag = 1,
    config: ConfigFlag = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="One setting as section.key=value; repeat for more."),
    ] = None,
    out: OutFlag = None,
    html: HtmlFlag = None,
    lang: LanguageFlag = "en",
    json: JsonFlag = False,
) -> None:
    """Put every question, compare with what is known, print measures by language."""
    given = locals()
    from forebay.app.delivery import Delivery
    from forebay.app.eval_targets import EvalWords
    from forebay.app.evaluating import run_evaluation
    from forebay.app.judging import JudgeWords

    delivery = Delivery(Output(as_json=json), out, html, lang)
    told, judging = EvalWords.of(given), JudgeWords.of(given)
    raise SystemExit(run_evaluation(told, judging, setting_flags(settings), delivery))


@eval_app.command("compare")
def eval_compare(
    before: Annotated[Path, typer.Argument(help="A result of --out.")],
    after: Annotated[Path, typer.Argument(help="Another, of the same sets.")],
    confidence: Annotated[
        float, typer.Option(min=0.5, max=0.9999, help="How often an interval must hold.")
    ] = 0.95,
    seed: SeedFlag = 1,
    out: OutFlag = None,
    html: HtmlFlag = None,
    lang: LanguageFlag = "en",
    json: JsonFlag = False,
) -> None:
    """Say which measures changed beyond noise, question by question."""
    from forebay.app.delivery import Delivery
    from forebay.app.evaluating import compare

    delivery = Delivery(Output(as_json=json), out, html, lang)
    raise SystemExit(compare((before, after), confidence, seed, delivery))


@eval_app.command("report")
def eval_report(
    result: Annotated[Path, typer.Argument(help="A result of --out.")],
    html: HtmlFlag = None,
    lang: LanguageFlag = "en",
    json: JsonFlag = False,
) -> None:
    """Show a stored result again, or write its report."""
    from forebay.app.delivery import Delivery
    from forebay.app.evaluating import report

    raise SystemExit(report(result, Delivery(Output(as_json=json), None, html, lang)))


@eval_app.command("distill-judge")
def eval_distill_judge(
    judgements: Annotated[list[Path], typer.Argument(help="Files of --judgements.")],
    out: Annotated[Path, typer.Option("--out", help="The small judge to write, a .json file.")],
    held_out: Annotated[
        float, typer.Option(min=0.05, max=0.9, help="Share of the questions to check it with.")
    ] = 0.3,
    seed: SeedFlag = 1,
    json: JsonFlag = False,
) -> None:
    """Train a small judge from a judge's scores, and say how far it agrees."""
    from forebay.app.judging import distill_judge

    raise SystemExit(distill_judge(judgements, out, held_out, seed, Output(as_json=json)))
