"""The search itself: Optuna proposes, an evaluator measures, a journal on disk remembers."""

from __future__ import annotations

import asyncio
import hashlib
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from forebay.kernel.clock import Clock
from forebay.kernel.errors import ConfigError, ForebayError
from forebay.lab.tune.objectives import (
    DIRECTIONS,
    Evaluator,
    Figures,
    ObjectiveSettings,
    figures,
)
from forebay.lab.tune.questions import Question
from forebay.lab.tune.space import Parameter, Value, Values, check_space, suggest, within

_NAME = "forebay-tune"
_SEEDS_APART = 1_000_003
_RANDOM_TRIALS = 10


class StudySettings(msgspec.Struct, frozen=True):
    """How long to search, and how."""

    trials: Annotated[
        int, Meta(description="Candidates in all, those of earlier runs included.", ge=1)
    ] = 40
    budget_s: Annotated[
        Annotated[float, Meta(gt=0)] | None,
        Meta(description="Seconds after which no candidate is begun."),
    ] = None
    seed: Annotated[int, Meta(description="Equal seeds propose alike.", ge=0)] = 1
    sampler: Annotated[
        Literal["tpe", "nsga2"],
        Meta(description="tpe: good with few trials; nsga2: genetic, for hundreds."),
    ] = "tpe"
    objectives: ObjectiveSettings = ObjectiveSettings()


class Trial(msgspec.Struct, frozen=True):
    """One candidate; ``figures`` None: it could not be measured, and ``reason`` says why."""

    number: int
    values: dict[str, Value]
    figures: Figures | None
    seconds: float
    reason: str = ""


class Search:
    """One search: what may change, on which questions, from which start.

    Proposals depend on the seed, the trial's number and what was measured before it, so a search
    that goes on from its journal proposes what it would have proposed without the break.
    """

    def __init__(
        self,
        space: Sequence[Parameter],
        questions: Sequence[Question],
        evaluator: Evaluator,
        settings: StudySettings,
        clock: Clock,
    ) -> None:
        check_space(space)
        self._space = tuple(space)
        self._questions = tuple(questions)
        self._evaluator = evaluator
        self._settings = settings
        self._clock = clock

    async def run(
        self,
        start: Values,
        base: Figures,
        journal: Path | None = None,
        progress: Callable[[Trial], None] = lambda trial: None,
    ) -> tuple[Trial, ...]:
        """Search until the trials or the time are used up; return all trials in order.

        The first candidate is ``start``, whose figures ``base`` are known already.
        ``ConfigError``: the journal is another search's.
        """
        optuna = open_optuna()
        study = await asyncio.to_thread(self._open, optuna, journal, start)
        began = self._clock.now()
        while (number := _begun(study)) < self._settings.trials:
            left_s = self._left_s(began)
            if left_s <= 0:
                break
            study.sampler = self._sampler(optuna, number)
            trial, values = await asyncio.to_thread(self._ask, study)
            if number == 0 and values == within(self._space, start):
                done = Trial(number, values, base, 0.0)
            else:
                done = await self._measure(number, values, left_s)
            await asyncio.to_thread(self._tell, optuna, study, trial, done)
            progress(done)
        return tuple(_finished(study))

    def _left_s(self, began: float) -> float:
        budget_s = self._settings.budget_s
        return float("inf") if budget_s is None else budget_s - (self._clock.now() - began)

    def _open(self, optuna: ModuleType, journal: Path | None, start: Values) -> Any:
        storage = None
        if journal is not None:
            backend = optuna.storages.journal.JournalFileBackend(str(journal))
            storage = optuna.storages.JournalStorage(backend)
        study = optuna.create_study(
            storage=storage,
            sampler=self._sampler(optuna, 0),
            study_name=_NAME,
            directions=DIRECTIONS,
            load_if_exists=True,
        )
        known = study.user_attrs.get("search")
        if known is None:
            study.set_user_attr("search", self.fingerprint(start))
            study.enqueue_trial(within(self._space, start))
        elif known != self.fingerprint(start):
            raise ConfigError(
                f"{journal} is the journal of another search (questions, space, settings or seed "
                "differ); name another file."
            )
        for left in study.get_trials(states=(optuna.trial.TrialState.RUNNING,)):
            # Whoever measured it is gone.
            study.tell(left.number, state=optuna.trial.TrialState.FAIL)
        return study

    def _sampler(self, optuna: ModuleType, number: int) -> Any:
        seed = (self._settings.seed * _SEEDS_APART + number) % 2**32
        if self._settings.sampler == "nsga2":
            return optuna.samplers.NSGAIISampler(seed=seed, population_size=20)
        return optuna.samplers.TPESampler(seed=seed, n_startup_trials=_RANDOM_TRIALS)

    def _ask(self, study: Any) -> tuple[Any, dict[str, Value]]:
        """Both in one thread: Optuna remembers the trials before by thread."""
        trial = study.ask()
        return trial, suggest(self._space, trial)

    async def _measure(self, number: int, values: dict[str, Value], left_s: float) -> Trial:
        began, found, reason = self._clock.now(), None, ""
        try:
            async with asyncio.timeout(None if left_s == float("inf") else left_s):
                observed = await self._evaluator.observe(values, self._questions)
            found = figures(observed, self._questions, self._settings.objectives.depth)
        except TimeoutError:
            reason = "the time was used up"
        except ForebayError as error:
            reason = error.message
        return Trial(number, values, found, self._clock.now() - began, reason)

    def _tell(self, optuna: ModuleType, study: Any, trial: Any, done: Trial) -> None:
        trial.set_user_attr("trial", msgspec.to_builtins(done))
        if done.figures is None:
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
            return
        latency_ms = done.figures.latency_ms(self._settings.objectives.latency)
        study.tell(trial, [done.figures.quality, latency_ms, done.figures.memory_bytes])

    def fingerprint(self, start: Values) -> str:
        """What makes two searches one: start, space, questions, seed, sampler, objectives."""
        told = msgspec.json.encode(
            (
                sorted(start.items()),
                self._space,
                self._questions,
                self._settings.seed,
                self._settings.sampler,
                self._settings.objectives,
            )
        )
        return hashlib.sha256(told).hexdigest()[:16]


def open_optuna() -> ModuleType:
    """Return Optuna, quiet; ``ConfigError`` says how to get it."""
    try:
        import optuna
        import optuna.storages.journal
    except ImportError as error:
        raise ConfigError(
            "tuning needs Optuna: make setup-tune, or pip install 'forebay[tune]'."
        ) from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
    module: ModuleType = optuna
    return module


def _begun(study: Any) -> int:
    """How many trials have been asked for; one that waits to be begun has a number already."""
    return sum(trial.state.name != "WAITING" for trial in study.trials)


def _finished(study: Any) -> list[Trial]:
    """The trials that were told of; one that was interrupted has nothing to tell."""
    told = [trial.user_attrs.get("trial") for trial in study.trials]
    return [msgspec.convert(each, Trial) for each in told if each is not None]
