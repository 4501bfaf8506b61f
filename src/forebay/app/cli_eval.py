"""``forebay eval``: how good retrieval and answers are, and whether a change made them better."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from forebay.app.cli_eval_options import (
    AtOnceFlag,
    DocumentsFlag,
    JudgeAsIsFlag,
    JudgeAtOnceFlag,
    JudgeFlag,
    JudgeKeyFlag,
    JudgementsFlag,
    JudgeModelFlag,
    JudgeTimeoutFlag,
    JudgeTopFlag,
    KeepFlag,
    LimitFlag,
    NoAnswerCountFlag,
    NoAnswerFlag,
    PatientFlag,
    PutFlag,
    SearchOnlyFlag,
    SetFlag,
    SetsArgument,
    SmallJudgeFlag,
    TopKFlag,
    UrlFlag,
    WithinFlag,
)
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


@eval_app.command("run")
def eval_run(
    sets: SetsArgument,
    documents: DocumentsFlag = None,
    no_answer: NoAnswerFlag = None,
    no_answer_count: NoAnswerCountFlag = 100,
    limit: LimitFlag = None,
    url: UrlFlag = None,
    kb: KbFlag = None,
    put: PutFlag = False,
    key_file: KeyFlag = None,
    store: KeepFlag = None,
    top_k: TopKFlag = 20,
    search_only: SearchOnlyFlag = False,
    patient: PatientFlag = False,
    at_once: AtOnceFlag = 1,
    timeout: WithinFlag = 60.0,
    judge: JudgeFlag = None,
    judge_model: JudgeModelFlag = "",
    judge_key_file: JudgeKeyFlag = None,
    judge_top: JudgeTopFlag = 5,
    judge_at_once: JudgeAtOnceFlag = 4,
    judge_timeout: JudgeTimeoutFlag = 60.0,
    judge_as_is: JudgeAsIsFlag = False,
    small_judge: SmallJudgeFlag = None,
    judgements: JudgementsFlag = None,
    seed: SeedFlag = 1,
    config: ConfigFlag = None,
    settings: SetFlag = None,
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
