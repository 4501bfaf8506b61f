"""Options of ``forebay eval``; each says what it is in one line."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

SetsArgument = Annotated[
    list[Path], typer.Argument(help="BEIR-style folders, or .jsonl files of questions.")
]

DocumentsFlag = Annotated[
    list[Path] | None,
    typer.Option("--documents", "-d", help="Folder or file to index for sets without any."),
]
NoAnswerFlag = Annotated[
    list[Path] | None,
    typer.Option(help="A set whose questions these documents do not answer."),
]
NoAnswerCountFlag = Annotated[int, typer.Option(min=1, help="How many of those questions to ask.")]
LimitFlag = Annotated[
    int | None, typer.Option("--limit", "-n", min=1, help="Ask so many of each set.")
]
UrlFlag = Annotated[
    str | None, typer.Option(help="Ask this server, such as http://127.0.0.1:8400.")
]
PutFlag = Annotated[
    bool, typer.Option("--put", help="Put the sets' documents into the server first.")
]
KeepFlag = Annotated[
    Path | None, typer.Option("--store", help="Store folder: keep the index here and use it again.")
]
TopKFlag = Annotated[int, typer.Option(min=1, max=100, help="Passages to look for.")]
SearchOnlyFlag = Annotated[
    bool, typer.Option("--search-only", help="Ask for passages only, not for answers.")
]
AtOnceFlag = Annotated[int, typer.Option(min=1, help="Questions at a time.")]
WithinFlag = Annotated[
    float, typer.Option(min=0.001, help="Seconds a search or an answer may take.")
]
JudgeFlag = Annotated[
    str | None, typer.Option(help="Have this OpenAI-compatible endpoint judge the passages.")
]
JudgeModelFlag = Annotated[str, typer.Option(help="The model that judges there.")]
JudgeKeyFlag = Annotated[
    Path | None, typer.Option(help="File that holds the judge's API key and nothing else.")
]
JudgeTopFlag = Annotated[
    int, typer.Option(min=1, max=20, help="Passages of each question to judge.")
]
JudgeAtOnceFlag = Annotated[
    int, typer.Option(min=1, max=256, help="Requests to the judge at a time.")
]
JudgeTimeoutFlag = Annotated[
    float, typer.Option(min=0.001, help="Seconds to wait for the judge, each time.")
]
SmallJudgeFlag = Annotated[
    Path | None, typer.Option(help="Judge by a file that distill-judge has written.")
]
JudgementsFlag = Annotated[
    Path | None, typer.Option(help="Write what the judge said, with the passages' texts.")
]
SetFlag = Annotated[
    list[str] | None,
    typer.Option("--set", help="One setting as section.key=value; repeat for more."),
]
PatientFlag = Annotated[
    bool, typer.Option("--patient", help="Wait for slow parts instead of going without them.")
]
JudgeAsIsFlag = Annotated[
    bool, typer.Option("--judge-as-is", help="Take nothing off for place and length.")
]
