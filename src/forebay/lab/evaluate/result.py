"""The result of an evaluation: JSON in, JSON out.

Every measure is kept per question, so that two results can be compared in pairs; texts are kept of
some questions that went wrong alone, shortened.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from forebay.kernel.errors import ConfigError
from forebay.lab.measure.result import Machine, Quantiles

SCHEMA = 1
ALL = "all"
"""Stands for every language together."""
SEARCH_S, ANSWER_S = "search_s", "answer_s"
TIMES = (SEARCH_S, ANSWER_S)
"""Values of a question that are seconds."""
REFUSED = "refused_with_answer"
INVENTED = "answered_without_answer"
UNSURE = "told_as_nearest"
ERRORS = (REFUSED, INVENTED)
"""Measures of which less is better."""


class Mean(msgspec.Struct, frozen=True):
    """The mean of a measure over ``count`` questions, and the interval that holds it (95 %)."""

    value: float
    count: int
    low: float
    high: float


class Row(msgspec.Struct, frozen=True, omit_defaults=True):
    """One question: its measures and seconds by name; ``error`` says why there are none."""

    id: str
    language: str
    values: dict[str, float]
    rung: str = ""
    kind: str = ""
    error: str = ""


class Failure(msgspec.Struct, frozen=True, omit_defaults=True):
    """A question that went wrong: ``why`` by name, worst first, and its texts, shortened.

    ``expected``: right answers, else relevant documents; empty where there is no answer. ``found``:
    the first documents.
    """

    id: str
    language: str
    why: tuple[str, ...]
    question: str
    expected: str = ""
    said: str = ""
    found: tuple[str, ...] = ()


class SetResult(msgspec.Struct, frozen=True):
    """One set of questions."""

    name: str
    fingerprint: str
    documents: int
    questions: int
    failed: int
    measures: dict[str, dict[str, Mean]]
    """Language, ``all`` first -> measure."""
    latency: dict[str, dict[str, Quantiles]]
    """Language -> ``search``, ``answer``."""
    rungs: dict[str, int]
    rows: tuple[Row, ...]
    judge: dict[str, Any] = {}
    """What the judge's scores say and cost, and how it agrees with the labels."""
    failures: tuple[Failure, ...] = ()
    """Some of what went wrong, worst first; ``rows`` tell of all."""


class Origin(msgspec.Struct, frozen=True):
    """What was evaluated, with what, where."""

    target: str
    options: dict[str, Any] = {}
    seed: int = 0
    started_at: str = ""
    machine: Machine = Machine()
    commit: str = ""
    versions: dict[str, str] = {}
    measures_by: str = ""
    """What computes recall, MRR and nDCG."""


class EvalResult(msgspec.Struct, frozen=True):
    """Everything one evaluation has to say."""

    origin: Origin
    sets: tuple[SetResult, ...]
    kind: str = "evaluation"
    schema: int = SCHEMA


def load_result(path: Path) -> EvalResult:
    """A result from a file; ``ConfigError`` when it is none."""
    try:
        found = msgspec.json.decode(path.read_bytes(), type=EvalResult)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}; name a result file.") from error
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(
            f"{path} is no result of forebay eval ({error}); write one with its --out option."
        ) from error
    if found.schema != SCHEMA:
        raise ConfigError(
            f"{path} has schema {found.schema}, this version reads {SCHEMA}; run it again."
        )
    return found
