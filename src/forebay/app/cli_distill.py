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
    SetsArgument,
)
from forebay.app.cli_options import ConfigFlag, JsonFlag, SeedFlag
from forebay.app.output import Output
from forebay.app.words import setting_flags

distill_app = typer.Typer()


@distill_app.command("distill")
def distill(
    sets: SetsArgument,
    write: Annotated[Path, typer.Option("--write", "-w", help="Write the model here (.onnx).")],
    teacher: Annotated[
        str,
        typer.Option(
            "--teacher",
            "-t",
            help="labels; endpoint: a rerank endpoint; onnx: a cross-encoder's folder; judge: an "
            "OpenAI-compatible endpoint; sentences: the embedder over every sentence.",
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
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the questions.")] = 15,
    temperature: Annotated[
        float, typer.Option(min=0.01, help="Softens the teacher's scores above 1.")
    ] = 1.0,
    seed: SeedFlag = 7,
    config: ConfigFlag = None,
    settings: SetFlag = None,
    json: JsonFlag = False,
) -> None:
    """Train a light reranker for one's own embedder and documents, by a teacher or by labels."""
    given = locals()
    from forebay.app.distilling import DistillWords
    from forebay.app.distilling import distill as distilled

    words, flags = DistillWords.of(given), setting_flags(settings)
    raise SystemExit(distilled(words, flags, Output(as_json=json)))
