"""What a search found, as a file keeps it."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from forebay.kernel.errors import ConfigError
from forebay.lab.evaluate.compare import Change as AnswerChange
from forebay.lab.measure.result import Machine
from forebay.lab.tune.objectives import Figures, LatencyMeasure
from forebay.lab.tune.pipeline import StepReport
from forebay.lab.tune.space import Parameter, Value
from forebay.lab.tune.study import StudySettings, Trial

Source = Literal["labels", "judge", "headings"]
Verdict = Literal["better", "worse", "same"]
Advice = Literal["take", "cheaper", "keep"]
"""Take the patch over; do so for latency or memory alone; keep the settings in force."""


class Change(msgspec.Struct, frozen=True):
    """The mean change of quality on questions nobody tuned on, with its 95 % interval."""

    mean: float
    low: float
    high: float

    @property
    def verdict(self) -> Verdict:
        """What the interval says; ``same`` where it holds zero."""
        if self.low > 0:
            return "better"
        return "worse" if self.high < 0 else "same"


class HeldOut(msgspec.Struct, frozen=True):
    """Both configurations on the held-out half."""

    questions: int
    before: Figures
    after: Figures
    quality: Change


class Found(msgspec.Struct, frozen=True):
    """Trials, their front and its knee; ``front`` and ``chosen`` are numbers of trials.

    ``chosen`` None: nothing that was tried is better than what there was.
    """

    trials: tuple[Trial, ...]
    base: Figures
    front: tuple[int, ...]
    eligible: tuple[int, ...]
    chosen: int | None
    held_out: HeldOut

    def trial(self, number: int) -> Trial:
        """The trial of this number."""
        return next(trial for trial in self.trials if trial.number == number)


class TuneResult(msgspec.Struct, frozen=True):
    """What ``forebay tune`` found."""

    corpus: str
    source: Source
    tuning_questions: int
    settings: StudySettings
    quality_loss: float
    space: tuple[Parameter, ...]
    before: dict[str, Value]
    found: Found
    patch: str
    steps: tuple[StepReport, ...]
    machine: Machine
    commit: str = ""
    versions: dict[str, str] = {}
    kind: str = "tune"
    answers: tuple[AnswerChange, ...] = ()
    """Refusals and inventions before and after, where answers need no engine and were looked at."""
    advice: Advice | None = None
    """``advised``, for whoever reads the file."""

    @property
    def latency(self) -> LatencyMeasure:
        """Which latency counted."""
        return self.settings.objectives.latency

    @property
    def after(self) -> dict[str, Value]:
        """The chosen values, by settings path."""
        found = self.found
        return {} if found.chosen is None else found.trial(found.chosen).values

    @property
    def advised(self) -> Advice:
        """What the held-out questions speak for."""
        held = self.found.held_out
        quality = held.quality
        lost = quality.verdict == "worse" or quality.mean < -self.quality_loss or self.answers_worse
        if self.found.chosen is None or lost:
            return "keep"
        if quality.verdict == "better":
            return "take"
        return "cheaper" if held.after.cheaper_than(held.before, self.latency) else "keep"

    @property
    def answers_worse(self) -> bool:
        """Whether more is refused that has an answer, or answered that has none, beyond chance."""
        return any(change.verdict == "worse" for change in self.answers)

    @property
    def warning(self) -> Literal["tune_worse", "tune_loss", "tune_answers", "tune_noise"] | None:
        """Why the patch is not to be taken over as it is, by the name of its words; None: it may.

        ``tune_loss``: more was lost on the held-out questions than may be, if not beyond chance.
        ``tune_noise``: nothing was gained there beyond chance, in no objective.
        """
        quality = self.found.held_out.quality
        if quality.verdict == "worse":
            return "tune_worse"
        if quality.mean < -self.quality_loss:
            return "tune_loss"
        if self.answers_worse:
            return "tune_answers"
        kept = self.found.chosen is None
        return "tune_noise" if self.advised == "keep" and not kept else None


def load_tuning(path: Path) -> TuneResult:
    """A result that ``--out`` wrote; ``ConfigError`` when it cannot be read."""
    try:
        found = msgspec.json.decode(path.read_bytes(), type=TuneResult)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}; name a result's file") from error
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{path} is no result of tuning ({error})") from error
    if found.kind != "tune":
        raise ConfigError(f"{path} is no result of tuning; forebay tune --out writes one")
    return found
