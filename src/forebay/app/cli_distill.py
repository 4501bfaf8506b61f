"""``forebay distill`` as words of the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from forebay.app.cli_eval_options import (
    DocumentsFlag,
    KeepFlag,
    LimitFlag,
    SetFlag,
)
from forebay.app.cli_options import ConfigFlag, JsonFlag, SeedFlag
from forebay.app.output import Output
from forebay.app.words import setting_flags
from forebay.kernel.errors import ConfigError

distill_app = typer.Typer()

LIGHT, LATE = "light", "late"
DistilledArgument = Annotated[
    list[Path],
    typer.Argument(
        metavar="[light|late] SETS...",
        help="What to train, the light reranker unless said; then BEIR-style folders, or .jsonl "
        "files of questions.",
    ),
]


@distill_app.command("distill")
def distill(
    sets: DistilledArgument,
    write: Annotated[Path, typer.Option("--write", "-w", help="Write the model here (.onnx).")],
    teacher: Annotated[
        str,
        typer.Option(
            "--teacher",
            "-t",
            help="labels; endpoint: a rerank endpoint; onnx: a cross-encoder's folder; judge: an "
            "OpenAI-compatible endpoint; sentences: the embedder over every sentence; states (of "
            "late): all dimensions of the tokens, beside the search's score.",
        ),
    ] = "labels",
    endpoint: Annotated[str, typer.Option(help="Address of the teacher, as in .../v1.")] = "",
    model: Annotated[str, typer.Option(help="Model name the endpoint knows.")] = "",
    key_file: Annotated[
        Path | None, typer.Option(help="File that holds the endpoint's key and nothing else.")
    ] = None,
    logits: Annotated[bool, typer.Option("--logits", help="The endpoint answers logits.")] = False,
    folder: Annotated[
        Path | None, typer.Option(help="Folder of an ONNX cross-encoder (teacher onnx).")
    ] = None,
    documents: DocumentsFlag = None,
    store: KeepFlag = None,
    limit: LimitFlag = None,
    candidates: Annotated[
        int, typer.Option(min=2, max=100, help="Hits of each question to learn to order.")
    ] = 30,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="Passes over the questions: 15 for light, 2 for late.")
    ] = None,
    temperature: Annotated[
        float | None,
        typer.Option(
            min=0.01,
            help="Divides the teacher's scores: 0.7 for light, 1 for late; less makes it surer.",
        ),
    ] = None,
    seed: SeedFlag = 7,
    config: ConfigFlag = None,
    settings: SetFlag = None,
    json: JsonFlag = False,
) -> None:
    """Train a reranker for one's own embedder and documents, by a teacher or by labels.

    `forebay distill SETS` makes a light reranker, `forebay distill late SETS` a head for late
    interaction.
    """
    given = locals()
    from forebay.app.distilling import DistillWords
    from forebay.app.distilling import distill as distilled
    from forebay.app.distilling_late import distill_late

    kind, sets = _told_apart(sets)
    words = DistillWords.of({**given, "sets": sets})
    work = distill_late if kind == LATE else distilled
    raise SystemExit(work(words, setting_flags(settings), Output(as_json=json)))


def _told_apart(words: list[Path]) -> tuple[str, list[Path]]:
    """What is to be trained, light unless said, and the sets."""
    kind = str(words[0])
    if kind not in (LIGHT, LATE):
        return LIGHT, words
    if len(words) < 2:
        raise ConfigError(f"`forebay distill {kind}` needs a set of questions; name one after it.")
    return kind, words[1:]
