"""``forebay tune`` as words of the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from forebay.app.cli_eval_options import JudgeFlag, JudgeKeyFlag, JudgeModelFlag, SmallJudgeFlag
from forebay.app.cli_options import (
    ConfigFlag,
    HtmlFlag,
    JsonFlag,
    KbFlag,
    LanguageFlag,
    OutFlag,
)
from forebay.app.output import Output
from forebay.app.words import setting_flags

tune_app = typer.Typer()

PathsArgument = Annotated[
    list[Path] | None,
    typer.Argument(help="Documents to tune on; none: the questions' own, or the kb's paths."),
]
LabelledFlag = Annotated[
    Path | None,
    typer.Option(
        "--queries",
        "-q",
        help="Labelled questions: a BEIR-style folder or a .jsonl file; none: the documents' "
        "headings ask.",
    ),
]
LatencyFlag = Annotated[
    str, typer.Option(help="cpu: mean processor time of a query; p99: its duration.")
]
AnswersFlag = Annotated[
    bool,
    typer.Option(
        help="Where quotations answer, compare refusals before and after (5,000 chunks at most)."
    ),
]


@tune_app.command("tune")
def tune(
    paths: PathsArgument = None,
    queries: LabelledFlag = None,
    kb: KbFlag = None,
    judge: JudgeFlag = None,
    judge_model: JudgeModelFlag = "",
    judge_key_file: JudgeKeyFlag = None,
    small_judge: SmallJudgeFlag = None,
    trials: Annotated[
        int, typer.Option("--trials", min=1, help="Candidates, earlier runs' included.")
    ] = 40,
    budget_s: Annotated[
        float | None, typer.Option("--budget-s", min=1, help="Seconds to search for at most.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Equal seeds propose alike.")] = 1,
    sampler: Annotated[str, typer.Option(help="tpe, or nsga2 for hundreds of trials.")] = "tpe",
    latency: LatencyFlag = "cpu",
    depth: Annotated[int, typer.Option(min=1, max=20, help="Hits that count (nDCG).")] = 10,
    quality_loss: Annotated[
        float,
        typer.Option("--quality-loss", min=0.0, help="What may be given up, in nDCG."),
    ] = 0.02,
    limit: Annotated[int, typer.Option("--limit", min=20, help="Questions at most.")] = 200,
    repeats: Annotated[
        int, typer.Option("--repeats", min=1, help="Timed rounds of each candidate.")
    ] = 3,
    space: Annotated[
        Path | None, typer.Option("--space", help="What may change (.toml) instead of the usual.")
    ] = None,
    study: Annotated[
        Path | None, typer.Option("--study", help="Journal to write, and to go on from.")
    ] = None,
    patch: Annotated[
        Path | None, typer.Option("--patch", help="Write the changed settings, as TOML.")
    ] = None,
    svg: Annotated[Path | None, typer.Option("--svg", help="Write the front as a picture.")] = None,
    answers: AnswersFlag = True,
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
    """Find settings that suit your documents and questions, and write them as a patch."""
    given = locals()
    from forebay.app.delivery import Delivery
    from forebay.app.judging import JudgeWords
    from forebay.app.tuning import TuneWords
    from forebay.app.tuning import tune as run

    delivery = Delivery(Output(as_json=json), out, html, lang)
    words = (TuneWords.of(given), JudgeWords.of(given))
    raise SystemExit(run(config, setting_flags(settings), words, delivery))
